//! Tasks of one process that take and release in turn: `solo`, `fleet`, `hot`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Error, Lock};
use tokio::task::JoinSet;

use super::stop::Stop;
use super::tally::Tally;

/// After an error a task waits for this long, so that a store that is down is not asked in a tight loop.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a task has to finish what it does when the time is over.
const GRACE: Duration = Duration::from_secs(5);
/// A task that never waits lets others run after so many operations.
const STRETCH: u64 = 64;

/// Runs one task a lock until it is stopped, at the latest after `span`; answers how long that was.
///
/// Where locks are contended, other tasks run while one is held: there is always a line.
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
                if !contended && (!alone || done.is_multiple_of(STRETCH)) {
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

/// Lets tasks finish. One that hangs in a store that does not answer is given up; the client gives back what it holds.
pub(crate) async fn finish(mut tasks: JoinSet<()>) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tasks.shutdown().await;
    }
}
