//! What one process does to a lock, as others come to know of it.

use std::time::Duration;

use leasehold::Break;

use super::{AFTER_LEASE, NEVER, PROCESSES, answered, asleep, asleep_until_told, at_most, objects};
use crate::ask::Ask;
use crate::case::{Checked, Need};
use crate::remote::Remote;
use crate::world::{PATIENCE, World, within};

crate::cases! {
    async a_release_is_heard needs [PROCESSES, Need::Hints];
    async one_that_does_not_listen_is_seen needs [PROCESSES];
    async a_break_now needs [PROCESSES];
    async a_break_at_lease_end needs [PROCESSES, Need::LostBefore];
    async a_lock_that_lingers needs [PROCESSES];
}

/// How often the lock goes from one to the other.
const RELEASES: usize = 21;
const LEASE: Duration = Duration::from_secs(5);

async fn a_release_is_heard(world: World) -> Checked {
    heard(&world, &Ask::of("a"), PATIENCE).await
}

async fn one_that_does_not_listen_is_seen(world: World) -> Checked {
    objects(heard(&world, &Ask::of("a").spinning(), NEVER).await, "hearing")
}

async fn heard(world: &World, ask: &Ask, patience: Duration) -> Checked {
    let [mut holder, mut waiter] = Remote::several(world)?;
    holder.take("x", ask).await?.fence()?;
    for _ in 0..RELEASES {
        let waiting = waiter.begin_take("x", ask)?;
        if patience == PATIENCE {
            asleep_until_told(&mut waiter, "a").await?;
        } else {
            waiter.ask(&["only when told"]).await?.must_be(&["only when told"])?;
        }
        holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
        within(patience, "hearing of a release", waiting).await??.fence()?;
        std::mem::swap(&mut holder, &mut waiter);
    }
    Ok(())
}

async fn a_break_now(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    // A lease that lasts for longer than the next may wait.
    let fence = holder.take("x", &Ask::of("a").keep(AFTER_LEASE + LEASE)).await?.fence()?;
    let lost = holder.begin(&["lost", "x"])?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    let began = leasehold_clock::now().as_nanos();
    let broken = client.break_lock("a", Break::Now).await?;
    assert_eq!(broken.holders[0].fence.map(|fence| fence.get()), Some(fence));
    let next = answered(waiting).await?;
    assert!(next.fence()? > fence);
    at_most("the next", next.after(began), AFTER_LEASE)?;
    answered(lost).await?.must_be(&["lost", "Gone"])?;
    holder.ask(&["release", "x"]).await?.must_be(&["error", "Lost"])?;
    waiter.ask(&["release", "x"]).await?.must_be(&["released"])?;
    world.empty().await
}

/// The holder is notified before the next grant, by the same clock.
async fn a_break_at_lease_end(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    let fence = holder.take("x", &Ask::of("a").keep(LEASE)).await?.fence()?;
    let lost = holder.begin(&["lost", "x"])?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    client.break_lock("a", Break::AtLeaseEnd).await?;
    let (lost, next) = (answered(lost).await?, answered(waiting).await?);
    lost.must_be(&["lost", "Broken"])?;
    assert!(lost.ended <= next.ended, "the next had it before the holder was told");
    assert!(next.fence()? > fence);
    holder.ask(&["release", "x"]).await?.must_be(&["error", "Lost"])
}

async fn a_lock_that_lingers(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    let span = LEASE;
    let held = holder.take("x", &Ask::of("a").at_least(span)).await?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
    holder.ask(&["close"]).await?.must_be(&["closed"])?;
    assert!(client.lock("a")?.try_acquire().await?.is_busy(), "it does not linger");
    let next = answered(waiting).await?;
    assert!(next.after(held.began) >= span, "others came after {:?}", next.after(held.began));
    at_most("the end of lingering", next.after(held.ended), span + AFTER_LEASE)
}
