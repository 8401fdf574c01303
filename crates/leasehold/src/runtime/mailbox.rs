//! Where a waiting task is told what the table has for it.

use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use leasehold_core::table::TaskEffect;
use smallvec::SmallVec;

use crate::runtime::sync::Mutex;

/// One waiting task's mail.
#[derive(Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    mail: SmallVec<[TaskEffect; 1]>,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Puts something in. The task is to be woken by the caller, when it holds no mutex any more.
    #[must_use]
    pub(crate) fn put(&self, told: TaskEffect) -> Option<Waker> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // A newer word on how long to sleep replaces an older one that was not read yet.
        if matches!(told, TaskEffect::Sleep(_)) {
            inner.mail.retain(|mail| !matches!(mail, TaskEffect::Sleep(_)));
        }
        inner.mail.push(told);
        inner.waker.take()
    }

    /// Takes the next piece out.
    pub(crate) fn take(&self) -> Option<TaskEffect> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    pub(crate) fn poll(&self, task: &mut Context<'_>) -> Poll<TaskEffect> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.next() {
            Some(told) => Poll::Ready(told),
            None => {
                match &mut inner.waker {
                    Some(waker) => waker.clone_from(task.waker()),
                    empty => *empty = Some(task.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl Inner {
    fn next(&mut self) -> Option<TaskEffect> {
        if self.mail.is_empty() { None } else { Some(self.mail.remove(0)) }
    }
}
