//! Where the table's effects wait for a sleeping task.

use std::task::{Context, Poll, Waker};

use leasehold_core::table::TaskEffect;
use smallvec::SmallVec;

/// The mailbox of one waiting task.
#[derive(Default)]
pub(crate) struct Mailbox {
    effects: SmallVec<[TaskEffect; 1]>,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Puts an effect in. The caller wakes the task once it holds no mutex.
    #[must_use]
    pub(crate) fn put(&mut self, effect: TaskEffect) -> Option<Waker> {
        // A newer time to sleep until replaces an older one that was not read yet.
        if matches!(effect, TaskEffect::Sleep(_)) {
            self.effects.retain(|effect| !matches!(effect, TaskEffect::Sleep(_)));
        }
        self.effects.push(effect);
        self.waker.take()
    }

    /// Takes the oldest effect out.
    pub(crate) fn take(&mut self) -> Option<TaskEffect> {
        if self.effects.is_empty() { None } else { Some(self.effects.remove(0)) }
    }

    pub(crate) fn poll(&mut self, task: &mut Context<'_>) -> Poll<TaskEffect> {
        match self.take() {
            Some(effect) => Poll::Ready(effect),
            None => {
                match &mut self.waker {
                    Some(waker) => waker.clone_from(task.waker()),
                    empty => *empty = Some(task.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}
