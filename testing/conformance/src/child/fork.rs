//! Forks while a lock is held: in the child every call fails and every drop does nothing.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, Guard};

use rustix::event::{PollFd, PollFlags, poll};

use crate::case::{Checked, Failure};

/// Takes a lock, forks, and examines it from both sides.
pub(super) fn fork(url: &str) -> Checked {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Client::connect(url))?;
    let guard = runtime.block_on(client.lock("a")?.acquire())?;
    let lock = client.lock("a")?;
    let mut waiting = Box::pin(lock.acquire());
    runtime.block_on(async { tokio::time::timeout(Duration::from_millis(5), &mut waiting).await }).err();
    let Some(child) = forked() else {
        let wrong = in_the_child(&client, &guard);
        drop((waiting, guard, client));
        ended(wrong.err().unwrap_or(0));
    };
    let code = code_of(child);
    if code != 0 {
        return Err(format!("in the child of the fork, check {code} failed").into());
    }
    assert!(guard.is_valid(), "the child took the lock away");
    assert_eq!(runtime.block_on(client.inspect("a"))?.holders[0].fence, Some(guard.fence()));
    runtime.block_on(guard.release())?;
    runtime.block_on(waiting)?.is_valid().then_some(()).ok_or("a waiter was harmed")?;
    Ok(())
}

/// Forks beside a held lock. The child examines it and then ends, or stays until the test is done with this process.
pub(super) fn beside(client: &Client, guard: &Guard, stays: bool) -> Result<String, Failure> {
    let Some(child) = forked() else {
        let wrong = in_the_child(client, guard);
        while stays && wrong.is_ok() && !is_closed() {}
        ended(wrong.err().unwrap_or(0));
    };
    if stays {
        return Ok("forked".into());
    }
    match code_of(child) {
        0 => Ok("forked".into()),
        code => Err(format!("in the child of the fork, check {code} failed").into()),
    }
}

/// Waits until the other end of the standard input is closed, without reading from it.
fn is_closed() -> bool {
    let input = std::io::stdin();
    let mut asked = [PollFd::new(&input, PollFlags::empty())];
    poll(&mut asked, None).is_ok() && !asked[0].revents().is_empty()
}

/// The number of the first check that fails.
fn in_the_child(client: &Client, guard: &Guard) -> Result<(), i32> {
    is_refused(client.lock("b").expect("a name").acquire(), 1)?;
    is_refused(client.lock("b").expect("a name").try_acquire(), 2)?;
    is_refused(client.lock("a").expect("a name").owned_by(guard.owner()).acquire(), 3)?;
    is_refused(client.inspect("a"), 4)?;
    is_refused(client.list(""), 5)?;
    is_refused(client.close(), 6)?;
    is_refused(guard.extend(Duration::from_secs(1)), 7)?;
    if guard.is_valid() || guard.holds() != 0 { Err(8) } else { Ok(()) }
}

fn is_refused<T>(call: impl Future<Output = Result<T, Error>>, check: i32) -> Result<(), i32> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) if error.kind() == ErrorKind::Forked => Ok(()),
        _ => Err(check),
    }
}

/// Forks; none in the child.
#[allow(unsafe_code, reason = "there is no safe fork; docs/decisions/0003-fork.md")]
fn forked() -> Option<i32> {
    // SAFETY: the child only calls what must refuse to do anything, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "it could not fork");
    (child > 0).then_some(child)
}

#[allow(unsafe_code, reason = "there is no safe fork; docs/decisions/0003-fork.md")]
fn ended(code: i32) -> ! {
    // SAFETY: ends the child of a fork at once, without running what belongs to its parent.
    unsafe { libc::_exit(code) }
}

#[allow(unsafe_code, reason = "there is no safe fork; docs/decisions/0003-fork.md")]
fn code_of(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process, and writes to a number that is alive.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    if waited == child && libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
}
