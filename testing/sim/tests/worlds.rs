//! Some worlds run clean, the same seed gives the same history, and every known bug is caught by an invariant that stands against it.

use leasehold_core::planted::Bug;
use leasehold_sim::quorum::Drift;
use leasehold_sim::run::{self, Kind};

const SEEDS: u64 = 2_000;
/// A bug that needs more seeds than this is not being looked for.
const SEEDS_FOR_A_BUG: u64 = 20_000;

#[test]
fn worlds_run_clean() {
    let sum = run::sweep(Kind::Store, 0, SEEDS, None, 2, 5, false);
    let failures: Vec<String> = sum
        .failures
        .iter()
        .map(|f| format!("{:?}\n  {}", f.violation, run::command(Kind::Store, f.seed, None)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.grants > SEEDS, "hardly anything was granted: {}", sum.grants);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..100 {
        assert_eq!(run::check(Kind::Store, seed, None), run::check(Kind::Store, seed, None), "seed {seed}");
    }
    assert_ne!(run::check(Kind::Store, 1, None).unwrap().digest, run::check(Kind::Store, 2, None).unwrap().digest);
}

#[test]
fn every_known_bug_is_caught_for_its_own_reason() {
    for bug in Bug::ALL {
        let caught = run::first_caught(Kind::Store, *bug, 0, SEEDS_FOR_A_BUG);
        let (seed, violation) = caught.unwrap_or_else(|| panic!("{bug:?} is not caught"));
        let reasons = run::reasons(*bug);
        assert!(reasons.contains(&violation.invariant), "{bug:?} is caught by {violation:?} with seed {seed}");
    }
}

#[test]
fn quorums_run_clean() {
    let kind = Kind::Quorum(Drift::Assumed);
    let sum = run::sweep(kind, 0, SEEDS / 4, None, 2, 5, false);
    let failures: Vec<String> =
        sum.failures.iter().map(|f| format!("{:?}\n  {}", f.violation, run::command(kind, f.seed, None))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.grants > SEEDS / 4, "hardly anything was granted: {}", sum.grants);
}
