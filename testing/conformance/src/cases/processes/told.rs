//! What one process does to a lock, as others come to know of it.

use std::time::Duration;

use leasehold::Break;

use super::{AT_ONCE, PROCESSES, answered, asleep, at_most, median, objects};
use crate::ask::Ask;
use crate::case::{Checked, Need};
use crate::remote::Remote;
use crate::world::{World, soon};

crate::cases! {
    async a_release_is_heard_at_once needs [PROCESSES, Need::Hints];
    async one_that_does_not_listen_is_seen needs [PROCESSES];
    async a_break_now needs [PROCESSES];
    async a_break_at_lease_end needs [PROCESSES, Need::LostBefore];
    async a_lock_that_lingers needs [PROCESSES];
}

/// From a release to the grant, at the median: an event, on a machine that does other things as well.
const HEARD: Duration = Duration::from_millis(25);
/// How often it is measured.
const RELEASES: usize = 21;
const LEASE: Duration = Duration::from_secs(1);

async fn a_release_is_heard_at_once(world: World) -> Checked {
    heard(&world, &Ask::of("a"), Duration::ZERO).await
}

async fn one_that_does_not_listen_is_seen(world: World) -> Checked {
    objects(heard(&world, &Ask::of("a").spinning(), Duration::from_millis(150)).await, "hearing")
}

async fn heard(world: &World, ask: &Ask, pause: Duration) -> Checked {
    let [mut holder, mut waiter] = Remote::several(world)?;
    let mut took = Vec::new();
    holder.take("x", ask).await?.fence()?;
    for _ in 0..RELEASES {
        let waiting = waiter.begin_take("x", ask)?;
        if pause.is_zero() {
            asleep(&mut waiter, "a").await?;
        }
        tokio::time::sleep(pause).await;
        let released = holder.ask(&["release", "x"]).await?;
        took.push(answered(waiting).await?.after(released.began));
        std::mem::swap(&mut holder, &mut waiter);
    }
    at_most("hearing of a release", median(took), HEARD)
}

async fn a_break_now(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    let fence = holder.take("x", &Ask::of("a").keep(LEASE)).await?.fence()?;
    let lost = holder.begin(&["lost", "x"])?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    let began = leasehold_clock::now().as_nanos();
    let broken = client.break_lock("a", Break::Now).await?;
    assert_eq!(broken.holders[0].fence.map(|fence| fence.get()), Some(fence));
    let next = answered(waiting).await?;
    assert!(next.fence()? > fence);
    at_most("the next", next.after(began), LEASE)?;
    answered(lost).await?.must_be(&["lost", "Gone"])?;
    holder.ask(&["release", "x"]).await?.must_be(&["error", "Lost"])?;
    waiter.ask(&["release", "x"]).await?.must_be(&["released"])?;
    world.empty().await
}

/// The holder is told before the next one comes, and both by the same clock.
async fn a_break_at_lease_end(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    let fence = holder.take("x", &Ask::of("a").keep(LEASE)).await?.fence()?;
    let lost = holder.begin(&["lost", "x"])?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    client.break_lock("a", Break::AtLeaseEnd).await?;
    let (lost, next) = (answered(lost).await?, answered(waiting).await?);
    lost.must_be(&["lost", "Gone"])?;
    assert!(lost.ended <= next.ended, "the next had it before the holder was told");
    assert!(next.fence()? > fence);
    holder.ask(&["release", "x"]).await?.must_be(&["error", "Lost"])
}

async fn a_lock_that_lingers(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    let span = Duration::from_millis(600);
    let held = holder.take("x", &Ask::of("a").at_least(span)).await?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
    holder.ask(&["close"]).await?.must_be(&["closed"])?;
    assert!(client.lock("a").try_acquire().await?.is_busy(), "it does not linger");
    let next = soon("the waiter", waiting).await??;
    assert!(next.after(held.began) >= span, "others came after {:?}", next.after(held.began));
    at_most("the end of lingering", next.after(held.ended), span + AT_ONCE * 2)
}
