//! Counts background tasks, so that closing can wait for the last of them.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Counts tasks. Each ends when its [`TaskGuard`] is dropped.
#[derive(Debug, Default)]
pub struct TaskTracker(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    tasks: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

/// One task that is counted.
#[derive(Debug)]
pub struct TaskGuard(Arc<Count>);

impl TaskTracker {
    /// Counts one more.
    pub fn begin(&self) -> TaskGuard {
        self.0.tasks.fetch_add(1, Ordering::AcqRel);
        TaskGuard(self.0.clone())
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.0.tasks.load(Ordering::Acquire) > 0
    }

    /// Waits until there are none.
    pub async fn done(&self) {
        poll_fn(|task| {
            if !self.any() {
                return Poll::Ready(());
            }
            let mut waiting = self.0.waiting();
            if !waiting.iter().any(|known| known.will_wake(task.waker())) {
                waiting.push(task.waker().clone());
            }
            drop(waiting);
            // The last one may have ended before this waker was known.
            if self.any() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

impl Count {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            let waiting = std::mem::take(&mut *self.0.waiting());
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn waits_for_the_last_task() {
        let (tracker, woken) = (TaskTracker::default(), Arc::<Woken>::default());
        let waker = Waker::from(woken.clone());
        let mut task = Context::from_waker(&waker);
        let (one, two) = (tracker.begin(), tracker.begin());
        let mut done = pin!(tracker.done());
        assert!(done.as_mut().poll(&mut task).is_pending());
        assert!(done.as_mut().poll(&mut task).is_pending());
        drop(one);
        assert_eq!((woken.0.load(Ordering::Acquire), tracker.any()), (0, true));
        drop(two);
        // Two wakers of one task need not be recognised as the same.
        assert!(woken.0.load(Ordering::Acquire) > 0 && !tracker.any());
        assert!(done.as_mut().poll(&mut task).is_ready());
    }
}
