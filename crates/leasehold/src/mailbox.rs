//! Where a waiting task is told what the table has for it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_core::table::Told;

/// One waiting task's mail.
#[derive(Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    mail: VecDeque<Told>,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Puts something in and wakes the task.
    pub(crate) fn put(&self, told: Told) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // A newer word on how long to sleep replaces an older one that was not read yet.
        if matches!(told, Told::Sleep(_)) {
            inner.mail.retain(|mail| !matches!(mail, Told::Sleep(_)));
        }
        inner.mail.push_back(told);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the next piece out.
    pub(crate) fn take(&self) -> Option<Told> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).mail.pop_front()
    }

    pub(crate) fn poll(&self, task: &mut Context<'_>) -> Poll<Told> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.mail.pop_front() {
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
