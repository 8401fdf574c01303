//! `file:` under several processes and many locks: `leasehold bench` run as users run it.

use crate::figure::Figure;
use crate::place::Place;
use crate::program::{bench, number};
use crate::ratio::Sample;

const ROUNDS: usize = 5;

/// Eight processes on one name: how fast it goes from one to the next, and how evenly.
pub(crate) fn crowd() -> Vec<Figure> {
    let place = Place::new();
    let reports: Vec<_> =
        (0..ROUNDS).map(|_| bench(&place.url(), &["--workload", "crowd", "--processes", "8", "--for", "3s"])).collect();
    let of = |field: &str| Sample::new(reports.iter().map(|report| number(report, field)).collect());
    vec![
        Figure::median("file: 8 processes on one name, grants", &of("ops_per_s"), "/s"),
        Figure::median("from a release to the next grant, median", &of("hand_off_p50_us"), "us").at_most(1_000.0),
        Figure::median("… 99th percentile", &of("hand_off_p99_us"), "us"),
        Figure::median("share of the slowest process, of the mean", &of("smallest_share"), "").at_least(0.5),
    ]
}

/// A hundred thousand locks kept by one process.
pub(crate) fn hold() -> Vec<Figure> {
    let report = bench(&Place::new().url(), &["--workload", "hold", "--tasks", "100000", "--for", "60s"]);
    vec![
        Figure::told("file: 100,000 held locks: lost", number(&report, "lost"), "").at_most(0.0),
        Figure::told("processor while they are kept, of one core", number(&report, "cpu_percent"), "%").at_most(20.0),
        Figure::told("taking them all", number(&report, "take_seconds"), "s"),
        Figure::told("releasing them all", number(&report, "release_seconds"), "s"),
    ]
}
