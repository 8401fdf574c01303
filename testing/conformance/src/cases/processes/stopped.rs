//! Processes that stand still for longer than their lease, and go on.

use std::time::Duration;

use leasehold::Break;

use super::{AFTER_LEASE, PROCESSES, answered, asleep, at_most, objects, stop_between_writes};
use crate::ask::Ask;
use crate::case::{Checked, Failure, Need};
use crate::child::planted::Planted;
use crate::remote::Remote;
use crate::world::World;

crate::cases! {
    async a_holder_loses_it_at_the_end_of_its_lease needs [PROCESSES, Need::LostBefore];
    async one_that_believes_it_holds_it_is_seen needs [PROCESSES, Need::LostBefore];
    async a_lock_taken_too_soon_is_seen needs [PROCESSES, Need::LostBefore];
    async a_waiter_at_the_head_costs_a_recheck needs [PROCESSES, Need::Hints];
    async a_waiter_that_goes_on_has_its_turn needs [PROCESSES];
}

const LEASE: Duration = Duration::from_secs(5);

async fn a_holder_loses_it_at_the_end_of_its_lease(world: World) -> Checked {
    for ask in [Ask::of("a").keep(LEASE), Ask::of("a").lease(LEASE)] {
        overtaken(&world, Planted::Nothing, &ask, false).await?;
    }
    world.empty().await
}

async fn one_that_believes_it_holds_it_is_seen(world: World) -> Checked {
    objects(overtaken(&world, Planted::Believes, &Ask::of("a").keep(LEASE), false).await, "invalid")
}

async fn a_lock_taken_too_soon_is_seen(world: World) -> Checked {
    objects(overtaken(&world, Planted::Nothing, &Ask::of("a").keep(LEASE), true).await, "too soon")
}

/// Stopped, overtaken by the next holder, continued: it knows that it lost the lock, and does the next one no harm.
async fn overtaken(world: &World, bug: Planted, ask: &Ask, broken: bool) -> Checked {
    let (mut holder, mut next) = (Remote::planted(world, bug)?, Remote::start(world)?);
    let client = world.client().await?;
    let fence = holder.take("x", ask).await?.fence()?;
    let _second = holder.take("y", &Ask::of("b").keep(LEASE)).await?.fence()?;
    let waiting = next.begin_take("x", &Ask::of("a"))?;
    asleep(&mut next, "a").await?;
    let valid_until = valid_until(&mut holder).await?;
    stop_between_writes(&holder, &client).await?;
    if broken {
        client.break_lock("a", Break::Now).await?;
    }
    let taken = answered(waiting).await?;
    if taken.ended < valid_until {
        return Err("the next had it too soon: while the holder was still valid".into());
    }
    at_most("the lock of a stopped holder", taken.after(valid_until), LEASE + AFTER_LEASE)?;
    assert!(taken.fence()? > fence);
    holder.go_on()?;
    holder.ask(&["look", "x"]).await?.must_be(&["invalid"])?;
    holder.ask(&["lost", "x"]).await?.must_be(&["lost", "TimeEnded"])?;
    holder.ask(&["extend", "x", "1000000000"]).await?.must_be(&["error", "Lost"])?;
    holder.ask(&["release", "x"]).await?.must_be(&["error", "Lost"])?;
    holder.ask(&["drop", "y"]).await?.must_be(&["dropped"])?;
    let held = client.inspect("a").await?;
    assert_eq!(held.holders[0].fence.map(|fence| fence.get()), Some(taken.fence()?), "the next holder was harmed");
    next.ask(&["release", "x"]).await?.must_be(&["released"])
}

/// Until when the holder may act, unless it renews.
async fn valid_until(holder: &mut Remote) -> Result<u64, Failure> {
    let look = holder.ask(&["look", "x"]).await?;
    match look.words().as_slice() {
        ["valid", left] => Ok(look.began + left.parse::<u64>()?),
        other => Err(format!("the holder lost it before it was stopped: {other:?}").into()),
    }
}

async fn a_waiter_at_the_head_costs_a_recheck(world: World) -> Checked {
    let [mut holder, mut head, mut last] = Remote::several(&world)?;
    let client = world.client().await?;
    holder.take("x", &Ask::of("a")).await?.fence()?;
    let _waits = head.begin_take("x", &Ask::of("a"))?;
    asleep(&mut head, "a").await?;
    stop_between_writes(&head, &client).await?;
    let waiting = last.begin_take("x", &Ask::of("a"))?;
    asleep(&mut last, "a").await?;
    let released = holder.ask(&["release", "x"]).await?;
    let taken = answered(waiting).await?;
    at_most("passing over a stopped waiter", taken.after(released.began), AFTER_LEASE)
}

async fn a_waiter_that_goes_on_has_its_turn(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let client = world.client().await?;
    holder.take("x", &Ask::of("a")).await?.fence()?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    stop_between_writes(&waiter, &client).await?;
    holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
    // It is acquired and released meanwhile.
    let fence = holder.take("x", &Ask::of("a")).await?.fence()?;
    holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
    waiter.go_on()?;
    assert!(answered(waiting).await?.fence()? > fence);
    waiter.ask(&["release", "x"]).await?.must_be(&["released"])?;
    world.empty().await
}
