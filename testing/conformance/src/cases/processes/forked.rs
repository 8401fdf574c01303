//! A holder that forks: its child can do nothing, frees nothing by its end, and keeps nothing by its life.

use std::time::Duration;

use super::{AFTER_LEASE, PROCESSES, answered, asleep, at_most};
use crate::ask::Ask;
use crate::case::Checked;
use crate::remote::Remote;
use crate::world::World;

crate::cases! {
    async the_end_of_a_forked_child_frees_nothing needs [PROCESSES];
    async a_forked_child_keeps_nothing needs [PROCESSES];
}

const LEASE: Duration = Duration::from_secs(3);

async fn the_end_of_a_forked_child_frees_nothing(world: World) -> Checked {
    let client = world.client().await?;
    let mut holder = Remote::start(&world)?;
    let fence = holder.take("x", &Ask::of("a").keep(LEASE)).await?.fence()?;
    for _ in 0..5 {
        holder.ask(&["fork", "x", "end"]).await?.must_be(&["forked"])?;
        assert!(client.lock("a")?.try_acquire().await?.is_busy(), "the end of a child freed it");
    }
    // Longer than a lease, so that it was renewed after the forks.
    let waited = client.lock("a")?.acquire_within(LEASE + LEASE / 2).await?;
    assert!(waited.is_busy(), "it was not renewed after a fork");
    assert_eq!(client.inspect("a").await?.holders[0].fence.map(|fence| fence.get()), Some(fence));
    holder.ask(&["release", "x"]).await?.must_be(&["released"])?;
    world.empty().await
}

/// The child has everything open that its parent had, but nothing is renewed any more.
async fn a_forked_child_keeps_nothing(world: World) -> Checked {
    let [mut holder, mut waiter] = Remote::several(&world)?;
    holder.take("x", &Ask::of("a").keep(LEASE)).await?.fence()?;
    holder.ask(&["fork", "x", "stay"]).await?.must_be(&["forked"])?;
    let waiting = waiter.begin_take("x", &Ask::of("a"))?;
    asleep(&mut waiter, "a").await?;
    let killed = holder.kill()?;
    let next = answered(waiting).await?;
    at_most("the lock of a dead parent", next.after(killed), LEASE + AFTER_LEASE)
}
