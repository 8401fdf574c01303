//! Holders and waiters in processes of their own, which are killed, stopped, continued and forked.
//!
//! Each check is also tried on something that goes wrong: there it must object.

pub(super) mod counter_file;
pub(super) mod dropped_acquires;
pub(super) mod forked;
pub(super) mod killed;
pub(super) mod observers;
pub(super) mod restless;
pub(super) mod stopped;

use std::time::Duration;

use leasehold::Client;

use crate::answer::Answer;
use crate::case::{Checked, Failure, Need};
use crate::deployment::Hook;
use crate::remote::{Pending, Remote};
use crate::world::{eventually, soon};

/// Every case here needs it.
const PROCESSES: Need = Need::Hook(Hook::Processes);
/// How long after the end of its lease a lock may still be held, as far as waiters know: about a second, and what a busy machine adds.
/// With a lease of seconds it is less than the lease that is the default.
const AFTER_LEASE: Duration = Duration::from_secs(20);
/// For how long is waited for what must not happen.
const NEVER: Duration = Duration::from_millis(100);
/// Longer than a write to the store takes.
const WRITE: Duration = Duration::from_millis(50);
/// How often something is tried that may come by chance.
const TRIALS: usize = 7;

/// Waits until a process that takes this lock is a sleeping waiter.
async fn asleep(process: &mut Remote, name: &str) -> Checked {
    process.ask(&["asleep", name]).await?.must_be(&["asleep"])
}

/// Waits until a process that takes this lock is a sleeping waiter; from then on only a hint gets it the lock. How soon
/// a hint comes is for a bench to say.
async fn asleep_until_told(process: &mut Remote, name: &str) -> Checked {
    asleep(process, name).await?;
    process.ask(&["only when told"]).await?.must_be(&["only when told"])
}

/// Stops a process, but not in the middle of a write: that would block all others at a store that is a file.
async fn stop_between_writes(process: &Remote, client: &Client) -> Checked {
    eventually(async || {
        if process.stop().is_err() {
            return false;
        }
        match client.lock("probe").expect("a name").try_acquire().await {
            Ok(probe) => probe.granted().is_some(),
            Err(_) => {
                let failed = process.go_on().is_err();
                // No event shows when it is done with it.
                tokio::time::sleep(WRITE).await;
                failed
            }
        }
    })
    .await
}

/// An answer that must come.
async fn answered(pending: Pending) -> Result<Answer, Failure> {
    soon("an answer", pending).await?
}

/// That something took no longer than this.
fn at_most(what: &str, took: Duration, limit: Duration) -> Checked {
    if took <= limit { Ok(()) } else { Err(format!("{what} took {took:?}, more than {limit:?}").into()) }
}

/// That a check objects, in these words.
fn objects(checked: Checked, word: &str) -> Checked {
    match checked {
        Ok(()) => Err(format!("the check saw nothing wrong, where it should say {word:?}").into()),
        Err(error) if error.to_string().contains(word) => Ok(()),
        Err(error) => Err(format!("the check says {error}, not {word:?}").into()),
    }
}
