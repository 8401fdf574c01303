//! `acquire`: takes a lock for a fixed time, prints owner and fence, and leaves it to its owner.

use leasehold::{Attempt, Client, GroupGuard, GroupLock};

use crate::args::AcquireArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, Rows};
use crate::run::Signals;
use crate::settings::{Settings, lease, lease_default, owner};
use crate::wait::{Waiting, unless_signal};
use crate::{names, runtime, store};

pub(crate) fn run(args: &AcquireArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    let lease = args.lease.map(|given| lease("--lease", given)).transpose()?;
    let owner = owner(args.who.owner.as_deref())?;
    let waiting = Waiting::new(&args.waiting);
    runtime::block_on(async {
        let mut signals = Signals::passed_on()?;
        let client = unless_signal(&mut signals, store::connect_patiently(settings, &waiting)).await?;
        can_be_left(&client)?;
        let lock = client.lock_all(names.iter().map(|name| name.as_str()))?.owned_by(&owner);
        let lock = lock.lease(lease.unwrap_or_else(|| lease_default(&client)));
        let lock = args.who.label.iter().fold(lock, GroupLock::label);
        let mut done = match unless_signal(&mut signals, waiting.take(&client, &lock, &names)).await {
            Ok(Attempt::Granted(guard)) => leave(&client, guard, args.json).await,
            Ok(Attempt::Busy(holder)) => {
                waiting.refused(&client, &names, &holder, args.who.owner.as_deref(), args.json).await
            }
            Err(failure) => Err(failure),
        };
        let is_lost = done.as_ref().is_err_and(|failure| failure.exit == Exit::LOST);
        let is_brief = is_lost || waiting.outage.is_away();
        store::close(&client, &mut signals, &mut done, is_brief).await;
        done
    })
}

/// No process renews the lock after this one has ended.
fn can_be_left(client: &Client) -> Result<(), Failure> {
    if client.capability().outlives_process {
        return Ok(());
    }
    let what = format!("{} cannot keep a lock for longer than the process that took it", client.store_label());
    Err(Failure::new(Exit::UNFIT, what).with_hint("use 'leasehold run' or 'leasehold hold', or another store"))
}

/// If owner and fence cannot be printed, the lock is released: no one would know of it.
async fn leave(client: &Client, guard: GroupGuard, json: bool) -> Result<Exit, Failure> {
    if let Err(failure) = say(client, &guard, json).await {
        if let Err(error) = guard.release().await {
            output::note(&format!("the lock could not be released; it is free when its lease ends: {error}"));
        }
        return Err(failure);
    }
    match guard.leave().await {
        Ok(()) => Ok(Exit::DONE),
        Err((_, error)) => Err(error.into()),
    }
}

async fn say(client: &Client, guard: &GroupGuard, json: bool) -> Result<(), Failure> {
    if json {
        return Rows::new(true, output::row::granted(client, guard).await).print();
    }
    output::line(&format!("owner: {}\nfence: {}", guard.guards()[0].owner(), output::fences(guard)))
}
