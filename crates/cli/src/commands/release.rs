//! `release`: releases a lock that was taken with `acquire`.

use leasehold::{Client, Fence, Holder, Name, Owner};

use crate::args::ReleaseArgs;
use crate::exit::{Exit, Failure};
use crate::run::{self, Signals};
use crate::settings::{Settings, explicit, is_of_run};
use crate::store::StoreState;
use crate::{hints, human, names, output, runtime, store};

pub(crate) fn run(args: &ReleaseArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    let owner = explicit(&args.owner)?;
    let fence = args.fence.map(Fence::new);
    if fence.is_some() && names.len() > 1 {
        let hint = "leave --fence out, or name one lock";
        return Err(Failure::usage("a fence applies to one lock, but several were named").with_hint(hint));
    }
    runtime::block_on(async {
        let client = match store::look(settings).await? {
            StoreState::Store(client) => client,
            StoreState::NotCreated(label) => return Err(store::nothing_held(&owner, &names, &label)),
        };
        let mut signals = Signals::passed_on()?;
        let mut done = Ok(());
        for name in &names {
            let left = release(&client, name, &owner, fence, args.all).await;
            // Each failure is reported, and the others are released all the same.
            let said = left.and_then(|left| output::line(&released(name, left)));
            done = output::first_failure(done, said);
        }
        // The release continues at servers that have not answered.
        store::close(&client, &mut signals, &mut done, false).await;
        done.map(|()| Exit::DONE)
    })
}

/// Releases one hold, or all of them, and returns how many are left.
async fn release(client: &Client, name: &Name, owner: &Owner, fence: Option<Fence>, all: bool) -> Result<u32, Failure> {
    if is_of_run(&owner.to_string()) {
        check_kept(client, name, owner, all).await?;
    }
    let lease = client.detached(name.as_str(), owner)?;
    Ok(match all {
        true => lease.release_all(fence).await.map(|()| 0)?,
        false => lease.release(fence).await?,
    })
}

/// Refuses to release the hold of a `run`: its command would run on until the next renewal, beside the next
/// holder. Inside that command, a hold that it added with `acquire` can be released.
async fn check_kept(client: &Client, name: &Name, owner: &Owner, all: bool) -> Result<(), Failure> {
    let status = client.inspect(name.as_str()).await?;
    let owner = owner.to_string();
    let held = |holder: &&Holder| holder.owner.as_deref() == Some(&*owner) && !holder.is_broken();
    let Some(holder) = status.holders.iter().find(held) else { return Ok(()) };
    let is_added = !all && holder.holds.is_some_and(|holds| holds > 1);
    if is_added && run::is_inside(&owner, name, client).await {
        return Ok(());
    }
    let what = format!(
        "release: {:?} on {} is held by a run ({}), which releases it when its command has ended",
        name.as_str(),
        client.store_label(),
        human::holder(holder)
    );
    let hint = format!("end that command; {} takes the lock away from it", hints::break_lock(name.as_str()));
    Err(Failure::new(Exit::NOT_HOLDER, what).with_hint(hint))
}

fn released(name: &Name, left: u32) -> String {
    let name = names::quoted(std::slice::from_ref(name));
    match left {
        0 => format!("released {name}"),
        left => format!("released one hold of {name}; {left} left"),
    }
}
