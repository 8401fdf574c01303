//! Waiters are notified if the store can, and poll if configured to; a lost hint costs a recheck. Benches measure the
//! times; these cases count what wakes a waiter.

use std::time::{Duration, Instant};

use leasehold::{Client, Lock, WaitMode};
use tokio::task::JoinSet;

use crate::case::{Checked, Need};
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

/// A release, and the waiter's grant, once the waiter sleeps.
async fn hand_over(holder: &Client, lock: Lock, asleep: impl AsyncFnMut() -> bool) -> Checked {
    let held = granted(&holder.lock("a")?).await?;
    let waiting = tokio::spawn(async move { lock.acquire().await?.release().await });
    eventually(asleep).await?;
    held.release().await?;
    Ok(soon("the waiter", waiting).await???)
}

/// Only by a hint: its calls before the hint are delayed.
async fn wake_a_waiter(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    for _ in 0..10 {
        let before = chaos.count(Kind::Acquire);
        let asleep = async || {
            let asleep = chaos.count(Kind::Acquire) >= before + 2;
            if asleep {
                chaos.only_when_told();
            }
            asleep
        };
        hand_over(&holder, client.lock("a")?, asleep).await?;
    }
    Ok(())
}

/// One release wakes one of many waiting clients. Clients that recheck meanwhile call the store too; a herd would call
/// at every release.
async fn wake_one_waiter(world: World) -> Checked {
    const WAITERS: u32 = 8;
    const FEW: u32 = 4;
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let mut held = granted(&holder.lock("a")?).await?;
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let client = world.client_over(&chaos).await?;
        waiting.spawn(async move { client.lock("a")?.acquire().await });
    }
    eventually(async || chaos.count(Kind::Acquire) >= 2 * u64::from(WAITERS)).await?;
    eventually(async || holder.inspect("a").await.is_ok_and(|status| status.waiters == Some(WAITERS))).await?;
    let mut asked = Vec::new();
    for waiters in (FEW..=WAITERS).rev() {
        let before = chaos.count(Kind::Acquire);
        held.release().await?;
        held = soon("a waiter", waiting.join_next()).await?.ok_or("nobody waits")???;
        asked.push((chaos.count(Kind::Acquire) - before, waiters));
    }
    let one = asked.iter().any(|(asked, waiters)| *asked < u64::from(*waiters));
    assert!(one, "every release woke all: (asked, waiting) {asked:?}");
    Ok(())
}

async fn lost_on_purpose(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    chaos.lose_hints(true);
    hand_over(&holder, client.lock("a")?, async || chaos.count(Kind::Acquire) >= 2).await
}

/// The one that sleeps for all of a client's tasks goes away: the next sleeps in its place.
async fn lost_and_the_first_in_line_has_gone(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    chaos.lose_hints(true);
    let held = granted(&holder.lock("a")?).await?;
    let first = client.lock("a")?;
    let first = tokio::spawn(async move { first.acquire().await.map(drop) });
    eventually(async || chaos.count(Kind::Acquire) >= 2).await?;
    let (lock, before) = (client.lock("a")?, client.in_use());
    let second = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.is_valid()) });
    eventually(async || client.in_use() > before).await?;
    first.abort();
    assert!(soon("the first", first).await?.is_err_and(|error| error.is_cancelled()));
    held.release().await?;
    assert!(soon("the second", second).await???);
    world.quiet(&client).await
}

async fn a_subscription_that_fails(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Watch, 3, Fault::LoseRequest(leasehold::Outcome::Unknown));
    hand_over(&holder, client.lock("a")?, async || chaos.count(Kind::Watch) >= 4).await?;
    world.quiet(&client).await
}

/// The release comes after the waiter was refused and before it is subscribed: it asks again once it is, and does not
/// sleep. A sleep would end with a recheck a second after the subscription, so the fastest of several tries shows the
/// difference.
async fn a_release_before_the_subscription(world: World) -> Checked {
    const TRIES: usize = 5;
    let holder = world.client().await?;
    let mut quickest = Duration::MAX;
    for _ in 0..TRIES {
        let chaos = Chaos::new();
        let client = world.client_over(&chaos).await?;
        let held = granted(&holder.lock("a")?).await?;
        chaos.next(Kind::Watch, 1, Fault::Hang);
        let waiting = tokio::spawn(async move { client.lock("a")?.acquire().await?.release().await });
        eventually(async || chaos.count(Kind::Watch) == 1).await?;
        held.release().await?;
        let began = Instant::now();
        chaos.calm();
        soon("the waiter", waiting).await???;
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < Duration::from_millis(800), "it slept for {quickest:?}");
    Ok(())
}

async fn spinning(world: World) -> Checked {
    let (chaos, holder) = (Chaos::new(), world.client().await?);
    let client = world.client_over(&chaos).await?;
    let lock = client.lock("a")?.wait_mode(WaitMode::Spinning);
    hand_over(&holder, lock, async || chaos.count(Kind::Acquire) >= 4).await?;
    assert_eq!(chaos.count(Kind::Watch), 0, "a spinning waiter subscribed");
    assert!(chaos.count(Kind::Acquire) < 100, "pauses do not grow");
    world.quiet(&client).await
}
