//! What a holder can do: keep others out for a while, lengthen a lease, run work under the lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use crate::case::Checked;
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, granted, soon};

crate::cases! {
    async at_least;
    async at_least_is_over;
    async extend;
    async extend_what_is_gone;
    async an_extension_without_an_answer;
    async protect;
    async protect_cancels_its_future;
    async protect_what_is_gone;
    async the_signal_outlives_the_guard;
    async time_left_is_within_the_lease;
}

/// Released early, it keeps others out until its time, here and elsewhere.
async fn at_least(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    for next in [&client, &other] {
        let span = Duration::from_secs(1);
        let asked = Instant::now();
        let guard = granted(&client.lock("a")?.at_least(span)).await?;
        guard.release().await?;
        let busy = next.lock("a")?.try_acquire().await?.is_busy();
        assert!(busy || asked.elapsed() >= span, "others came in at once");
        let after = granted(&next.lock("a")?).await?;
        assert!(asked.elapsed() >= span, "others came in after {:?}", asked.elapsed());
        after.release().await?;
    }
    world.quiet(&client).await?;
    world.empty().await
}

async fn at_least_is_over(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let guard = granted(&client.lock("a")?.at_least(Duration::from_millis(20))).await?;
    tokio::time::sleep(Duration::from_millis(40)).await;
    guard.release().await?;
    assert!(!other.lock("a")?.try_acquire().await?.is_busy());
    Ok(())
}

async fn extend(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let lease = world.kept();
    let extended = lease * 3;
    let began = Instant::now();
    let guard = granted(&client.lock("a")?.lease(lease)).await?;
    for _ in 0..3 {
        guard.extend(extended).await?;
        assert!(guard.time_left().is_some_and(|left| left > lease && left <= extended));
    }
    tokio::time::sleep_until((began + lease).into()).await;
    assert!(guard.is_valid());
    assert!(other.lock("a")?.try_acquire().await?.is_busy());
    soon("lost", guard.lost()).await?;
    assert!(began.elapsed() >= extended * 9 / 10);
    assert!(!guard.is_valid());
    drop(granted(&other.lock("a")?).await?);
    Ok(())
}

async fn extend_what_is_gone(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let ended = granted(&client.lock("a")?.lease(world.short())).await?;
    soon("lost", ended.lost()).await?;
    let broken = granted(&client.lock("b")?.lease(Duration::from_secs(10))).await?;
    other.break_lock("b", leasehold::Break::Now).await?;
    for guard in [&ended, &broken] {
        let error = guard.extend(Duration::from_secs(1)).await.err().ok_or("it was gone")?;
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(!guard.is_valid());
        assert!(!other.inspect(guard.name().as_str()).await?.is_held() || guard.name().as_str() == "a");
    }
    assert!(soon("lost", broken.lost()).await.is_ok());
    Ok(())
}

/// The guard goes by the shorter time.
async fn an_extension_without_an_answer(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let guard = granted(&client.lock("a")?.lease(world.told())).await?;
    chaos.next(Kind::Renew, 1, Fault::LoseReply);
    let error = guard.extend(world.told() * 2).await.err().ok_or("it cannot know")?;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(guard.time_left().is_none_or(|left| left <= world.told()));
    soon("lost", guard.lost()).await?;
    drop(guard);
    drop(granted(&world.client().await?.lock("a")?).await?);
    world.empty().await
}

async fn protect(world: World) -> Checked {
    let client = world.client().await?;
    let guard = granted(&client.lock("a")?).await?;
    let sum = guard
        .protect(async {
            tokio::task::yield_now().await;
            1 + 1
        })
        .await?;
    assert_eq!(sum, 2);
    assert!(guard.is_valid());
    Ok(guard.release().await?)
}

async fn protect_cancels_its_future(world: World) -> Checked {
    let client = world.client().await?;
    let guard = granted(&client.lock("a")?.lease(world.short())).await?;
    let work = Arc::new(());
    let inside = work.clone();
    let error = soon(
        "protect",
        guard.protect(async move {
            let _inside = inside;
            std::future::pending::<()>().await;
        }),
    )
    .await?;
    assert_eq!(error.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    assert_eq!(Arc::strong_count(&work), 1, "the work was not dropped");
    Ok(())
}

/// Work that ends after the lock was lost does not count as protected, even if it was not cancelled in time.
async fn protect_what_is_gone(world: World) -> Checked {
    let client = world.client().await?;
    let guard = granted(&client.lock("a")?.lease(world.short())).await?;
    let blocked = guard.protect(async { std::thread::sleep(world.short() * 2) }).await;
    assert_eq!(blocked.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    let mut ran = false;
    let never = guard.protect(async { ran = true }).await;
    assert_eq!(never.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    assert!(!ran, "work began without the lock");
    Ok(())
}

async fn the_signal_outlives_the_guard(world: World) -> Checked {
    let client = world.client().await?;
    let guard = granted(&client.lock("a")?).await?;
    let signal = guard.lost_signal();
    let watching = {
        let signal = signal.clone();
        tokio::spawn(async move { signal.wait().await })
    };
    tokio::task::yield_now().await;
    drop(guard);
    assert_eq!(soon("the signal", watching).await??, None);
    assert_eq!(soon("the signal", signal.wait()).await?, None);
    assert!(!signal.is_lost());
    world.quiet(&client).await
}

async fn time_left_is_within_the_lease(world: World) -> Checked {
    let client = world.client().await?;
    let lease = Duration::from_secs(60);
    for lock in [client.lock("a")?.keep(lease), client.lock("a")?.lease(lease)] {
        let asked = Instant::now();
        let guard = granted(&lock).await?;
        let left = guard.time_left().ok_or("it is held")?;
        // A hundredth and 22 ms are given up for clocks that differ, and for telling the holder.
        let least = lease.saturating_sub(asked.elapsed()) * 98 / 100;
        assert!(left < lease && left > least, "{left:?} of {lease:?}, {:?} after it was asked for", asked.elapsed());
        guard.release().await?;
    }
    Ok(())
}
