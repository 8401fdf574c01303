//! Waiting: notified where the store can, spinning where it is asked for; a lost hint costs about a second.

use std::time::{Duration, Instant};

use leasehold::{Client, Lock, WaitMode};

use crate::case::{Checked, Failure, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async wake_a_waiter needs [Need::Hints];
    async wake_one_waiter needs [Need::Hints, Need::Waiters];
    async lost_on_purpose needs [Need::Hints];
    async lost_and_the_first_in_line_has_gone needs [Need::Hints];
    async a_subscription_that_fails needs [Need::Hints];
    async a_release_before_the_subscription needs [Need::Hints];
    async spinning;
}

/// How long it takes from the release to the waiter's grant, once the waiter sleeps.
async fn hand_over(holder: &Client, lock: Lock, asleep: impl AsyncFnMut() -> bool) -> Result<Duration, Failure> {
    let held = granted(&holder.lock("a")).await?;
    let waiting = tokio::spawn(async move {
        let guard = lock.acquire().await?;
        let when = Instant::now();
        guard.release().await?;
        Ok::<_, leasehold::Error>(when)
    });
    eventually(asleep).await?;
    held.release().await?;
    let released = Instant::now();
    Ok(soon("the waiter", waiting).await???.saturating_duration_since(released))
}

async fn wake_a_waiter(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    let mut total = Duration::ZERO;
    for _ in 0..10 {
        let before = chaos.count(Kind::Acquire);
        total += hand_over(&holder, client.lock("a"), async || chaos.count(Kind::Acquire) >= before + 2).await?;
    }
    assert!(total < Duration::from_secs(4), "ten hand-overs took {total:?}: nobody was told");
    Ok(())
}

/// One release wakes one of many waiting clients.
async fn wake_one_waiter(world: World) -> Checked {
    const WAITERS: u64 = 8;
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let held = granted(&holder.lock("a")).await?;
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        let client = world.client_over(&chaos).await?;
        waiting
            .push(tokio::spawn(async move { Ok::<_, leasehold::Error>((client.lock("a").acquire().await?, client)) }));
    }
    eventually(async || chaos.count(Kind::Acquire) >= 2 * WAITERS).await?;
    eventually(async || holder.inspect("a").await.is_ok_and(|status| status.waiters == Some(WAITERS as u32))).await?;
    let (before, began) = (chaos.count(Kind::Acquire), Instant::now());
    held.release().await?;
    eventually(async || waiting.iter().any(tokio::task::JoinHandle::is_finished)).await?;
    let asked = chaos.count(Kind::Acquire) - before;
    // Whoever rechecks after a second is not woken by the release.
    assert!(asked < WAITERS || began.elapsed() > Duration::from_millis(500), "one release woke {asked} of {WAITERS}");
    for task in &waiting {
        if !task.is_finished() {
            task.abort();
        }
    }
    Ok(())
}

async fn lost_on_purpose(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    chaos.lose_hints(true);
    let took = hand_over(&holder, client.lock("a"), async || chaos.count(Kind::Acquire) >= 2).await?;
    assert!(took < Duration::from_millis(1_200), "a lost hint cost {took:?}");
    Ok(())
}

/// The one that sleeps for all of a client's tasks goes away: the next sleeps in its place.
async fn lost_and_the_first_in_line_has_gone(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    chaos.lose_hints(true);
    let held = granted(&holder.lock("a")).await?;
    let first = client.lock("a");
    let first = tokio::spawn(async move { first.acquire().await.map(drop) });
    eventually(async || chaos.count(Kind::Acquire) >= 2).await?;
    let (lock, before) = (client.lock("a"), client.in_use());
    let second = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.is_valid()) });
    eventually(async || client.in_use() > before).await?;
    first.abort();
    assert!(soon("the first", first).await?.is_err_and(|error| error.is_cancelled()));
    held.release().await?;
    let began = Instant::now();
    assert!(soon("the second", second).await???);
    assert!(began.elapsed() < Duration::from_millis(1_200), "it took {:?}", began.elapsed());
    world.quiet(&client).await
}

async fn a_subscription_that_fails(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Watch, 3, Fault::LoseRequest(leasehold::Outcome::Unknown));
    let took = hand_over(&holder, client.lock("a"), async || chaos.count(Kind::Watch) >= 4).await?;
    assert!(took < Duration::from_millis(1_200), "it took {took:?}");
    world.quiet(&client).await
}

/// Released after the waiter was refused and before it is subscribed: it asks again once it is, and does not sleep.
async fn a_release_before_the_subscription(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    let held = granted(&holder.lock("a")).await?;
    chaos.next(Kind::Watch, 1, Fault::Hang);
    let waiting = tokio::spawn(async move { client.lock("a").acquire().await.map(|guard| guard.is_valid()) });
    eventually(async || chaos.count(Kind::Watch) == 1).await?;
    held.release().await?;
    let began = Instant::now();
    chaos.calm();
    assert!(soon("the waiter", waiting).await???);
    assert!(began.elapsed() < Duration::from_millis(700), "it slept for {:?}", began.elapsed());
    Ok(())
}

async fn spinning(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    let lock = client.lock("a").wait_mode(WaitMode::Spinning);
    let took = hand_over(&holder, lock, async || chaos.count(Kind::Acquire) >= 4).await?;
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    assert_eq!(chaos.count(Kind::Watch), 0, "a spinning waiter subscribed");
    assert!(chaos.count(Kind::Acquire) < 100, "pauses do not grow");
    world.quiet(&client).await
}
