//! The lost signal: tells a guard's holder that it may no longer act.

use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use leasehold_core::table::{self, Loss};
use leasehold_core::{Error, Moment};
use tokio::sync::Notify;

/// How a lock was lost, and what led to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LossReport {
    /// Why.
    pub loss: Loss,
    /// When.
    pub at: SystemTime,
    /// How long it had been held.
    pub held: Duration,
    /// If an operator took the lock away ([`Loss::Broken`]): for how long nobody else could get it, which is time to end the work in
    /// order. Otherwise zero.
    pub left: Duration,
    /// The last renewals that failed, at most three, the newest last. None if the last renewal succeeded.
    pub renewals: Vec<FailedRenewal>,
}

/// A renewal that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedRenewal {
    /// When that was known.
    pub at: SystemTime,
    /// How long after it was sent.
    pub took: Duration,
    /// Why.
    pub error: Error,
}

impl LossReport {
    pub(crate) fn of(report: &table::LossReport) -> Self {
        let now = (leasehold_clock::now(), SystemTime::now());
        let table::LossReport { loss, at, held, left, renewals, .. } = report;
        let renewals = renewals.iter().map(|failed| FailedRenewal {
            at: system_time(now, failed.at),
            took: failed.took,
            error: (*failed.error).clone(),
        });
        Self { loss: *loss, at: system_time(now, *at), held: *held, left: *left, renewals: renewals.collect() }
    }
}

/// A past moment, on the wall clock.
fn system_time(now: (Moment, SystemTime), at: Moment) -> SystemTime {
    now.1.checked_sub(now.0.since(at)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// How a guard ended.
#[derive(Clone, Debug)]
enum End {
    Lost(Loss, Option<Arc<table::LossReport>>),
    Released,
}

/// Shared by the shell, which ends it, and the signals of a guard.
#[derive(Default, Debug)]
pub(crate) struct LostCell {
    end: OnceLock<End>,
    ended: Notify,
}

impl LostCell {
    /// [`LostCell::wake`] must follow, once the caller holds no mutex.
    pub(crate) fn lose(&self, report: &Arc<table::LossReport>) {
        let _ = self.end.set(End::Lost(report.loss, Some(report.clone())));
    }

    /// A cell that was lost before there was a signal.
    pub(crate) fn lost(report: Option<&Arc<table::LossReport>>) -> Self {
        let loss = report.map_or(Loss::TimeEnded, |report| report.loss);
        Self { end: OnceLock::from(End::Lost(loss, report.cloned())), ended: Notify::new() }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.end.get(), Some(End::Lost(..)))
    }

    fn report(&self) -> Option<&table::LossReport> {
        match self.end.get() {
            Some(End::Lost(_, report)) => report.as_deref(),
            _ => None,
        }
    }

    /// [`LostCell::wake`] must follow, once the caller holds no mutex.
    pub(crate) fn release(&self) {
        let _ = self.end.set(End::Released);
    }

    /// Wakes the tasks that wait for it. An executor may poll a task before this returns.
    pub(crate) fn wake(&self) {
        self.ended.notify_waiters();
    }
}

/// Tells when a guard's lock is lost. Cheap to clone, and independent of the guard.
#[derive(Clone, Debug)]
pub struct LostSignal {
    pub(crate) cells: Arc<[Arc<LostCell>]>,
}

impl LostSignal {
    /// Waits until the lock is lost, and returns why: of several names that are lost by then, the gravest ([`Loss::gravity`]). Returns
    /// none if the guard is released.
    ///
    /// # Guarantees
    ///
    /// If the store promises `lost_before`, this resolves before another owner can hold the lock: from a timer on a thread of its
    /// own, also while a renewal hangs or the caller's runtime is blocked. When the calling task gets to run is up to its runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; call it again.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock("reports")?.acquire().await?;
    /// let signal = guard.lost_signal();
    /// let watcher = tokio::spawn(async move { signal.wait().await });
    /// guard.release().await?;
    /// assert_eq!(watcher.await.expect("no panic"), None);
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self) -> Option<Loss> {
        self.wait_for_one().await.map(|(_, loss)| loss)
    }

    /// The same, with the index of the lost one of several.
    pub(crate) async fn wait_for_one(&self) -> Option<(usize, Loss)> {
        let waits = self.cells.iter().enumerate();
        let mut waits: Vec<_> = waits.map(|(at, cell)| (at, Box::pin(Self::wait_for(cell)))).collect();
        poll_fn(|task| {
            let mut lost: Option<(usize, Loss)> = None;
            // What has ended is not polled again: the names of a group go back one after another.
            waits.retain_mut(|(at, wait)| match wait.as_mut().poll(task) {
                Poll::Ready(End::Lost(loss, _)) => {
                    if lost.is_none_or(|(_, before)| before.gravity() < loss.gravity()) {
                        lost = Some((*at, loss));
                    }
                    false
                }
                Poll::Ready(End::Released) => false,
                Poll::Pending => true,
            });
            if lost.is_some() || waits.is_empty() { Poll::Ready(lost) } else { Poll::Pending }
        })
        .await
    }

    async fn wait_for(cell: &LostCell) -> End {
        loop {
            let ended = cell.ended.notified();
            if let Some(end) = cell.end.get() {
                return end.clone();
            }
            ended.await;
        }
    }

    /// How the lock was lost: when, after how long, and which renewals failed before. None while it is not known to be lost. Of
    /// several names, the report of the first lost one in order.
    pub fn report(&self) -> Option<LossReport> {
        self.cells.iter().find_map(|cell| cell.report()).map(LossReport::of)
    }

    /// Whether the lock is known to be lost. To ask whether the holder may act, use [`Guard::is_valid`](crate::Guard::is_valid), which
    /// reads the clock.
    pub fn is_lost(&self) -> bool {
        self.cells.iter().any(|cell| cell.is_lost())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn lost(loss: Loss) -> Arc<LostCell> {
        Arc::new(LostCell { end: OnceLock::from(End::Lost(loss, None)), ended: Notify::new() })
    }

    #[tokio::test]
    async fn of_several_that_are_lost_the_gravest_is_told() {
        use Loss::{Broken, Closed, Gone, TimeEnded};
        for (losses, gravest) in [
            (&[Gone, Broken, TimeEnded][..], (0, Gone)),
            (&[TimeEnded, Gone, Broken], (1, Gone)),
            (&[TimeEnded, Broken, TimeEnded], (1, Broken)),
            (&[Closed, TimeEnded], (1, TimeEnded)),
            (&[Broken, Broken], (0, Broken)),
        ] {
            let signal = LostSignal { cells: losses.iter().map(|loss| lost(*loss)).collect() };
            assert_eq!(signal.wait_for_one().await, Some(gravest), "{losses:?}");
            assert_eq!(signal.wait().await, Some(gravest.1), "{losses:?}");
        }
    }
}
