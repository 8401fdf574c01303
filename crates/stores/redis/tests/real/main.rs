//! The store on real servers: what Redisson's own tests ask of a lock, defects of Redisson that must be absent, the keys that are
//! made, and the script that checks fences. The table in testing/redisson.md goes by the names of these cases.
//!
//! Without `redis-server` (or, for clocks, a C compiler) they show as ignored, unless LEASEHOLD_TEST_ALL is set: then that is a failure.

mod attacks;
mod ballots;
mod batches;
mod beside;
mod clock;
mod crowds;
mod defects;
mod failover;
mod fence_script;
mod holds;
mod hostile;
mod keys;
mod late;
mod owners;
mod paper;
mod poison;
mod prefix;
mod renewal;
mod rlock;
mod scene;
mod scripts;
mod stale;
mod strangers;
mod votes;
mod waitlists;

use std::process::ExitCode;

use leasehold_faults::servers::{Missing, Redis};
use libtest_mimic::{Arguments, Trial};

/// Every case.
const TOPICS: [&[scene::Case]; 24] = [
    attacks::CASES,
    ballots::CASES,
    beside::CASES,
    rlock::CASES,
    renewal::CASES,
    defects::CASES,
    keys::CASES,
    owners::CASES,
    fence_script::CASES,
    paper::CASES,
    poison::CASES,
    prefix::CASES,
    failover::CASES,
    clock::CASES,
    scripts::CASES,
    crowds::CASES,
    batches::CASES,
    late::CASES,
    waitlists::CASES,
    stale::CASES,
    strangers::CASES,
    holds::CASES,
    hostile::CASES,
    votes::CASES,
];

fn main() -> ExitCode {
    let (missing, clocks) = (Redis::is_there().err(), Redis::clock_is_settable().err());
    let missing_for = |name: &str| missing.as_ref().or_else(|| clocks.as_ref().filter(|_| name.starts_with("clock::")));
    let trials = TOPICS.iter().copied().flatten().map(|(name, run)| match missing_for(name) {
        Some(error) if Missing::may_be_ignored(error) => {
            Trial::test(format!("{name} [ignored: {error}]"), || Ok(())).with_ignored_flag(true)
        }
        _ => Trial::test(*name, || Ok(run()?)),
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
