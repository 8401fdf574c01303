//! `break`: takes a lock away from its holder.

use leasehold::{Break, Client, Holder, Name, Status};

use crate::args::BreakArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Seen;
use crate::{human, names, output, runtime, store};

pub(crate) fn run(args: &BreakArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::parse(&args.names)?;
    runtime::block_on(async {
        let client = match store::look(settings).await {
            Ok(Seen::Store(client)) => client,
            Ok(Seen::Unmade(_)) if !args.yes => return Err(unsure(nobody_would_lose(&names), &names)),
            Ok(Seen::Unmade(_)) => {
                names.iter().try_for_each(|name| output::line(&nothing_to_break(name)))?;
                return Ok(Exit::DONE);
            }
            Err(_) if !args.yes => return Err(unsure("break takes locks away from their holders".into(), &names)),
            Err(failure) => return Err(failure),
        };
        if !args.yes {
            return Err(unsure(who_would_lose(&client, &names).await, &names));
        }
        let how = if args.now { Break::Now } else { Break::AtLeaseEnd };
        let mut all = Ok(());
        for name in &names {
            // Each is said, and the others are broken all the same.
            let was = client.break_lock(name.as_str(), how).await;
            let said = was.map_err(Into::into).and_then(|was| output::line(&done(&was, how)));
            all = output::first_failure(all, said);
        }
        all.map(|()| Exit::DONE)
    })
}

fn unsure(what: String, names: &[Name]) -> Failure {
    let hint = format!("give --yes if that is what you want; {} says more", human::show(names[0].as_str()));
    Failure::usage(what).with_hint(hint)
}

async fn who_would_lose(client: &Client, names: &[Name]) -> String {
    let mut losers = Vec::new();
    for name in names {
        if let Ok(status) = client.inspect(name.as_str()).await {
            losers.extend(status.holders.iter().chain(&status.lingers).map(|holder| loser(name, holder)));
        }
    }
    if losers.is_empty() {
        return nobody_would_lose(names);
    }
    format!("break would take away, on {}, {}", client.store_label(), losers.join(", and "))
}

fn nobody_would_lose(names: &[Name]) -> String {
    format!("break takes a lock away from its holder, though nobody holds {} now", names::join(names))
}

fn nothing_to_break(name: &Name) -> String {
    format!("{:?} is free: there was nothing to break", name.as_str())
}

fn loser(name: &Name, holder: &Holder) -> String {
    let who = format!("{:?} from {}", name.as_str(), human::holder(holder));
    match human::held_for(holder) {
        Some(long) => format!("{who}, who has held it for {}", human::span(long)),
        None => who,
    }
}

fn done(was: &Status, how: Break) -> String {
    let name = was.name.as_str();
    let Some(holder) = was.holders.first().or(was.lingers.as_ref()) else {
        return nothing_to_break(&was.name);
    };
    let who = human::taken(holder);
    match (how, holder.left) {
        (Break::AtLeaseEnd, Some(left)) if holder.lingers() => {
            let left = human::span(left);
            format!("{name:?} has no holder to take it from: it is {who}, and free in {left}; with --now at once")
        }
        (Break::AtLeaseEnd, Some(left)) if holder.is_broken() => {
            format!("{name:?} was broken already; it is free in {} at the latest", human::span(left))
        }
        (Break::Now, _) if holder.is_broken() => {
            format!("{name:?} was broken already, with time left for {}; it is free now", human::holder(holder))
        }
        (Break::Now, _) => format!("broke {name:?}: it was {who}, and is free now"),
        (Break::AtLeaseEnd, Some(left)) => {
            format!("broke {name:?}: it was {who}; it is free in {} at the latest", human::span(left))
        }
        (Break::AtLeaseEnd, None) => format!("broke {name:?}: it was {who}"),
    }
}
