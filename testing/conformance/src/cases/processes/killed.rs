//! Killed processes: their locks are free by the end of the lease, and at once if the store can tell.

use std::time::Duration;

use super::{
    AFTER_LEASE, NEVER, PROCESSES, TRIALS, answered, asleep, asleep_until_told, at_most, objects, stop_between_writes,
};
use crate::ask::Ask;
use crate::case::{Checked, Failure, Need};
use crate::deployment::Hook;
use crate::remote::Remote;
use crate::world::{PATIENCE, World, eventually, granted, within};

crate::cases! {
    async a_kept_lock_is_free_by_the_end_of_its_lease needs [PROCESSES];
    async a_fixed_lock_is_free_at_the_end_of_its_lease needs [PROCESSES, Need::OutlivesProcess];
    async a_kept_lock_is_free_at_once needs [PROCESSES, Need::Hook(Hook::Liveness)];
    async one_whose_fork_lives_is_not_free_at_once needs [PROCESSES, Need::Hook(Hook::Liveness)];
    async several_names_are_all_free needs [PROCESSES];
    async processes_of_one_owner_end_one_by_one needs [PROCESSES, Need::SharedReentrance];
    async behind_a_dead_waiter_the_next_is_told needs [PROCESSES, Need::Hints];
    async behind_a_stopped_waiter_nobody_is_told_at_once needs [PROCESSES, Need::Waiters];
}

const LEASE: Duration = Duration::from_secs(3);
/// A lease so long that no test waits for its end.
const LONG: Duration = Duration::from_secs(600);

async fn a_kept_lock_is_free_by_the_end_of_its_lease(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let fence = holder.take("x", &Ask::of("a").keep(LEASE)).await?.fence()?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    let killed = holder.kill()?;
    let next = answered(waiting).await?;
    assert!(next.fence()? > fence);
    at_most("the lock of a dead holder", next.after(killed), LEASE + AFTER_LEASE)
}

/// It is not renewed, and may be left to others on purpose: so it ends neither later nor sooner.
async fn a_fixed_lock_is_free_at_the_end_of_its_lease(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    let held = holder.take("x", &Ask::of("a").lease(LEASE)).await?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    let killed = holder.kill()?;
    let next = answered(waiting).await?;
    assert!(next.after(held.began) >= LEASE, "it was taken {:?} after it was given", next.after(held.began));
    at_most("the lock of a dead holder", next.after(killed), LEASE + AFTER_LEASE)
}

async fn a_kept_lock_is_free_at_once(world: World) -> Checked {
    noticed_at_once(&world, false, PATIENCE).await?;
    world.empty().await
}

/// A forked child has all of its parent's descriptors: the two cannot be told apart.
async fn one_whose_fork_lives_is_not_free_at_once(world: World) -> Checked {
    objects(noticed_at_once(&world, true, NEVER).await, "noticing")
}

async fn noticed_at_once(world: &World, forks: bool, patience: Duration) -> Checked {
    let mut waiter = Remote::start(world)?;
    for _ in 0..TRIALS {
        let mut holder = Remote::start(world)?;
        holder.take("x", &Ask::of("a").keep(LONG)).await?.fence()?;
        if forks {
            holder.ask(&["fork", "x", "stay"]).await?.must_be(&["forked"])?;
        }
        let waiting = waiter.begin_take("x", &Ask::of("a"))?;
        asleep_until_told(&mut waiter, "a").await?;
        holder.kill()?;
        within(patience, "noticing", waiting).await??.fence()?;
        waiter.ask(&["release", "x"]).await?.must_be(&["released"])?;
    }
    Ok(())
}

async fn several_names_are_all_free(world: World) -> Checked {
    let client = world.client().await?;
    let mut holder = Remote::start(&world)?;
    for name in ["a", "b", "c"] {
        holder.take(name, &Ask::of(name).keep(LEASE)).await?.fence()?;
    }
    let mut names = vec!["a", "b", "c"];
    if world.capability.several_names {
        holder.take("group", &Ask::all(&["d", "e"]).keep(LEASE)).await?.fence()?;
        names.extend(["d", "e"]);
    }
    // One of them is on its way back when it is killed.
    let _open = holder.begin(&["release", "b"])?;
    holder.kill()?;
    for name in names {
        drop(granted(&client.lock(name)?).await?);
    }
    world.empty().await
}

async fn processes_of_one_owner_end_one_by_one(world: World) -> Checked {
    let client = world.client().await?;
    let [mut first, mut second, mut third, mut stranger] = Remote::several(&world)?;
    let ask = Ask::of("a").owner("us").keep(LEASE);
    let fence = first.take("x", &ask).await?.fence()?;
    for process in [&mut second, &mut third] {
        assert_eq!(process.take("x", &ask).await?.fence()?, fence, "a re-entry has a fence of its own");
    }
    let holds = async |expected| {
        let counted = async || client.inspect("a").await.is_ok_and(|a| a.holders[0].holds == Some(expected));
        eventually(counted).await.map_err(|_| Failure::from(format!("there are not {expected} holds")))
    };
    holds(3).await?;
    let mut waiting = stranger.begin_take("x", &Ask::of("a"))?;
    for (process, left) in [(&mut first, 2), (&mut second, 1)] {
        process.kill()?;
        holds(left).await?;
        assert!(waiting.is_open(), "a stranger has it while {left} are alive");
    }
    let killed = third.kill()?;
    let next = answered(waiting).await?;
    assert!(next.fence()? > fence);
    at_most("the lock of dead holders", next.after(killed), LEASE + AFTER_LEASE)
}

async fn behind_a_dead_waiter_the_next_is_told(world: World) -> Checked {
    passed_over(&world, true, PATIENCE).await?;
    world.empty().await
}

/// It may go on at any moment, so the hint is its own: the others find out by a recheck, their own or the store's. The check above sees
/// the difference.
async fn behind_a_stopped_waiter_nobody_is_told_at_once(world: World) -> Checked {
    objects(passed_over(&world, false, NEVER).await, "the next waiter")
}

/// The second waiter is notified of the release if the first is killed or stopped.
async fn passed_over(world: &World, killed: bool, patience: Duration) -> Checked {
    let [mut holder, mut last] = Remote::several(world)?;
    let client = world.client().await?;
    for _ in 0..TRIALS {
        let mut head = Remote::start(world)?;
        holder.take("x", &Ask::of("a")).await?.fence()?;
        let _lost = head.begin_take("x", &Ask::of("a"))?;
        asleep(&mut head, "a").await?;
        if !killed {
            stop_between_writes(&head, &client).await?;
        }
        let waiting = last.begin_take("x", &Ask::of("a"))?;
        asleep_until_told(&mut last, "a").await?;
        if killed {
            head.kill()?;
        }
        holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
        within(patience, "telling the next waiter", waiting).await??.fence()?;
        last.ask(&["release", "x"]).await?.must_be(&["released"])?;
        head.kill()?;
    }
    Ok(())
}
