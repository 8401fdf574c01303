//! Processes count up a number in a file that nothing else protects: none is lost, and fences grow in the order of the work.

use std::path::Path;

use super::{PROCESSES, answered, asleep, objects};
use crate::case::{Checked, Need};
use crate::child::planted::Planted;
use crate::child::work::{COUNTER, LEDGER};
use crate::ledger::{Killed, Ledger};
use crate::remote::Remote;
use crate::world::World;

crate::cases! {
    async eight_processes_count_to_sixteen_thousand needs [PROCESSES, Need::Fences];
    async one_that_takes_no_lock_is_seen needs [PROCESSES];
    async a_fence_that_stands_still_is_seen needs [PROCESSES, Need::Fences];
    async a_hundred_waiters_in_ten_processes needs [PROCESSES, Need::Fences];
}

async fn eight_processes_count_to_sixteen_thousand(world: World) -> Checked {
    let folder = tempfile::tempdir()?;
    count_up(&world, folder.path(), [Planted::Nothing; 8], 2_000).await?;
    numbers(folder.path(), 16_000)?;
    under_fences(folder.path(), 16_000)?;
    world.empty().await
}

async fn one_that_takes_no_lock_is_seen(world: World) -> Checked {
    let folder = tempfile::tempdir()?;
    count_up(&world, folder.path(), [Planted::NoLock; 3], 300).await?;
    objects(numbers(folder.path(), 900), "counted")?;
    objects(under_fences(folder.path(), 900), "Line")
}

async fn a_fence_that_stands_still_is_seen(world: World) -> Checked {
    let folder = tempfile::tempdir()?;
    count_up(&world, folder.path(), [Planted::Nothing, Planted::FirstFence], 20).await?;
    numbers(folder.path(), 40)?;
    objects(under_fences(folder.path(), 40), "did not grow")
}

/// A process each bug.
async fn count_up<const N: usize>(world: &World, folder: &Path, bugs: [Planted; N], times: u32) -> Checked {
    std::fs::write(folder.join(COUNTER), "0")?;
    let mut processes = bugs.map(|bug| Remote::planted(world, bug)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let path = folder.to_str().ok_or("a path of UTF-8")?;
    let words = ["count", "counter", path, &times.to_string()];
    let counting: Vec<_> = processes.iter_mut().map(|process| process.begin(&words)).collect::<Result<_, _>>()?;
    for pending in counting {
        // The limit of the trial is theirs.
        pending.await?.must_be(&["counted"])?;
    }
    Ok(())
}

fn numbers(folder: &Path, expected: u64) -> Checked {
    let counted: u64 = std::fs::read_to_string(folder.join(COUNTER))?.trim().parse()?;
    if counted == expected { Ok(()) } else { Err(format!("counted {counted} instead of {expected}").into()) }
}

fn under_fences(folder: &Path, expected: usize) -> Checked {
    let times = Ledger::at(&folder.join(LEDGER)).check(&Killed::new())?;
    if times == expected { Ok(()) } else { Err(format!("{times} turns instead of {expected}").into()) }
}

async fn a_hundred_waiters_in_ten_processes(world: World) -> Checked {
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().ok_or("a path of UTF-8")?;
    let holder = world.client().await?;
    let held = holder.lock("a")?.acquire().await?;
    let mut processes = Remote::several::<10>(&world)?;
    let mut waiting = Vec::new();
    for process in &mut processes {
        for _ in 0..10 {
            waiting.push(process.begin(&["turn", path, "name=a"])?);
        }
    }
    for process in &mut processes {
        asleep(process, "a").await?;
    }
    held.release().await?;
    for pending in waiting {
        answered(pending).await?.must_be(&["done"])?;
    }
    under_fences(folder.path(), 100)?;
    world.empty().await
}
