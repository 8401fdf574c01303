//! Errands: what the background has under way, counted, so that closing can wait for the last of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts errands.
#[derive(Default)]
pub(crate) struct TaskTracker(Arc<Count>);

#[derive(Default)]
struct Count {
    under_way: AtomicUsize,
    done: Notify,
}

/// One errand; it is done when this is dropped.
pub(crate) struct TaskGuard(Arc<Count>);

impl TaskTracker {
    /// One more.
    pub(crate) fn begin(&self) -> TaskGuard {
        self.0.under_way.fetch_add(1, Ordering::AcqRel);
        TaskGuard(self.0.clone())
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.0.under_way.load(Ordering::Acquire) > 0
    }

    /// Waits until there are none.
    pub(crate) async fn done(&self) {
        loop {
            let mut done = std::pin::pin!(self.0.done.notified());
            done.as_mut().enable();
            if !self.any() {
                return;
            }
            done.await;
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_waiters();
        }
    }
}
