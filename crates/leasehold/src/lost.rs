//! The lost signal: tells a guard's holder that it may no longer act.

use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use leasehold_core::table::Loss;
use tokio::sync::Notify;

/// How a guard ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Lost(Loss),
    Released,
}

/// Shared by the shell, which ends it, and by whoever watches a guard.
#[derive(Default, Debug)]
pub(crate) struct LostCell {
    end: OnceLock<End>,
    ended: Notify,
}

impl LostCell {
    /// [`LostCell::wake`] is to follow, when the caller holds no mutex any more.
    pub(crate) fn lose(&self, loss: Loss) {
        let _ = self.end.set(End::Lost(loss));
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.end.get(), Some(End::Lost(_)))
    }

    /// [`LostCell::wake`] is to follow, when the caller holds no mutex any more.
    pub(crate) fn release(&self) {
        let _ = self.end.set(End::Released);
    }

    /// Wakes whoever watches. An executor may poll the task before this returns.
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
    /// Waits until the lock is lost, and says why; or until the guard is released, and says nothing.
    ///
    /// # Guarantees
    ///
    /// Where the store promises `lost_before`, this resolves before another owner can hold the lock: from a timer on a thread of
    /// its own, also while a renewal hangs or the caller's runtime was blocked. What the *caller* does with it, and when it gets
    /// to run, is the caller's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; call it again.
    pub async fn wait(&self) -> Option<Loss> {
        self.wait_for_one().await.map(|(_, loss)| loss)
    }

    /// The same, with which of several it was.
    pub(crate) async fn wait_for_one(&self) -> Option<(usize, Loss)> {
        let waits = self.cells.iter().enumerate();
        let mut waits: Vec<_> = waits.map(|(at, cell)| (at, Box::pin(Self::wait_for(cell)))).collect();
        poll_fn(|task| {
            let mut lost = None;
            // What has ended is not polled again: the names of a group go back one after another.
            waits.retain_mut(|(at, wait)| match wait.as_mut().poll(task) {
                Poll::Ready(End::Lost(loss)) => {
                    lost = Some((*at, loss));
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
                return *end;
            }
            ended.await;
        }
    }

    /// Whether the lock is known to be lost. For asking whether one may act, [`Guard::is_valid`](crate::Guard::is_valid) is the
    /// better question: it reads the clock.
    pub fn is_lost(&self) -> bool {
        self.cells.iter().any(|cell| cell.is_lost())
    }
}
