//! What a process does under locks, on files that nothing else protects.

use std::path::Path;
use std::time::Duration;

use leasehold::{GroupGuard, Guard};
use leasehold_core::backoff::Rng;
use tokio::task::JoinSet;

use super::planted::Planted;
use super::pupil::Pupil;
use crate::ask::Ask;
use crate::case::{Checked, Failure};
use crate::ledger::Ledger;

/// The number that is counted up, in its folder.
pub(crate) const COUNTER: &str = "counter";
/// What was done under the lock, in its folder.
pub(crate) const LEDGER: &str = "ledger";
/// How long the lock of an endless worker lasts after its death if the store does not notice it, in nanoseconds.
const KEPT: &str = "keep=1000000000";
/// How many acquires a process has under way when they are dropped.
const TASKS: u64 = 8;

/// Adds one to the number in the folder, this many times: reads it, and writes it in two steps.
pub(super) async fn count(pupil: &Pupil, name: &str, folder: &str, times: u32) -> Result<String, Failure> {
    let (ledger, counter) = (Ledger::at(&Path::new(folder).join(LEDGER)), Path::new(folder).join(COUNTER));
    let lock = pupil.client.lock(name)?;
    let mut first = None;
    for _ in 0..times {
        let guard = if pupil.bug == Planted::NoLock { None } else { Some(lock.acquire().await?) };
        let fence = match pupil.bug {
            Planted::FirstFence => *first.get_or_insert_with(|| fence_of(guard.as_ref())),
            _ => fence_of(guard.as_ref()),
        };
        ledger.comes(pupil.who, fence)?;
        let count: u64 = std::fs::read_to_string(&counter)?.trim().parse().unwrap_or(0);
        std::fs::write(&counter, (count + 1).to_string())?;
        ledger.goes(pupil.who, fence)?;
        if let Some(guard) = guard {
            guard.release().await?;
        }
    }
    Ok("counted".into())
}

/// Of one that works without a lock, the time is a fence that grows as well.
fn fence_of(guard: Option<&Guard>) -> u64 {
    guard.map_or_else(|| leasehold_clock::now().as_nanos(), |guard| guard.fence().get())
}

/// Waits for its turn, works, and gives it back.
pub(super) async fn turn(pupil: &Pupil, folder: &str, ask: &[&str]) -> Result<String, Failure> {
    let ledger = Ledger::at(&Path::new(folder).join(LEDGER));
    let (lock, _) = Ask::read(&pupil.client, ask)?;
    let guard = lock.acquire().await?;
    write(pupil, &ledger, &guard)?;
    guard.release().await?;
    Ok("done".into())
}

fn write(pupil: &Pupil, ledger: &Ledger, guard: &GroupGuard) -> Checked {
    ledger.comes(pupil.who, guard.guards()[0].fence().get())?;
    ledger.goes(pupil.who, guard.guards()[0].fence().get())
}

/// Turn after turn, until it is killed.
pub(super) async fn for_ever(pupil: &Pupil, name: &str, folder: &str) -> Result<String, Failure> {
    loop {
        turn(pupil, folder, &[&format!("name={name}"), KEPT]).await?;
    }
}

/// Begins this many acquires and drops each at a random moment: before the grant, just then, or as a guard.
pub(super) async fn drops(pupil: &Pupil, name: &str, times: u64, seed: u64) -> Result<String, Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, bug) = (pupil.client.clone(), pupil.bug);
        let (name, mut rng) = (format!("{name}{}", task % 3), Rng::new(seed.wrapping_add(task)));
        tasks.spawn(async move {
            let mut granted = 0;
            for _ in 0..times / TASKS {
                let limit = Duration::from_micros(rng.below(2_000));
                let lock = client.lock(&name)?;
                if let Ok(guard) = tokio::time::timeout(limit, lock.acquire()).await {
                    granted += 1;
                    match (guard?, bug) {
                        (guard, Planted::Keeps) => std::mem::forget(guard),
                        (guard, _) => drop(guard),
                    }
                }
            }
            Ok::<u64, leasehold::Error>(granted)
        });
    }
    let mut granted = 0;
    while let Some(done) = tasks.join_next().await {
        granted += done??;
    }
    Ok(format!("granted\t{granted}"))
}
