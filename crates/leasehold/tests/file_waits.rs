//! Those who wait behind a kept lock of a file ask it every ten seconds only: what they must see all the same.
#![cfg(feature = "file")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::time::{Duration, Instant};

use leasehold::*;

/// By then one who waits follows the holder, and is sure to hear.
const SURE: Duration = Duration::from_millis(2_500);
/// About a second, and room for a busy machine; to ask again takes nine or ten.
const ABOUT_A_SECOND: Duration = Duration::from_secs(6);

struct Bench {
    _folder: tempfile::TempDir,
    url: String,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file:{}/locks.db", folder.path().display());
        Self { _folder: folder, url }
    }

    async fn client(&self) -> Client {
        Client::connect(&self.url).await.unwrap()
    }
}

/// One who waits, and says when it has the lock.
fn waits(lock: impl Into<GroupLock>) -> tokio::task::JoinHandle<(Instant, GroupGuard)> {
    let lock = lock.into();
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn try_acquire_of_several_names_does_not_wait_behind_a_waiter_of_the_same_client() {
    let bench = Bench::new();
    let (one, two) = (bench.client().await, bench.client().await);
    let _held = one.lock("a").expect("a name").acquire().await.unwrap();
    let waiter = waits(two.lock("a").expect("a name"));
    tokio::time::sleep(SURE).await;
    // It is answered while the other still waits: whoever waits behind it is answered when it goes.
    assert!(two.lock_all(["a", "b"]).expect("a name").try_acquire().await.unwrap().is_busy());
    assert!(!waiter.is_finished());
    waiter.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_made_to_linger_later_is_had_when_it_has_lingered() {
    let bench = Bench::new();
    let (one, two) = (bench.client().await, bench.client().await);
    let owner = Owner::explicit("x").unwrap();
    let first = one.lock("a").expect("a name").owned_by(&owner).acquire().await.unwrap();
    let waiter = waits(two.lock("a").expect("a name"));
    tokio::time::sleep(SURE).await;
    let second =
        one.lock("a").expect("a name").owned_by(&owner).at_least(Duration::from_millis(300)).acquire().await.unwrap();
    let free = Instant::now() + Duration::from_millis(300);
    second.release().await.unwrap();
    first.release().await.unwrap();
    let (had, _) = waiter.await.unwrap();
    let late = had - free;
    assert!(late < ABOUT_A_SECOND, "it came {late:?} after the lock was free");
}

/// The owner's fixed hold ends sooner than its kept one would have.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_shorter_than_it_was_is_seen_to_end() {
    let bench = Bench::new();
    let (one, other, two) = (bench.client().await, bench.client().await, bench.client().await);
    let owner = Owner::explicit("x").unwrap();
    let kept = one.lock("a").expect("a name").owned_by(&owner).acquire().await.unwrap();
    let waiter = waits(two.lock("a").expect("a name"));
    tokio::time::sleep(SURE).await;
    let fixed =
        other.lock("a").expect("a name").owned_by(&owner).lease(Duration::from_secs(1)).acquire().await.unwrap();
    let free = Instant::now() + Duration::from_secs(1);
    kept.release().await.unwrap();
    std::mem::forget(fixed);
    let (had, _) = waiter.await.unwrap();
    let late = had - free;
    assert!(late < ABOUT_A_SECOND, "it came {late:?} after the lease");
}

/// One task waits for a name and gives up; a group that waits for it too goes on with what that one knew.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_follows_one_that_was_sure_sees_a_release() {
    let bench = Bench::new();
    let (one, two) = (bench.client().await, bench.client().await);
    let deaf = bench.client().await;
    let held = one.lock("a").expect("a name").acquire().await.unwrap();
    // The first in line, whose task never acts on its hint.
    let lock = deaf.lock("a").expect("a name");
    let mut first = Box::pin(lock.acquire());
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut first).await.is_err());
    let waiter = waits(two.lock("a").expect("a name"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let group = waits(two.lock_all(["a", "b"]).expect("a name"));
    tokio::time::sleep(SURE).await;
    waiter.abort();
    // It asks for itself once.
    tokio::time::sleep(Duration::from_secs(11)).await;
    held.release().await.unwrap();
    let free = Instant::now();
    let (had, _) = group.await.unwrap();
    let late = had - free;
    drop(first);
    assert!(late < ABOUT_A_SECOND, "it came {late:?} after the release");
}
