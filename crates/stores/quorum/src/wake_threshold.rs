//! Wakes a task that waits for several servers only once enough of them have progressed: before that nothing is
//! certain, and waking it for every answer costs more than the answer.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Number of calls that must progress before the task is woken.
///
/// This misses no verdict: a verdict needs that many answers, and every server that answers has made its call progress
/// at least once. Calls must be polled [`unconstrained`]: a runtime that postpones a task wakes it once, however many
/// of its calls were blocked.
#[derive(Default)]
pub(crate) struct WakeThreshold(Arc<Count>);

#[derive(Default)]
struct Count {
    left: AtomicUsize,
    task: Mutex<Option<Waker>>,
}

/// Polls a verdict's calls to the end, without the runtime's budget.
pub(crate) fn unconstrained<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Unpin) -> impl Future<Output = T> {
    tokio::task::unconstrained(poll_fn(poll))
}

impl WakeThreshold {
    /// The waker for calls of which this many must progress before there is anything to do.
    pub(crate) fn of(&self, calls: usize, task: &Waker) -> Waker {
        let mut known = self.0.task.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| !known.will_wake(task)) {
            *known = Some(task.clone());
        }
        drop(known);
        self.0.left.store(calls, Ordering::Release);
        Waker::from(self.0.clone())
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let less = |left: usize| Some(left.saturating_sub(1));
        let before = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or_default();
        if before > 1 {
            return;
        }
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn wakes_for_the_last_that_is_needed_and_for_each_after_it() {
        let (woken, quota) = (Arc::<Woken>::default(), WakeThreshold::default());
        let waker = quota.of(3, &Waker::from(woken.clone()));
        let mut seen = Vec::new();
        for _ in 0..5 {
            waker.wake_by_ref();
            seen.push(woken.0.load(Ordering::Acquire));
        }
        assert_eq!(seen, [0, 0, 1, 2, 3]);
        let waker = quota.of(1, &Waker::from(woken.clone()));
        waker.wake();
        assert_eq!(woken.0.load(Ordering::Acquire), 4);
    }
}
