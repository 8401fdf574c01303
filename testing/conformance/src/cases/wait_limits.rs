//! Asking once, and waiting with a limit.

use std::time::{Duration, Instant};

use leasehold::{Attempt, blocking};

use crate::case::Checked;
use crate::world::{World, granted, soon};

crate::cases! {
    async free;
    async busy_here;
    async busy_elsewhere;
    async waits_until_released;
    async waiting_ends_in_time;
    async waits_no_longer_than_needed;
    async no_time_to_wait_at_all;
    blocking by_threads;
}

async fn free(world: World) -> Checked {
    let client = world.client().await?;
    let guard = client.lock("a")?.try_acquire().await?.granted().ok_or("it was free")?;
    assert!(guard.is_valid());
    assert_eq!(guard.name().as_str(), "a");
    guard.release().await?;
    world.empty().await
}

async fn busy_here(world: World) -> Checked {
    let client = world.client().await?;
    let guard = granted(&client.lock("a")?.label("me")).await?;
    let Attempt::Busy(holder) = client.lock("a")?.try_acquire().await? else { return Err("two have it".into()) };
    assert_eq!(holder.fence, Some(guard.fence()));
    assert_eq!(holder.label.as_deref(), Some("me"));
    Ok(())
}

async fn busy_elsewhere(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let guard = granted(&one.lock("a")?.label("other")).await?;
    let Attempt::Busy(holder) = two.lock("a")?.try_acquire().await? else { return Err("two have it".into()) };
    assert_eq!(holder.name.as_str(), "a");
    assert_eq!(holder.fence, Some(guard.fence()));
    assert_eq!(holder.label.as_deref(), Some("other"));
    assert_eq!(holder.pid, Some(std::process::id()));
    guard.release().await?;
    assert!(!two.lock("a")?.try_acquire().await?.is_busy());
    Ok(())
}

async fn waits_until_released(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let first = granted(&one.lock("a")?).await?;
    let lock = two.lock("a")?;
    let waiting = tokio::spawn(async move { granted(&lock).await });
    crate::world::eventually(async || two.in_use() > 0).await?;
    assert!(first.is_valid() && !waiting.is_finished());
    let fence = first.fence();
    first.release().await?;
    let second = soon("the waiter", waiting).await???;
    assert!(second.fence() > fence);
    Ok(())
}

async fn waiting_ends_in_time(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let held = granted(&one.lock("a")?).await?;
    let limit = Duration::from_millis(150);
    for client in [&one, &two] {
        let began = Instant::now();
        let attempt = soon("waiting", client.lock("a")?.acquire_within(limit)).await??;
        let took = began.elapsed();
        assert!(attempt.is_busy());
        assert!(took >= limit, "it gave up after {took:?}");
    }
    assert!(held.is_valid());
    held.release().await?;
    world.empty().await
}

async fn waits_no_longer_than_needed(world: World) -> Checked {
    let client = world.client().await?;
    let attempt = soon("waiting", client.lock("a")?.acquire_within(Duration::from_secs(60))).await??;
    assert!(attempt.granted().is_some_and(|guard| guard.is_valid()));
    Ok(())
}

/// No time to wait: what is free is still had where the store answers at once, and nothing is left behind where it does not.
async fn no_time_to_wait_at_all(world: World) -> Checked {
    let client = world.client().await?;
    for _ in 0..20 {
        drop(client.lock("a")?.acquire_within(Duration::ZERO).await?);
    }
    world.quiet(&client).await?;
    world.empty().await
}

fn by_threads(world: &World) -> Checked {
    let client = blocking::Client::connect(&world.url())?;
    let guard = client.lock("a")?.acquire()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let once = matches!(client.lock("a")?.try_acquire()?, blocking::Attempt::Busy(_));
            let within = client.lock("a")?.acquire_within(Duration::from_millis(50))?.granted().is_none();
            Ok::<_, leasehold::Error>(once && within)
        });
        assert!(other.join().map_err(|_| "the thread panicked")??, "another thread got it");
        Checked::Ok(())
    })?;
    let again = client.lock("a")?.try_acquire()?.granted().ok_or("the same thread re-enters")?;
    assert_eq!(again.fence(), guard.fence());
    again.release()?;
    assert!(guard.is_valid());
    Ok(guard.release()?)
}
