//! Processes that come and go, killed at random moments, beside ones that stay.

use super::PROCESSES;
use crate::case::{Checked, Failure, Need};
use crate::child::work::LEDGER;
use crate::ledger::{Killed, Ledger};
use crate::remote::{Pending, Remote};
use crate::world::{World, eventually};
use std::time::Duration;

use leasehold_core::backoff::Rng;

crate::cases! {
    async three_hundred_kills needs [PROCESSES, Need::Fences];
}

/// How many are killed in all, and how many of them are there at a time.
const KILLS: usize = 300;
const AT_A_TIME: usize = 6;
/// The longest time that one lives once it works.
const LIFE_MICROS: u64 = 8_000;

async fn three_hundred_kills(world: World) -> Checked {
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().ok_or("a path of UTF-8")?;
    let ledger = Ledger::at(&folder.path().join(LEDGER));
    let mut stay = Remote::several::<2>(&world)?;
    let mut works: Vec<Pending> = Vec::new();
    for process in &mut stay {
        works.push(process.begin(&["work", "a", path])?);
    }
    let mut killed = come_and_go(&world, path).await?;
    let before = ledger.check(&killed)?;
    // Those that stay go on.
    eventually(async || ledger.check(&killed).is_ok_and(|turns| turns > before + 20)).await?;
    assert!(works.iter_mut().all(Pending::is_open), "one that stayed has ended");
    for mut process in stay {
        killed.insert(process.who, process.kill()?);
    }
    ledger.check(&killed)?;
    world.empty().await?;
    world.whole().await
}

async fn come_and_go(world: &World, path: &str) -> Result<Killed, Failure> {
    let (mut killed, mut rng) = (Killed::new(), world.rng());
    let start = || {
        let mut process = Remote::start(world)?;
        let ready = process.begin(&["ready"])?;
        let _works = process.begin(&["work", "a", path])?;
        Ok::<_, Failure>((process, ready))
    };
    let mut there = std::collections::VecDeque::new();
    for _ in 0..AT_A_TIME {
        there.push_back(start()?);
    }
    while let Some((mut process, ready)) = there.pop_front() {
        if killed.len() + there.len() + 1 < KILLS {
            there.push_back(start()?);
        }
        super::answered(ready).await?;
        tokio::time::sleep(life(&mut rng)).await;
        killed.insert(process.who, process.kill()?);
    }
    Ok(killed)
}

fn life(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(LIFE_MICROS))
}
