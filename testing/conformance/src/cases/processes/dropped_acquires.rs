//! Acquires that are dropped at random moments in several processes: nothing is held after.

use std::time::Duration;

use super::{NEVER, PROCESSES, objects};
use crate::case::Checked;
use crate::child::planted::Planted;
use crate::remote::Remote;
use crate::world::{PATIENCE, World};

crate::cases! {
    async a_hundred_thousand_acquires needs [PROCESSES];
    async one_that_keeps_them_is_seen needs [PROCESSES];
}

async fn a_hundred_thousand_acquires(world: World) -> Checked {
    dropped(&world, Planted::Nothing, 25_000, PATIENCE).await
}

async fn one_that_keeps_them_is_seen(world: World) -> Checked {
    objects(dropped(&world, Planted::Keeps, 640, NEVER).await, "left in the store")
}

async fn dropped(world: &World, bug: Planted, each: u64, patience: Duration) -> Checked {
    let mut processes = Remote::several::<4>(world)?.into_iter().map(Ok).collect::<Result<Vec<Remote>, &str>>()?;
    processes[0] = Remote::planted(world, bug)?;
    let mut dropping = Vec::new();
    for (at, process) in processes.iter_mut().enumerate() {
        let seed = world.seed.wrapping_add(at as u64);
        dropping.push(process.begin(&["drops", "a", &each.to_string(), &seed.to_string()])?);
    }
    for pending in dropping {
        // The limit of the trial is theirs.
        let granted = pending.await?.fence()?;
        assert!(bug != Planted::Nothing || granted > 0, "none was granted");
    }
    world.empty_within(patience).await
}
