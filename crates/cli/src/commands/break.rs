//! `break`: takes a lock away from its holder.

use leasehold::{Break, BreakOptions, Client, ErrorKind, Fence, Holder, Name, Status};
use serde::Serialize;

use crate::args::BreakArgs;
use crate::exit::{Exit, Failure};
use crate::output::Row;
use crate::settings::Settings;
use crate::store::StoreState;
use crate::{hints, human, names, output, runtime, store};

pub(crate) fn run(args: &BreakArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    if args.fence.is_some() && names.len() > 1 {
        let hint = "leave --fence out, or name one lock";
        return Err(Failure::usage("a fence applies to one lock, but several were named").with_hint(hint));
    }
    runtime::block_on(async {
        let client = match store::look(settings).await {
            Ok(StoreState::Store(client)) => client,
            Ok(StoreState::NotCreated(_)) if !args.yes => return Err(unsure(nobody_would_lose(&names), &names)),
            Ok(StoreState::NotCreated(label)) => {
                let free = |name: &Name| Taken { broke: false, row: Row::free(name, &label), error: None };
                match args.json {
                    true => print(&names.iter().map(free).collect::<Vec<_>>())?,
                    false => names.iter().try_for_each(|name| output::line(&nothing_to_break(name)))?,
                }
                return Ok(Exit::DONE);
            }
            Err(_) if !args.yes => return Err(unsure("break takes locks away from their holders".into(), &names)),
            Err(failure) => return Err(failure),
        };
        if !args.yes {
            return Err(unsure(who_would_lose(&client, &names).await, &names));
        }
        let (mut all, mut rows) = (Ok(()), Vec::new());
        for name in &names {
            // Each failure is reported, and the others are broken all the same.
            let (taken, done) = break_one(&client, name, args).await;
            rows.extend(taken);
            let said = done.and_then(|text| if args.json { Ok(()) } else { output::line(&text) });
            all = output::first_failure(all, said);
        }
        let printed = if args.json { print(&rows) } else { Ok(()) };
        output::first_failure(all, printed).map(|()| Exit::DONE)
    })
}

/// A lock just before the break, and whether it was taken away.
#[derive(Serialize)]
struct Taken {
    broke: bool,
    #[serde(flatten)]
    row: Row,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Taken {
    /// The rows of a lock that was broken.
    fn all_of(was: &Status, store: &str, how: Break) -> Vec<Self> {
        let took = |row: &Row| row.held == Some(true) && (how == Break::Now || row.broken != Some(true));
        Row::all_of(was, store).into_iter().map(|row| Self { broke: took(&row), row, error: None }).collect()
    }

    /// The current rows of a lock that was not broken. If its state is unknown, so is whether it is held.
    fn refused(name: &Name, now: Option<&Status>, store: &str, refused: Option<&Failure>) -> Vec<Self> {
        let unknown = || vec![Row { held: None, ..Row::free(name, store) }];
        let rows = now.map_or_else(unknown, |now| Row::all_of(now, store));
        let error = refused.map(|refused| human::plain(&refused.message));
        rows.into_iter().map(|row| Self { broke: false, row, error: error.clone() }).collect()
    }
}

/// Breaks one lock; returns who held it, and the message.
async fn break_one(client: &Client, name: &Name, args: &BreakArgs) -> (Vec<Taken>, Result<String, Failure>) {
    let how = if args.now { Break::Now } else { Break::AtLeaseEnd };
    let store = client.store_label();
    let error = match client.break_lock(name.as_str(), options(args, how)).await {
        Ok(was) => {
            let is_untouched = args.fence.is_some() && was.holders.is_empty();
            let fences =
                if args.reset_fence && !is_untouched { "; its fences begin again at the store's clock" } else { "" };
            return (Taken::all_of(&was, store, how), Ok(done(&was, how) + fences));
        }
        Err(error) => error,
    };
    let now = match error.kind() {
        ErrorKind::NotHolder | ErrorKind::Unfit => client.inspect(name.as_str()).await.ok(),
        _ => None,
    };
    let is_told = matches!(error.kind(), ErrorKind::NotHolder | ErrorKind::Unfit);
    let refused = match (error.kind(), &now) {
        // It was released meanwhile.
        (ErrorKind::NotHolder, Some(now)) if now.holders.is_empty() && now.cooldown.is_none() => {
            Ok(nothing_to_break(name))
        }
        (ErrorKind::Unfit, Some(_)) if !args.foreign && error.hint().is_none() => {
            let hint = "if nothing needs that value any more, --foreign deletes it";
            Err(Failure::from(error).with_hint(hint))
        }
        _ => Err(error.into()),
    };
    let rows = is_told.then(|| Taken::refused(name, now.as_ref(), store, refused.as_ref().err()));
    (rows.unwrap_or_default(), refused)
}

fn options(args: &BreakArgs, how: Break) -> BreakOptions {
    let mut options = BreakOptions::from(how);
    options = args.fence.map(Fence::new).into_iter().fold(options, BreakOptions::fence);
    if args.foreign {
        options = options.foreign();
    }
    if args.reset_fence {
        options = options.reset_fence();
    }
    options
}

/// One object, or one with all of them.
fn print(rows: &[Taken]) -> Result<(), Failure> {
    match rows {
        [] => Ok(()),
        [row] => output::json(row),
        rows => output::json(&serde_json::json!({ "locks": rows })),
    }
}

fn unsure(what: String, names: &[Name]) -> Failure {
    let hint = format!("confirm with --yes; {} shows more", hints::show(names[0].as_str()));
    Failure::usage(what).with_hint(hint)
}

async fn who_would_lose(client: &Client, names: &[Name]) -> String {
    let mut losers = Vec::new();
    for name in names {
        if let Ok(status) = client.inspect(name.as_str()).await {
            losers.extend(status.holders.iter().chain(&status.cooldown).map(|holder| loser(name, holder)));
        }
    }
    if losers.is_empty() {
        return nobody_would_lose(names);
    }
    format!("break would take away, on {}, {}", client.store_label(), losers.join(", and "))
}

fn nobody_would_lose(names: &[Name]) -> String {
    format!("break takes a lock away from its holder, but {} is not held now", names::join(names))
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
    let Some(holder) = was.holders.first().or(was.cooldown.as_ref()) else {
        return nothing_to_break(&was.name);
    };
    let who = human::taken(holder);
    match (how, holder.left) {
        (Break::AtLeaseEnd, Some(left)) if holder.is_cooldown() => {
            let left = human::span(left);
            format!("{name:?} has no holder: it is {who}, and free in {left}, or at once with --now")
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
