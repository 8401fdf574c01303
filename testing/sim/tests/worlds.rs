//! Some worlds run clean, and the same seed gives the same history.

use leasehold_sim::quorum::Drift;
use leasehold_sim::run::{self, Kind};

const SEEDS: u64 = 2_000;

#[test]
fn worlds_run_clean() {
    let sum = run::sweep(Kind::Store, 0, SEEDS, 2, 5, false);
    let failures: Vec<String> =
        sum.failures.iter().map(|f| format!("{:?}\n  {}", f.violation, run::command(Kind::Store, f.seed))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.grants > SEEDS, "hardly anything was granted: {}", sum.grants);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..100 {
        assert_eq!(run::check(Kind::Store, seed), run::check(Kind::Store, seed), "seed {seed}");
    }
    assert_ne!(run::check(Kind::Store, 1).unwrap().digest, run::check(Kind::Store, 2).unwrap().digest);
}

#[test]
fn quorums_run_clean() {
    let kind = Kind::Quorum(Drift::Assumed);
    let sum = run::sweep(kind, 0, SEEDS / 4, 2, 5, false);
    let failures: Vec<String> =
        sum.failures.iter().map(|f| format!("{:?}\n  {}", f.violation, run::command(kind, f.seed))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.grants > SEEDS / 4, "hardly anything was granted: {}", sum.grants);
}
