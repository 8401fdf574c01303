//! `solo`, `fleet`, `hot`: tasks of one process that acquire and release in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Error, Lock};
use tokio::task::JoinSet;

use super::stop::Stop;
use super::tally::Tally;

/// Pause of a task after an error, so that a store that is down is not called in a tight loop.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a task has to finish when the time is over.
const GRACE: Duration = Duration::from_secs(5);
/// Number of operations after which a task that never waits yields to others.
const OPS_BETWEEN_YIELDS: u64 = 64;

/// Runs one task per lock until it is stopped, at the latest after `span`. Returns how long that was.
///
/// If locks are contended, other tasks run while one is held, so that there are always waiters.
pub(crate) async fn run(
    locks: Vec<Lock>,
    contended: bool,
    tally: &Arc<Tally>,
    stop: &Arc<Stop>,
    span: Duration,
) -> Duration {
    let alone = locks.len() == 1;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, lock) in locks.into_iter().enumerate() {
        let (tally, stop) = (tally.clone(), stop.clone());
        tasks.spawn(async move {
            let mut done = 0_u64;
            while !stop.is_set() {
                match take_and_release(&lock, contended).await {
                    Ok(took) => tally.op(number, took),
                    Err(error) => pause_after(&tally, error).await,
                }
                done += 1;
                if !contended && (!alone || done.is_multiple_of(OPS_BETWEEN_YIELDS)) {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    stop.after(span).await;
    finish(tasks).await;
    began.elapsed()
}

async fn take_and_release(lock: &Lock, contended: bool) -> Result<Duration, Error> {
    let began = Instant::now();
    let guard = lock.acquire().await?;
    if contended {
        tokio::task::yield_now().await;
    }
    guard.release().await?;
    Ok(began.elapsed())
}

/// Counts an error.
pub(crate) async fn pause_after(tally: &Tally, error: Error) {
    tally.error(error);
    tokio::time::sleep(PAUSE).await;
}

/// Lets tasks finish. One that hangs in a silent store is abandoned; the client releases what it holds.
pub(crate) async fn finish(mut tasks: JoinSet<()>) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tasks.shutdown().await;
    }
}
