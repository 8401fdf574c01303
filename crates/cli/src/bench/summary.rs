//! The summary that `bench` prints: the numbers, and the histogram below them.

use std::fmt::Write;

use anstyle::Style;

use super::chart;
use super::report::{More, Report};
use super::tally::Times;
use crate::human;

const HEAD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// The whole text. Styles are removed later if not wanted; `fancy` allows characters for terminals only.
pub(crate) fn text(report: &Report, times: &Times, fancy: bool) -> String {
    let store = human::plain(&report.store);
    let mut text = format!("{HEAD}{}{HEAD:#} on {store}, {} s\n\n", report.workload, short(report.seconds));
    for (what, value, note) in rows(report) {
        // Writing to a string does not fail.
        let _ = match note.as_str() {
            "" => writeln!(text, "{what:>9}  {value}"),
            note => writeln!(text, "{what:>9}  {value:<14} {FAINT}{note}{FAINT:#}"),
        };
    }
    if !times.is_empty() {
        let _ = writeln!(text, "\n{HEAD}{}{HEAD:#}", what_was_timed(report));
    }
    for line in chart::draw(times, fancy) {
        text.push_str(&line);
        text.push('\n');
    }
    text.pop();
    text
}

fn rows(report: &Report) -> Vec<(&'static str, String, String)> {
    let each = report.store_calls as f64 / report.ops.max(1) as f64;
    let us = |us: f64| time(us * 1_000.0);
    let mut rows = vec![
        ("ops", count(report.ops), format!("{} a second", count(report.ops_per_s as u64))),
        ("p50", us(report.p50_us), format!("p99 {}, p99.9 {}", us(report.p99_us), us(report.p999_us))),
        ("max", us(report.max_us), String::new()),
        ("calls", count(report.store_calls), format!("to the store, {} an op", short(each))),
        ("errors", count(report.errors), String::new()),
    ];
    match &report.more {
        More::Nothing {} => {}
        More::Crowd(crowd) => {
            let note = format!("from a release to the grant in another process; p99 {}", us(crowd.hand_off_p99_us));
            rows.push(("hand-off", us(crowd.hand_off_p50_us), note));
            let note = format!("of the mean has the slowest of {} processes", crowd.processes);
            rows.push(("share", format!("{} %", short(100.0 * crowd.smallest_share)), note));
        }
        More::Hold(hold) => {
            rows.push(("held", count(hold.held), format!("at a time, for {} s", short(hold.hold_seconds))));
            rows.push(("lost", count(hold.lost), String::new()));
            let of =
                if hold.hold_calls == 0 { "of one core; too short for a renewal, see --for" } else { "of one core" };
            rows.push(("keeping", format!("{} %", short(hold.cpu_percent)), of.to_owned()));
        }
    }
    rows
}

fn what_was_timed(report: &Report) -> &'static str {
    match report.workload {
        "hot" | "crowd" => "     waiting, taking and releasing",
        _ => "     taking and releasing",
    }
}

/// A number with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time with three digits and its unit.
pub(crate) fn time(nanos: f64) -> String {
    match nanos {
        nanos if nanos < 1e3 => format!("{} ns", nanos.round()),
        nanos if nanos < 1e6 => format!("{} µs", short(nanos / 1e3)),
        nanos if nanos < 1e9 => format!("{} ms", short(nanos / 1e6)),
        nanos => format!("{} s", short(nanos / 1e9)),
    }
}

/// Three significant digits, or all digits before the decimal point.
fn short(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_people_write_them() {
        assert_eq!([count(0), count(999), count(1_000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        let times = [0.0, 999.4, 1_500.0, 23_456.0, 654_321.0, 1.2e6, 3e9].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.50 µs", "23.5 µs", "654 µs", "1.20 ms", "3.00 s"]);
    }
}
