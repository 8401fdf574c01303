//! Requests and answers in few words, for the timeline.

use leasehold_core::port::{Acquired, Renewed};
use leasehold_core::table::{Answer, Request};

use crate::network::Fate;

/// What is asked.
pub(crate) fn request(request: &Request) -> String {
    match request {
        Request::Acquire(ask) => format!(
            "acquire {} for {}, request {}, lease {:?}, block {}, not after {:?}{}",
            ask.names.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
            short(&ask.owner.to_string()),
            ask.request.number,
            ask.lease,
            ask.block,
            ask.not_after,
            if ask.enlist { ", enlist" } else { "" }
        ),
        Request::Release(release) => format!(
            "release {} of {}, fence {:?}, {}{}",
            release.name,
            short(&release.owner.to_string()),
            release.fence,
            match release.scope {
                leasehold_core::port::ReleaseScope::Hold(id) => format!("hold {}", id.number),
                other => format!("{other:?}"),
            },
            if release.rejoin { ", rejoin" } else { "" }
        ),
        Request::Renew(leases) => {
            let each =
                leases.iter().map(|renew| format!("{} {:?} for {:?}", renew.lease.name, renew.lease.fence, renew.term));
            format!("renew {}", each.collect::<Vec<_>>().join(", "))
        }
        Request::Watch(name) => format!("watch {name}"),
    }
}

/// What is answered.
pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Acquire(Ok(answered)) => match &answered.result {
            Acquired::Granted(grants) => {
                let each = grants.iter().map(|grant| {
                    format!("{:?}+{} holds {} left {:?}", grant.block.first, grant.block.len, grant.holds, grant.left)
                });
                format!("granted {} at {:?}", each.collect::<Vec<_>>().join(", "), answered.at)
            }
            Acquired::Busy(busy) => {
                let by = busy.holder.as_ref().map(|holder| short(&holder.owner.to_string()));
                format!("busy: {} is held by {by:?}, free in {:?}", busy.name, busy.free_in)
            }
            Acquired::TooLate => format!("too late at {:?}", answered.at),
        },
        Answer::Renew(Ok(answered)) => {
            let each = answered.result.iter().map(|renewed| match renewed {
                Renewed::Kept { left } => format!("kept {left:?}"),
                Renewed::Unknown => "unknown".to_owned(),
                Renewed::Lost => "lost".into(),
                Renewed::Broken => "broken".into(),
            });
            each.collect::<Vec<_>>().join(", ")
        }
        Answer::Release(Ok(answered)) => format!("{:?} at {:?}", answered.result, answered.at),
        Answer::Watch(Ok(_)) => "watched".into(),
        failed => format!("{failed:?}"),
    }
}

/// What becomes of a message.
pub(crate) fn fate(fate: Fate) -> String {
    let ms = |after: u64| format!("{:.3} ms", after as f64 / 1e6);
    let once = fate.arrives.map_or("(lost)".into(), |after| format!("({})", ms(after)));
    fate.again.map_or(once.clone(), |after| format!("{once} (again {})", ms(after)))
}

/// Ids end in what tells them apart.
fn short(id: &str) -> String {
    if id.len() > 17 { format!("client {}", id[16..].trim_start_matches('0')) } else { id.to_owned() }
}
