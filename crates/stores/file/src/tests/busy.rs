//! Another process is in the middle of a write: calls do not block their thread, and they end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use leasehold_core::{ErrorKind, Outcome};

use super::*;

fn wait<T: Unpin>(mut call: Call<T>) -> T {
    loop {
        match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_long_write_of_another_holds_up_no_thread_and_the_call_ends() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let one = store.acquire(asking(1, 1, "a"));
    assert!(matches!(one, Call::Pending(_)), "the caller's thread was blocked until the answer came");
    let error = wait(one).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::NotApplied), "{error}");
    assert!(error.is_retryable() && error.hint().is_some());
    let two = store.acquire(asking(1, 2, "b"));
    other.execute_batch("COMMIT").unwrap();
    assert!(matches!(wait(two).unwrap().result, Acquired::Granted(_)), "it was done as soon as that was possible");
    assert!(take(&store, &asking(1, 3, "a")).is_some(), "and the next one at once");
}

#[test]
fn a_short_write_of_another_is_waited_for() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let path = bench.path();
    let (begun, written) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        begun.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        other.execute_batch("COMMIT").unwrap();
    });
    written.recv().unwrap();
    assert!(matches!(wait(store.acquire(asking(1, 1, "a"))).unwrap().result, Acquired::Granted(_)));
    other.join().unwrap();
}

/// A hundred waiting processes make a hundred calls per second.
#[test]
fn a_waiter_that_asks_again_writes_rarely_and_blocks_no_one() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    take(&store, &asking(1, 1, "a")).unwrap();
    let waits = Acquire { enlist: true, ..asking(2, 1, "a") };
    assert!(matches!(store.watch(waits.request.client, name("a"), Arc::new(|_| ())), Call::Done(Some(Ok(())))));
    assert!(take(&store, &waits).is_none());
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    let number = |sql: &str| other.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let written = || number("PRAGMA data_version");
    let listed_until = || number("SELECT until FROM waiters");
    let (before, until) = (written(), listed_until());
    assert!(take(&store, &waits).is_none());
    assert_eq!(written(), before, "it is on the list, and wrote all the same");
    other.execute("UPDATE waiters SET until = until - 9000000000", []).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(take(&store, &waits).is_none(), "it is answered at once, though another writes");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(listed_until() < until);
    assert!(take(&store, &waits).is_none());
    assert!(listed_until() >= until, "it stays on the list");
}
