//! Timers on the keeper's runtime, so that the caller's runtime needs none.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_core::Moment;
use tokio::time::Sleep;

use crate::runtime::shell::Shell;

/// Becomes ready at a moment.
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    shell: Arc<Shell>,
}

impl Timer {
    pub(crate) fn new(shell: &Arc<Shell>, until: Moment) -> Self {
        let _context = shell.background.enter();
        let sleep = Box::pin(tokio::time::sleep(until.since(leasehold_clock::now())));
        Self { sleep: Some(sleep), shell: shell.clone() }
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().map_or(Poll::Ready(()), |sleep| sleep.as_mut().poll(task))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // In a forked child the runtime's mutex may be locked for ever: leave the timer where it is.
        if self.shell.is_forked() {
            std::mem::forget(self.sleep.take());
        }
    }
}

/// Polls a timer, if there is one.
pub(crate) fn poll_timer(timer: &mut Option<Timer>, task: &mut Context<'_>) -> Poll<()> {
    timer.as_mut().map_or(Poll::Pending, |timer| timer.poll(task))
}

/// The output of a future, unless `limit` comes first.
pub(crate) async fn timeout_at<F: Future>(shell: &Arc<Shell>, limit: Option<Moment>, future: F) -> Option<F::Output> {
    let mut timer = limit.map(|limit| Timer::new(shell, limit));
    let mut future = pin!(future);
    poll_fn(|task| match future.as_mut().poll(task) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => poll_timer(&mut timer, task).map(|()| None),
    })
    .await
}

pub(crate) async fn sleep_until(shell: &Arc<Shell>, end: Moment) {
    timeout_at(shell, Some(end), std::future::pending::<()>()).await;
}
