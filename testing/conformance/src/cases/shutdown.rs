//! Ends: a client that closes, a runtime that goes away, guards and futures that outlive it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::Poll;

use leasehold::{ErrorKind, Loss};
use tokio::runtime::Builder;

use crate::case::Checked;
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async with_locks_held;
    async with_waiters;
    async with_calls_under_way;
    async with_nothing;
    blocking a_runtime_shuts_down;
    blocking a_guard_without_a_runtime;
    blocking futures_without_a_runtime;
    blocking a_client_outlives_its_runtime;
}

async fn with_locks_held(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let guards = [granted(&client.lock("a")?).await?, granted(&client.lock("b")?).await?];
    let again = granted(&client.lock("a")?.owned_by(guards[0].owner())).await?;
    soon("close", client.close()).await??;
    for name in ["a", "b"] {
        assert!(!other.lock(name)?.try_acquire().await?.is_busy(), "{name} is still held after close");
    }
    for guard in guards.iter().chain([&again]) {
        assert!(!guard.is_valid());
        assert_eq!(guard.holds(), 0);
        soon("lost", guard.lost()).await?;
    }
    let error = client.lock("c")?.acquire().await.err().ok_or("a closed client took a lock")?;
    assert_eq!(error.kind(), ErrorKind::Closed);
    drop((guards, again));
    soon("the second close", client.close()).await??;
    world.quiet(&client).await?;
    world.empty().await
}

async fn with_waiters(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let held = granted(&other.lock("a")?).await?;
    let mine = granted(&client.lock("b")?).await?;
    let signal = mine.lost_signal();
    let waiting: Vec<_> = ["a", "a", "b"]
        .map(|name| client.lock(name).expect("a name"))
        .map(|lock| tokio::spawn(async move { lock.acquire().await.map(drop).map_err(|error| error.kind()) }))
        .into();
    eventually(async || client.in_use() >= 6).await?;
    soon("close", client.close()).await??;
    for task in waiting {
        assert_eq!(soon("a waiter", task).await??, Err(ErrorKind::Closed));
    }
    assert_eq!(soon("lost", signal.wait()).await?, Some(Loss::Closed));
    assert!(held.is_valid());
    drop(mine);
    world.quiet(&client).await
}

/// An acquire is on its way when the client closes: it ends, and what it was granted goes back.
async fn with_calls_under_way(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Acquire, 1, Fault::Hang);
    let lock = client.lock("a")?;
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop).map_err(|error| error.kind()) });
    eventually(async || chaos.count(Kind::Acquire) == 1).await?;
    let mut closing = Box::pin(client.close());
    assert!(poll_once(&mut closing).await.is_pending(), "it did not wait for the call under way");
    chaos.calm();
    soon("close", closing).await??;
    assert_eq!(soon("the waiter", waiting).await??, Err(ErrorKind::Closed));
    world.quiet(&client).await?;
    world.empty().await
}

async fn with_nothing(world: World) -> Checked {
    let client = world.client().await?;
    drop(granted(&client.lock("a")?).await?);
    soon("close", client.close()).await??;
    world.empty().await
}

/// Guards and pending acquires live in tasks of a runtime that is dropped: their locks are released, and nothing
/// panics.
fn a_runtime_shuts_down(world: &World) -> Checked {
    let watcher = Builder::new_current_thread().enable_all().build()?;
    let other = watcher.block_on(world.client())?;
    let blocker = watcher.block_on(granted(&other.lock("busy")?))?;
    for workers in [0, 2] {
        let runtime = match workers {
            0 => Builder::new_current_thread().enable_all().build()?,
            _ => Builder::new_multi_thread().worker_threads(workers).enable_all().build()?,
        };
        let chaos = Chaos::new();
        let client = runtime.block_on(world.client_over(&chaos))?;
        let (held, is_held) = channel();
        for at in 0..4 {
            let (lock, held) = (client.lock(format!("held-{at}"))?, held.clone());
            runtime.spawn(async move {
                let _guard = lock.acquire().await;
                let _ = held.send(());
                std::future::pending::<()>().await;
            });
        }
        runtime.block_on(async {
            eventually(async || client.in_use() >= 4).await?;
            chaos.every(Kind::Acquire, Fault::Polls(1_000));
            for name in ["busy", "held-0", "in-flight"] {
                let lock = client.lock(name)?;
                tokio::spawn(async move { lock.acquire().await.map(drop) });
            }
            eventually(async || chaos.count(Kind::Acquire) >= 6).await?;
            // A runtime without workers runs its tasks only while it is waited for.
            let mut told = 0;
            eventually(async || {
                told += is_held.try_iter().count();
                told == 4
            })
            .await
        })?;
        drop(runtime);
        watcher.block_on(async {
            for at in 0..4 {
                drop(granted(&other.lock(format!("held-{at}"))?).await?);
            }
            drop(granted(&other.lock("in-flight")?).await?);
            world.quiet(&client).await
        })?;
        assert!(blocker.is_valid());
    }
    drop(blocker);
    watcher.block_on(world.empty())
}

fn a_guard_without_a_runtime(world: &World) -> Checked {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let chaos = Chaos::new();
    let client = runtime.block_on(world.client_over(&chaos))?;
    let here = runtime.block_on(granted(&client.lock("here")?))?;
    let there = runtime.block_on(granted(&client.lock("there")?))?;
    drop(runtime);
    chaos.every(Kind::Release, Fault::Polls(3));
    drop(here);
    std::thread::spawn(move || drop(there)).join().map_err(|_| "dropping a guard panicked")?;
    drop(client);
    Builder::new_current_thread().enable_all().build()?.block_on(world.empty())
}

/// Futures that were begun in a runtime are dropped outside of any.
fn futures_without_a_runtime(world: &World) -> Checked {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let chaos = Chaos::new();
    let client = runtime.block_on(world.client_over(&chaos))?;
    chaos.every(Kind::Acquire, Fault::Polls(5));
    chaos.every(Kind::Release, Fault::Polls(5));
    let guard = runtime.block_on(granted(&client.lock("a")?))?;
    let (free, queued) = (client.lock("b")?, client.lock("a")?);
    let mut futures = vec![Box::pin(free.acquire()), Box::pin(queued.acquire())];
    for future in &mut futures {
        assert!(runtime.block_on(poll_once(future)).is_pending());
    }
    let mut release = Box::pin(guard.release());
    // Passed to the acquire that is queued, or on its way to the store.
    drop(runtime.block_on(poll_once(&mut release)));
    drop(runtime);
    drop(release);
    drop(futures);
    let watcher = Builder::new_current_thread().enable_all().build()?;
    watcher.block_on(world.quiet(&client))?;
    watcher.block_on(world.empty())
}

/// A client made in one runtime goes on in another.
fn a_client_outlives_its_runtime(world: &World) -> Checked {
    let first = Builder::new_current_thread().enable_all().build()?;
    let client = first.block_on(world.client())?;
    let guard = first.block_on(granted(&client.lock("a")?.keep(world.kept())))?;
    drop(first);
    let second = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    second.block_on(async {
        tokio::time::sleep(world.kept() * 2).await;
        assert!(guard.is_valid(), "the keeper ended with the runtime");
        guard.release().await?;
        drop(granted(&client.lock("a")?).await?);
        world.quiet(&client).await
    })
}

async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await
}
