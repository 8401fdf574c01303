//! The page that `--write` makes of all comparisons, and its picture.

use std::fmt::Write as _;
use std::path::Path;

use leasehold_faults::servers::Redis;

use crate::chart;
use crate::comparison::{Comparison, Effort};
use crate::machine::{machine, redis_version};
use crate::ratio::Row;

const INTRODUCTION: &str = "\
# Performance

This page is generated: `scripts/bench --write docs/performance.md` measures everything on it again,
and fails where a bound is missed. Compare figures of one run only: another machine has others.

One task takes and releases one free lock in turn. That is the commonest use of a lock, and the one
where a library cannot hide its own cost behind other work. A figure is the median of a pair.

Nothing is faster than its floor. A floor is the same work without a library: leasehold's own
scripts with real arguments, or the shortest scripts that any lock has, on a bare socket with
TCP_NODELAY, in the thread that calls. All contestants take turns within each round, so that a
noisy machine disturbs all alike. Ratios are taken within a round, and their median counts.

Peers are the newest versions of their packages, with their own defaults, each in a process of its
own that is warm before anything counts; rslock, a crate, runs in the process that measures. They
differ in what they do: redsync, redis-semaphore, redis-py, node-redlock and rslock have no fences
and tell nobody of a release; Redisson tells waiters of a release, and has fences in a lock of
another kind.
";

const FIGURES: &str = "
## Bounds

Each figure with a bound is checked. *Handoff* is the time from the call of a release to the grant
of another process, on one clock. Threads are counted by how often they go to sleep: a thread that
is woken slept before.

| figure | value | bound | |
|---|---|---|---|
";

/// Writes both.
pub(crate) fn write(path: &Path, compared: &[Comparison], effort: Effort) {
    let picture = path.with_extension("svg");
    let (title, rounds) = &compared[0].tables[0];
    std::fs::write(&picture, chart::draw(title, rounds)).expect("a picture that can be written");
    let picture = picture.file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::fs::write(path, text(compared, effort, &picture)).expect("a page that can be written");
}

fn text(compared: &[Comparison], effort: Effort, picture: &str) -> String {
    let server = Redis::start().expect("a server of Redis");
    let mut text = format!(
        "{INTRODUCTION}\n![medians as bars]({picture})\n\nMeasured with Redis {}, leasehold {}, on {}: {} rounds.\n",
        redis_version(&server),
        env!("CARGO_PKG_VERSION"),
        machine(),
        effort.rounds,
    );
    for (title, rounds) in compared.iter().flat_map(|comparison| &comparison.tables) {
        let unit = rounds.unit();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n| {} rounds | median, {unit} | smallest … largest | ratio to the first |\n|---|---|---|---|\n",
            rounds.count()
        );
        for Row { name, sample, ratio } in rounds.rows() {
            let (median, least, most) = (sample.median(), sample.smallest(), sample.largest());
            let _ = writeln!(text, "| {name} | {median:.1} | {least:.1} … {most:.1} | {ratio:.2} |");
        }
    }
    let ignored: Vec<&String> = compared.iter().flat_map(|comparison| &comparison.ignored).collect();
    if !ignored.is_empty() {
        text.push_str("\nIgnored, because their toolchain is missing:\n\n");
        text.extend(ignored.iter().map(|ignored| format!("- {ignored}\n")));
    }
    text.push_str(FIGURES);
    let figures = compared.iter().flat_map(|comparison| &comparison.figures);
    for figure in figures.filter(|figure| !figure.is_in_a_table()) {
        let _ = writeln!(text, "{}", figure.row());
    }
    text
}
