//! Dropping any future or guard at any moment leaks nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, GroupLock};
use leasehold_core::backoff::Rng;
use tokio::task::JoinSet;

use crate::case::{Checked, Failure, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async an_acquire_at_every_await;
    async a_waiting_acquire_at_every_await;
    async a_queued_acquire_at_every_await;
    async a_group_at_every_await needs [Need::SeveralNames];
    async a_release_at_every_await;
    async an_extension_at_every_await;
    async connecting_at_every_await;
    async a_thousand_waiters;
    async a_hundred_thousand_acquires;
}

/// How many polls a call takes before and after it is applied.
const POLLS: u32 = 2;
/// Number of polls for an acquire that is not to be granted. On a busy machine a granted one may need more.
const MANY: u32 = 64;

/// Number of polls without pauses. After them, each pause lets an answer cross a network on a busy machine.
const AT_ONCE: u32 = 16;

/// A client whose every call needs several polls.
async fn slow_client(world: &World) -> Result<(Client, Chaos), Failure> {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    for kind in [Kind::Acquire, Kind::Release, Kind::Renew, Kind::Watch] {
        chaos.every(kind, Fault::Polls(POLLS));
    }
    Ok((client, chaos))
}

/// Polls a future this many times, woken or not; then drops it.
async fn polled<T>(times: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for at in 0..times {
        let polled = poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await;
        if let Poll::Ready(value) = polled {
            return Some(value);
        }
        if at < AT_ONCE {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    None
}

/// Drops an acquire after 0, 1, 2, … polls until it is granted, which the limit of the trial waits for; each time nothing is left, and another gets it at once.
async fn at_every_await(world: &World, lock: impl Fn(&Client) -> GroupLock) -> Checked {
    let (client, _chaos) = slow_client(world).await?;
    let other = world.client().await?;
    for polls in 0.. {
        let done = polled(polls, lock(&client).acquire()).await.transpose()?.is_some();
        world.quiet(&client).await?;
        let guard = lock(&other).try_acquire().await?.granted().ok_or(format!("still held after {polls} polls"))?;
        guard.release().await?;
        if done {
            assert!(polls > POLLS, "no await was seen");
            break;
        }
    }
    world.empty().await
}

async fn an_acquire_at_every_await(world: World) -> Checked {
    at_every_await(&world, |client| client.lock("a").expect("a name").into()).await
}

async fn a_group_at_every_await(world: World) -> Checked {
    at_every_await(&world, |client| client.lock_all(["a", "b", "c"]).expect("a name")).await
}

/// Another client holds it: the acquire calls, subscribes, calls again, sleeps.
async fn a_waiting_acquire_at_every_await(world: World) -> Checked {
    let ((client, chaos), other) = (slow_client(&world).await?, world.client().await?);
    let held = granted(&other.lock("a")?).await?;
    for polls in 0..MANY {
        assert!(polled(polls, client.lock("a")?.acquire()).await.is_none(), "two have it");
        world.quiet(&client).await?;
        // The list is left in the background.
        let left = async || other.inspect("a").await.is_ok_and(|status| status.waiters.unwrap_or_default() == 0);
        eventually(left).await.map_err(|_| format!("a waiter was left after {polls} polls"))?;
        assert!(held.is_valid());
    }
    assert!(!world.capability.hints || chaos.count(Kind::Watch) > 0);
    held.release().await?;
    world.empty().await
}

/// Another task of the same client holds it, and releases while the acquire is being dropped.
async fn a_queued_acquire_at_every_await(world: World) -> Checked {
    let (client, _chaos) = slow_client(&world).await?;
    for polls in 0..MANY {
        let held = granted(&client.lock("a")?).await?;
        let lock = client.lock("a")?;
        let waiting = tokio::spawn(async move { drop(polled(polls, lock.acquire()).await) });
        tokio::task::yield_now().await;
        held.release().await?;
        waiting.await?;
        world.quiet(&client).await?;
    }
    world.empty().await
}

async fn a_release_at_every_await(world: World) -> Checked {
    let ((client, _chaos), other) = (slow_client(&world).await?, world.client().await?);
    let mut done = false;
    for polls in 0.. {
        let guard = granted(&client.lock("a")?).await?;
        done |= polled(polls, guard.release()).await.transpose()?.is_some();
        drop(granted(&other.lock("a")?).await?);
        world.quiet(&client).await?;
        if done && polls >= MANY {
            break;
        }
    }
    world.empty().await
}

async fn an_extension_at_every_await(world: World) -> Checked {
    let (client, _chaos) = slow_client(&world).await?;
    let long = Duration::from_secs(20);
    for polls in 0..12 {
        let guard = granted(&client.lock("a")?.lease(Duration::from_secs(10))).await?;
        polled(polls, guard.extend(long)).await.transpose()?;
        assert!(guard.is_valid());
        guard.release().await?;
        world.quiet(&client).await?;
    }
    let guard = granted(&client.lock("a")?.lease(Duration::from_secs(10))).await?;
    soon("an extension", guard.extend(long)).await??;
    guard.release().await?;
    world.empty().await
}

async fn connecting_at_every_await(world: World) -> Checked {
    for polls in 0..12 {
        let chaos = Chaos::new();
        chaos.every(Kind::Clock, Fault::Polls(POLLS));
        if let Some(client) = polled(polls, world.client_over(&chaos)).await {
            drop(granted(&client?.lock("a")?).await?);
        }
    }
    drop(granted(&soon("connecting", world.client()).await??.lock("a")?).await?);
    world.empty().await
}

async fn a_thousand_waiters(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?];
    let held = granted(&clients[0].lock("a")?).await?;
    let mut rng = world.rng();
    let mut set = JoinSet::new();
    for at in 0..1_000 {
        let (lock, limit) = (clients[at % 2].lock("a")?, Duration::from_micros(rng.below(40_000)));
        set.spawn(async move {
            let _ = tokio::time::timeout(limit, lock.acquire()).await;
        });
    }
    eventually(async || set.len() < 1_000 || set.try_join_next().is_some()).await?;
    held.release().await?;
    while let Some(done) = set.join_next().await {
        done?;
    }
    for client in &clients {
        world.quiet(client).await?;
    }
    world.empty().await
}

/// Afterwards no lock is held, no waiter is left, and nothing panicked; and the lock never had two holders.
async fn a_hundred_thousand_acquires(world: World) -> Checked {
    const TASKS: u64 = 16;
    const EACH: u64 = 100_000 / TASKS;
    let chaos = Chaos::new();
    let clients = [world.client_over(&chaos).await?, world.client_over(&chaos).await?];
    for kind in [Kind::Acquire, Kind::Release, Kind::Watch] {
        chaos.every(kind, Fault::Polls(1));
    }
    let inside: Arc<[AtomicU64; 4]> = Arc::default();
    let mut set = JoinSet::new();
    for task in 0..TASKS {
        let client = clients[usize::from(task % 2 == 0)].clone();
        let (inside, mut rng) = (inside.clone(), Rng::new(world.seed.wrapping_add(task)));
        set.spawn(async move {
            for _ in 0..EACH {
                let at = rng.below(4) as usize;
                let lock = client.lock(["a", "b", "c", "d"][at])?;
                let polls = u32::try_from(rng.below(12)).unwrap_or_default();
                if let Some(guard) = polled(polls, lock.acquire()).await {
                    let guard = guard?;
                    assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0, "two have it");
                    if rng.below(4) == 0 {
                        tokio::task::yield_now().await;
                    }
                    inside[at].fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            }
            Checked::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    for client in &clients {
        world.quiet(client).await?;
    }
    world.empty().await
}
