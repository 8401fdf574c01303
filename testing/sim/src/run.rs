//! Running worlds: one, many on several threads, and with each known bug switched on.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use leasehold_core::planted::Bug;

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
pub fn check(kind: Kind, seed: u64, bug: Option<Bug>) -> Result<History, Violation> {
    calmly(|| match kind {
        Kind::Store => World::new(seed, bug, false).run(),
        Kind::Quorum(drift) => quorum::World::new(seed, bug, drift, false).run(),
    })
}

/// A panic is a broken invariant of the code itself.
fn calmly(run: impl FnOnce() -> Result<History, Violation>) -> Result<History, Violation> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Violation { invariant: "no panic", name: None, what: "the code itself panicked".into() })
    })
}

/// Runs the world of a seed and tells its story; unless the `whole` is wanted, cut down to the name where something broke.
pub fn tell(kind: Kind, seed: u64, bug: Option<Bug>, whole: bool) -> (String, Result<History, Violation>) {
    if let Kind::Quorum(drift) = kind {
        let mut world = quorum::World::new(seed, bug, drift, true);
        let result = calmly(|| world.run());
        return (world.timeline(), result);
    }
    let mut world = World::new(seed, bug, true);
    let result = calmly(|| world.run());
    let name = result.as_ref().err().and_then(|violation| violation.name).filter(|_| !whole);
    let tables = if whole { world.tables() } else { String::new() };
    (world.timeline(name) + &tables, result)
}

/// The command that repeats a world.
pub fn command(kind: Kind, seed: u64, bug: Option<Bug>) -> String {
    let kind = match kind {
        Kind::Store => "",
        Kind::Quorum(Drift::Assumed) => "--quorum ",
        Kind::Quorum(Drift::Beyond) => "--quorum --beyond ",
    };
    let bug = bug.map_or(String::new(), |bug| format!("--bug {bug:?} "));
    format!("cargo run --profile sim -p leasehold-sim -- {kind}{bug}--seed {seed}")
}

/// The first seed from `from` on that catches a bug, among at most `most`.
pub fn first_caught(kind: Kind, bug: Bug, from: u64, most: u64) -> Option<(u64, Violation)> {
    (from..from + most).find_map(|seed| Some((seed, check(kind, seed, Some(bug)).err()?)))
}

/// Which invariants stand against a bug.
pub fn reasons(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::DeadlineFromReply
        | Bug::ResentDeadlineFull
        | Bug::PassedAfterDeadline
        | Bug::ReentersAfterDeadline
        | Bug::ClockSleeps
        | Bug::JumpIgnored => {
            &["exclusion", "backing", "fence order", "lost before", "only the holder releases", "results of release"]
        }
        Bug::LostOnlyByReply => &["lost before", "invalid stays invalid"],
        Bug::KeeperStopsAtPartialRelease => &["keeping", "results of extend"],
        Bug::BlockNotRecorded
        | Bug::FenceOfRecordOnly
        | Bug::LossUnsuspected
        | Bug::FenceAheadOfClock
        | Bug::PassedSameFence => &["fence order", "passing on"],
        Bug::RenewalRevives => &["no revival"],
        Bug::ResentReleaseCounts | Bug::FailedRenewalReleases | Bug::ReleaseIgnoresFence | Bug::ReleaseIgnoresOwner => {
            &["only the holder releases", "keeping"]
        }
        Bug::NoGivingWay => &["starvation"],
        Bug::CancelledAskerStrandsQueue | Bug::HintsNobody | Bug::LostHintCostsLease | Bug::HintInFlightForgotten => {
            &["wake-up"]
        }
        Bug::HintsEverybody => &["no herd"],
        Bug::AtLeastForgotten | Bug::LingerIgnored => &["at least"],
        Bug::MaxHoldIgnored => &["own end"],
        Bug::EndedLeaseKept => &["term"],
        Bug::GoneReleasedFine => &["results of release"],
        Bug::ExtendsLost | Bug::ExtendsNothing => &["results of extend"],
        Bug::TriesWait => &["prompt tries"],
        Bug::BudgetIgnored | Bug::PassedToLonger | Bug::FencesUnpaced => &["passing on"],
        Bug::BlockRestKept => &["blocks"],
        Bug::PatienceIgnored | Bug::PatienceEndless => &["patience"],
        Bug::GroupReenters => &["already held"],
        Bug::BrokenRenewed => &["breaking"],
        Bug::NoDrift
        | Bug::NoQuarantine
        | Bug::QuarantineByUptime
        | Bug::QuarantineByBirthKey
        | Bug::ValidityFromReply
        | Bug::AnewProlongs => {
            &["exclusion", "fence order", "granted by a majority", "kept by a majority", "quarantine"]
        }
        Bug::ReleaseOnlyGranted | Bug::AnewAfterRelease | Bug::AnewOvertaken | Bug::OvertakenByBallot => {
            &["nothing left over"]
        }
        Bug::FenceByMax => &["fence order", "near the clock"],
        Bug::ExtensionRecreates => &["no revival"],
        // Whatever stays behind is found at the end, or by those who wait for it.
        _ => &["nothing left over", "wake-up"],
    }
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
pub fn sweep(
    kind: Kind,
    from: u64,
    count: u64,
    bug: Option<Bug>,
    threads: usize,
    failures_max: usize,
    progress: bool,
) -> Sum {
    let next = AtomicU64::new(from);
    let sum = Mutex::new(Sum::default());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| sweep_some(kind, &next, from + count, bug, &sum, failures_max, progress.then_some(begun)));
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum.failures.sort_by_key(|failure| failure.seed);
    sum
}

fn sweep_some(
    kind: Kind,
    next: &AtomicU64,
    end: u64,
    bug: Option<Bug>,
    sum: &Mutex<Sum>,
    failures_max: usize,
    begun: Option<Instant>,
) {
    loop {
        let first = next.fetch_add(SEEDS_AT_A_TIME, Ordering::Relaxed);
        if first >= end {
            return;
        }
        let results: Vec<_> =
            (first..end.min(first + SEEDS_AT_A_TIME)).map(|seed| (seed, check(kind, seed, bug))).collect();
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
