//! Waiters that no hint reaches: they see on the liveness files of holders that something was released.

use std::sync::mpsc::{Receiver, channel};

use leasehold_core::Hint;
use leasehold_core::port::{BreakOptions, Busy, Notification};

use super::*;

/// Checks run every second, and a busy machine may be late. Leases are longer, so that their end is not taken for a
/// release.
const SEEN_WITHIN: Duration = Duration::from_secs(25);
const NOT_YET: Duration = Duration::from_millis(300);

fn waits(client: u64) -> Acquire {
    Acquire { kept: true, enlist: true, ..asking(client, 1, "a") }
}

fn watch(store: &File, client: u64) -> Receiver<()> {
    let (told, hears) = channel();
    let sink = Arc::new(move |_| {
        // The receiver may be gone.
        let _ = told.send(());
    });
    assert!(matches!(store.watch(ClientId([7, client]), name("a"), sink), Call::Done(Some(Ok(())))));
    hears
}

fn refused(store: &File, request: &Acquire) -> Busy {
    match now(store.acquire(request.clone())).unwrap() {
        Acquired::Busy(busy) => *busy,
        other => panic!("{other:?}"),
    }
}

/// A holder, a waiter that ignores its hint, and a waiter behind both with its hints.
fn three_at(bench: &Bench) -> (Arc<File>, Acquire, Receiver<()>) {
    let store = bench.open().unwrap();
    let held = Acquire { kept: true, ..asking(1, 1, "a") };
    take(&store, &held).unwrap();
    refused(&store, &waits(2));
    let _deaf = watch(&store, 2);
    refused(&store, &waits(3));
    let hears = watch(&store, 3);
    // It starts to follow the holder; from its next call on it is certain that it missed nothing.
    assert_eq!(refused(&store, &waits(3)).notification, Notification::WhenWatched);
    assert_eq!(refused(&store, &waits(3)).notification, Notification::Sure);
    (store, held, hears)
}

#[test]
fn a_release_notifies_the_first_waiter_before_it_returns() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let held = asking(1, 1, "a");
    take(&store, &held).unwrap();
    let hears = watch(&store, 2);
    refused(&store, &waits(2));
    give(&store, &held).unwrap();
    assert!(hears.try_recv().is_ok(), "it would find out by its own check only");
}

#[test]
fn a_release_is_seen_without_a_hint() {
    let bench = Bench::new();
    let (store, held, hears) = three_at(&bench);
    assert!(hears.recv_timeout(NOT_YET).is_err(), "it was notified of nothing");
    give(&store, &held).unwrap();
    hears.recv_timeout(SEEN_WITHIN).unwrap();
    assert!(take(&store, &waits(3)).is_some());
}

#[test]
fn a_break_is_seen_without_a_hint() {
    let bench = Bench::new();
    let (store, _, hears) = three_at(&bench);
    now(store.break_lock(name("a"), Break::Now.into())).unwrap();
    hears.recv_timeout(SEEN_WITHIN).unwrap();
    assert!(take(&store, &waits(3)).is_some());
}

/// A holder in another process hears of a break through its socket, one in this process directly.
#[test]
fn a_holder_is_notified_of_a_break() {
    for how in [Break::AtLeaseEnd, Break::Now] {
        let bench = Bench::new();
        let store = bench.open().unwrap();
        let held = Acquire { kept: true, ..asking(1, 1, "a") };
        let (told, hears) = channel();
        store.watch_held(held.request.client, Arc::new(move |hint| drop(told.send(hint))));
        take(&store, &held).unwrap();
        let here = |name: &str| now(store.break_lock(crate::tests::name(name), how.into())).unwrap();
        here("b");
        assert!(hears.recv_timeout(NOT_YET).is_err(), "that is not its name");
        here("a");
        assert_eq!(hears.recv_timeout(SEEN_WITHIN).unwrap(), Hint::Held(name("a")));
        let place = crate::registry::Registry::at(&bench.config(), &bench.boot).unwrap();
        place.send_held(held.request.client, &name("a"));
        assert_eq!(hears.recv_timeout(SEEN_WITHIN).unwrap(), Hint::Held(name("a")), "by its socket");
        let other = BreakOptions::from(how).fence(Fence::new(1));
        take(&store, &asking(2, 1, "c")).unwrap();
        now(store.break_lock(name("c"), other)).unwrap();
        assert!(hears.recv_timeout(NOT_YET).is_err());
    }
}

