//! What may cross threads: every future and type of the async client. That the blocking guard may not is a doc test of its own.

use std::time::Duration;

use leasehold::{
    Attempt, Break, Client, ClientBuilder, Error, GroupGuard, GroupLock, Guard, Holder, Lock, LostMember, LostSignal,
    Owner, Status, blocking, lock_all,
};

fn is_send<T: Send>(value: T) -> T {
    value
}

fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn types_cross_threads() {
    is_send_and_sync::<Client>();
    is_send_and_sync::<Lock>();
    is_send_and_sync::<Guard>();
    is_send_and_sync::<GroupLock>();
    is_send_and_sync::<GroupGuard>();
    is_send_and_sync::<LostMember>();
    is_send_and_sync::<leasehold::Detached>();
    is_send_and_sync::<Attempt>();
    is_send_and_sync::<LostSignal>();
    is_send_and_sync::<Owner>();
    is_send_and_sync::<Holder>();
    is_send_and_sync::<Status>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<blocking::Client>();
    is_send_and_sync::<blocking::Lock>();
    fn sent<T: Send>() {}
    sent::<ClientBuilder>();
}

#[tokio::test]
async fn futures_cross_threads() -> Result<(), Error> {
    let client = is_send(Client::connect("memory:send")).await?;
    let lock = client.lock("a")?;
    let guard = is_send(lock.acquire()).await?;
    assert!(is_send(lock.try_acquire()).await?.is_busy());
    assert!(is_send(lock.acquire_within(Duration::from_millis(1))).await?.is_busy());
    drop(is_send(guard.lost()));
    drop(is_send(guard.lost_signal().wait()));
    assert_eq!(is_send(guard.protect(async { 1 })).await?, 1);
    is_send(guard.extend(Duration::from_secs(60))).await?;
    assert!(is_send(client.inspect("a")).await?.is_held());
    assert_eq!(is_send(client.list("")).await?.len(), 1);
    assert!(!is_send(client.break_lock("b", Break::Now)).await?.is_held());
    let both = lock_all([client.lock("b")?, client.lock("c")?.lease(Duration::from_secs(9))]);
    let held = is_send(both.acquire()).await?;
    assert!(is_send(both.try_acquire()).await?.is_busy());
    assert!(is_send(both.acquire_within(Duration::from_millis(1))).await?.is_busy());
    drop(is_send(held.lost()));
    assert_eq!(is_send(held.protect(async { 1 })).await?, 1);
    is_send(held.extend(Duration::from_secs(60))).await?;
    is_send(held.release()).await?;
    assert!(is_send(client.lock("d")?.run(async |guard: &Guard| Ok::<_, Error>(guard.fence()))).await?.get() > 0);
    assert!(is_send(both.run(async |guard: &GroupGuard| Ok::<_, Error>(guard.fence("b")))).await?.is_some());
    is_send(guard.release()).await?;
    is_send(client.close()).await
}
