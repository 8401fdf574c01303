//! Running worlds: one, or many on several threads.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::invariants::Violation;
use crate::quorum::{self, Drift};
use crate::world::{History, World};

/// Which worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Clients of one store.
    #[default]
    Store,
    /// Clients of a quorum.
    Quorum(Drift),
}

/// A seed whose world broke an invariant.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What broke.
    pub violation: Violation,
}

/// Runs the world of a seed.
///
/// # Errors
///
/// The first invariant that did not hold.
pub fn check(kind: Kind, seed: u64) -> Result<History, Violation> {
    calmly(|| match kind {
        Kind::Store => World::new(seed, false).run(),
        Kind::Quorum(drift) => quorum::World::new(seed, drift, false).run(),
    })
}

/// A panic is a broken invariant of the code itself.
fn calmly(run: impl FnOnce() -> Result<History, Violation>) -> Result<History, Violation> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Violation { invariant: "no panic", name: None, what: "the code itself panicked".into() })
    })
}

/// Runs the world of a seed and tells its story; unless the `whole` is wanted, cut down to the name where something broke.
pub fn tell(kind: Kind, seed: u64, whole: bool) -> (String, Result<History, Violation>) {
    if let Kind::Quorum(drift) = kind {
        let mut world = quorum::World::new(seed, drift, true);
        let result = calmly(|| world.run());
        return (world.timeline(), result);
    }
    let mut world = World::new(seed, true);
    let result = calmly(|| world.run());
    let name = result.as_ref().err().and_then(|violation| violation.name).filter(|_| !whole);
    let tables = if whole { world.tables() } else { String::new() };
    (world.timeline(name) + &tables, result)
}

/// The command that repeats a world.
pub fn command(kind: Kind, seed: u64) -> String {
    let kind = match kind {
        Kind::Store => "",
        Kind::Quorum(Drift::Assumed) => "--quorum ",
        Kind::Quorum(Drift::Beyond) => "--quorum --beyond ",
    };
    format!("cargo run --profile sim -p leasehold-sim -- {kind}--seed {seed}")
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Sum {
    /// Worlds run.
    pub worlds: u64,
    /// Events in all of them.
    pub events: u64,
    /// Grants in all of them.
    pub grants: u64,
    /// What broke, in order of seeds, at most a few.
    pub failures: Vec<Failure>,
}

const SEEDS_AT_A_TIME: u64 = 64;

/// Runs seeds `from..from + count` on `threads` threads; stops after `failures_max` failures.
pub fn sweep(kind: Kind, from: u64, count: u64, threads: usize, failures_max: usize, progress: bool) -> Sum {
    let next = AtomicU64::new(from);
    let sum = Mutex::new(Sum::default());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| sweep_some(kind, &next, from + count, &sum, failures_max, progress.then_some(begun)));
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum.failures.sort_by_key(|failure| failure.seed);
    sum
}

fn sweep_some(kind: Kind, next: &AtomicU64, end: u64, sum: &Mutex<Sum>, failures_max: usize, begun: Option<Instant>) {
    loop {
        let first = next.fetch_add(SEEDS_AT_A_TIME, Ordering::Relaxed);
        if first >= end {
            return;
        }
        let results: Vec<_> = (first..end.min(first + SEEDS_AT_A_TIME)).map(|seed| (seed, check(kind, seed))).collect();
        let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sum.add(results);
        if sum.failures.len() >= failures_max {
            return;
        }
        if let Some(begun) = begun
            && sum.worlds.is_multiple_of(SEEDS_AT_A_TIME * 512)
        {
            eprintln!("{} worlds, {:.0} a second", sum.worlds, sum.worlds as f64 / begun.elapsed().as_secs_f64());
        }
    }
}

impl Sum {
    fn add(&mut self, results: Vec<(u64, Result<History, Violation>)>) {
        for (seed, result) in results {
            self.worlds += 1;
            match result {
                Ok(history) => {
                    self.events += history.events;
                    self.grants += history.grants;
                }
                Err(violation) => self.failures.push(Failure { seed, violation }),
            }
        }
    }
}