/// A missing file is never stamped: its followers are notified, and from then on they ask the store itself.
#[test]
fn a_folder_that_is_removed_is_seen_by_those_who_wait() {
    let bench = Bench::new();
    let (store, held, hears) = three_at(&bench);
    std::fs::remove_dir_all(bench.folder.path().join("locks.db.d")).unwrap();
    hears.recv_timeout(SEEN_WITHIN).unwrap();
    assert_eq!(refused(&store, &waits(3)).notification, Notification::WhenWatched, "no hint will reach it");
    give(&store, &held).unwrap();
    assert!(take(&store, &waits(3)).is_some());
}

/// A release after the store was called, but before the answer was processed.
#[test]
fn a_release_that_crosses_the_asking_is_seen() {
    let bench = Bench::new();
    let (store, held, hears) = three_at(&bench);
    let place = crate::registry::Registry::at(&bench.config(), &bench.boot).unwrap();
    let (client, holder) = (waits(3).request.client, held.request.client);
    let stamps = place.stamps(client, &name("a"));
    give(&store, &held).unwrap();
    assert!(place.follow(client, &name("a"), &[holder], stamps));
    hears.recv_timeout(SEEN_WITHIN).unwrap();
}

#[test]
fn a_waiter_behind_a_lease_that_is_not_kept_may_miss_its_end() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    take(&store, &asking(1, 1, "a")).unwrap();
    refused(&store, &waits(2));
    let _hears = watch(&store, 2);
    for _ in 0..3 {
        assert_eq!(refused(&store, &waits(2)).notification, Notification::WhenWatched);
    }
}

fn shared(client: u64) -> Acquire {
    Acquire { owner: StoreOwner::Shared("x".into()), kept: true, ..asking(client, 1, "a") }
}

/// A holder with a shared owner, and two waiters, the first of which ignores its hint.
fn three_behind_shared(bench: &Bench) -> (Arc<File>, Acquire, Receiver<()>) {
    let store = bench.open().unwrap();
    let held = shared(1);
    take(&store, &held).unwrap();
    refused(&store, &waits(2));
    let _deaf = watch(&store, 2);
    refused(&store, &waits(3));
    let hears = watch(&store, 3);
    refused(&store, &waits(3));
    assert_eq!(refused(&store, &waits(3)).notification, Notification::Sure);
    (store, held, hears)
}

/// Its owner took it again, to outlive its process: nothing of it is kept from then on.
#[test]
fn a_release_of_a_lock_that_is_not_kept_any_more_is_seen() {
    let bench = Bench::new();
    let (store, held, hears) = three_behind_shared(&bench);
    let fixed = Acquire { kept: false, ..shared(4) };
    take(&store, &fixed).unwrap();
    give(&store, &fixed).unwrap();
    give(&store, &held).unwrap();
    hears.recv_timeout(SEEN_WITHIN).unwrap();
}

/// A client that joined the holder is the only one left, and releases the lock.
#[test]
fn a_release_by_a_client_that_joined_the_holder_is_seen() {
    let bench = Bench::new();
    let (store, held, hears) = three_behind_shared(&bench);
    take(&store, &shared(4)).unwrap();
    give(&store, &held).unwrap();
    give(&store, &shared(4)).unwrap();
    hears.recv_timeout(SEEN_WITHIN).unwrap();
}

/// A client that joined the holder is the only one left, and its process ends.
#[test]
fn the_end_of_a_client_that_joined_the_holder_is_seen() {
    let bench = Bench::new();
    let (store, held, hears) = three_behind_shared(&bench);
    take(&store, &shared(4)).unwrap();
    give(&store, &held).unwrap();
    let place = crate::registry::Registry::at(&bench.config(), &bench.boot).unwrap();
    place.forget(shared(4).request.client);
    hears.recv_timeout(SEEN_WITHIN).unwrap();
}

/// The machine slept for longer than waitlist entries last, and the waiters' clock stood still meanwhile.
#[test]
fn a_release_is_seen_by_waiters_that_left_the_waitlist() {
    let bench = Bench::new();
    let (store, held, hears) = three_at(&bench);
    rusqlite::Connection::open(bench.path()).unwrap().execute("UPDATE waiters SET until = 1", []).unwrap();
    give(&store, &held).unwrap();
    hears.recv_timeout(SEEN_WITHIN).unwrap();
}
