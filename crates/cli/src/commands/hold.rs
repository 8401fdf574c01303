//! `hold`: keeps a lock until standard input closes or a signal comes.

use std::time::Duration;

use leasehold::{Attempt, Client, GroupGuard, GroupLock, Loss};

use crate::args::HoldArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, Rows};
use crate::run::{self, Signals};
use crate::settings::{Settings, explicit, lease};
use crate::wait::{Waiting, unless_signal};
use crate::{events, hints, names, runtime, stdin, store};

pub(crate) fn run(args: &HoldArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    let keep = args.keep.map(|keep| lease("--keep", keep)).transpose()?;
    let owner = args.who.owner.as_deref().map(explicit).transpose()?;
    let waiting = Waiting::new(&args.waiting);
    runtime::block_on(async {
        let mut signals = Signals::passed_on()?;
        let client = unless_signal(&mut signals, store::connect_patiently(settings, &waiting)).await?;
        let mut lock = client.lock_all(names.iter().map(|name| name.as_str()))?;
        lock = keep.into_iter().fold(lock, GroupLock::keep);
        lock = owner.iter().fold(lock, GroupLock::owned_by);
        lock = args.who.label.iter().fold(lock, GroupLock::label);
        let mut done = match unless_signal(&mut signals, waiting.take(&client, &lock, &names)).await {
            Ok(Attempt::Granted(guard)) => {
                hold(&client, guard, &mut signals, keep.unwrap_or(client.defaults().term.lease()), args.json).await
            }
            Ok(Attempt::Busy(holder)) => waiting.refused(&client, &names, &holder, None, args.json).await,
            Err(failure) => Err(failure),
        };
        let is_lost = done.as_ref().is_err_and(|failure| failure.exit == Exit::LOST);
        let is_brief = is_lost || waiting.outage.is_away();
        store::close(&client, &mut signals, &mut done, is_brief).await;
        done
    })
}

async fn hold(
    client: &Client,
    guard: GroupGuard,
    signals: &mut Signals,
    lease: Duration,
    json: bool,
) -> Result<Exit, Failure> {
    // Before the lock is reported as held.
    let closed = stdin::closed()?;
    say(client, &guard, json).await?;
    tokio::select! {
        biased;
        member = guard.lost() => {
            let loss = if member.loss == Loss::Broken { run::loss_after_break(client, &guard).await } else { member.loss };
            return Err(lost(client, &guard, loss, lease));
        }
        _ = signals.next() => {}
        () = closed => {}
    }
    guard.release().await?;
    Ok(Exit::DONE)
}

fn lost(client: &Client, guard: &GroupGuard, loss: Loss, lease: Duration) -> Failure {
    let why = match loss {
        Loss::Gone => "the store no longer had it",
        Loss::Broken => "an operator took it away",
        _ => "it could not be renewed in time",
    };
    let lost = names::lost(guard);
    let (names, store) = (names::join(&lost), client.store_label());
    let failed = events::failed_renewals(lease).map(|failed| format!("; {failed}")).unwrap_or_default();
    Failure::new(Exit::LOST, format!("lost {names:?} on {store}: {why}{failed}")).with_hint(format!(
        "the work may be incomplete, and another holder may have run at the same time; {} shows who has the lock now",
        hints::show(lost[0].as_str())
    ))
}

async fn say(client: &Client, guard: &GroupGuard, json: bool) -> Result<(), Failure> {
    if json {
        return Rows::new(true, output::row::granted(client, guard).await).print();
    }
    let names: Vec<_> = guard.fences().map(|(name, _)| name.clone()).collect();
    output::line(&format!("holding {}, fence {}", names::join(&names), output::fences(guard)))
}
