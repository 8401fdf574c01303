//! A histogram drawn with characters, 80 columns wide. Rows grow by a constant factor, and quantiles stand beside their
//! row.

use anstyle::{AnsiColor, Style};

use super::summary::{count, time};
use super::tally::Times;

const BARS: Style = AnsiColor::Cyan.on_default();
/// Columns of the longest bar.
const BAR: usize = 42;
/// More rows than this are drawn with larger steps.
const ROWS_MAX: usize = 18;
/// Steps between rows, as parts of a doubling.
const STEPS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Eighths of a column.
const BLOCKS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// One row: times from here up to the next row.
struct Row {
    from_nanos: f64,
    count: u64,
    marks: Vec<&'static str>,
}

/// Draws it, one line per row. `fancy` is for terminals.
pub(crate) fn draw(times: &Times, fancy: bool) -> Vec<String> {
    let rows = rows(times);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    rows.iter().map(|row| line(row, most, fancy)).collect()
}

fn line(row: &Row, most: u64, fancy: bool) -> String {
    let bar = if fancy { blocks(row.count, most) } else { signs(row.count, most) };
    let (wall, style) = if fancy { ('│', BARS) } else { ('|', Style::new()) };
    let (from, count) = (time(row.from_nanos), if row.count == 0 { String::new() } else { count(row.count) });
    let bar = format!("{style}{bar:<BAR$}{style:#}");
    format!("{from:>9} {wall}{bar} {count:>11}  {}", row.marks.join(" ")).trim_end().to_owned()
}

/// A bar of whole columns; at least one if the count is not zero.
fn signs(count: u64, most: u64) -> String {
    let columns = (count as f64 / most.max(1) as f64 * BAR as f64).round() as usize;
    "#".repeat(columns.max(usize::from(count > 0)))
}

/// A bar with eighths of columns; at least one eighth if the count is not zero.
fn blocks(count: u64, most: u64) -> String {
    let eighths = (count as f64 / most.max(1) as f64 * (BAR * 8) as f64).round() as usize;
    let eighths = eighths.max(usize::from(count > 0));
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(BLOCKS[eighths % 8 - 1]);
    }
    bar
}

fn rows(times: &Times) -> Vec<Row> {
    if times.is_empty() {
        return Vec::new();
    }
    let (least, most) = (times.min().max(1) as f64, times.max().max(1) as f64);
    let number = |nanos: f64, step: f64| (nanos.log2() / step).floor() as i32;
    let fits = |step: &&f64| ((number(most, **step) - number(least, **step)) as usize) < ROWS_MAX;
    let step = *STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]);
    let first = number(least, step);
    let row = |nanos: u64| (number((nanos.max(1)) as f64, step) - first).max(0) as usize;
    let last = row(times.max());
    let from_nanos = |index: usize| f64::from(first + index as i32) * step;
    let empty = |index| Row { from_nanos: from_nanos(index).exp2(), count: 0, marks: Vec::new() };
    let mut rows: Vec<Row> = (0..=last).map(empty).collect();
    for recorded in times.iter_recorded() {
        rows[row(recorded.value_iterated_to()).min(last)].count += recorded.count_since_last_iteration();
    }
    for (mark, quantile) in QUANTILES {
        rows[row(times.value_at_quantile(quantile)).min(last)].marks.push(mark);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tally::{add, no_times};
    use super::*;

    fn times() -> Times {
        let mut times = no_times();
        for (us, count) in [(20, 1_000), (25, 90_000), (30, 20_000), (60, 900), (400, 90), (9_000, 3)] {
            add(&mut times, us * 1_000, count);
        }
        times
    }

    #[test]
    fn it_fits_a_terminal_and_shows_everything() {
        for fancy in [true, false] {
            let plain = |line: &String| anstream::adapter::strip_str(line).to_string();
            let lines: Vec<String> = draw(&times(), fancy).iter().map(plain).collect();
            assert!(lines.len() <= ROWS_MAX, "{lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
            for (mark, _) in QUANTILES {
                assert_eq!(lines.iter().filter(|line| line.split(' ').any(|word| word == mark)).count(), 1, "{mark}");
            }
        }
        assert_eq!(rows(&times()).iter().map(|row| row.count).sum::<u64>(), times().len());
    }

    #[test]
    fn the_longest_bar_is_the_most_frequent_time() {
        let lines = draw(&times(), false);
        let longest = lines.iter().max_by_key(|line| line.matches('#').count()).unwrap();
        assert!(longest.contains("p50"), "{longest}");
        assert_eq!(longest.matches('#').count(), BAR);
    }

    #[test]
    fn one_value_and_none_are_drawn_too() {
        assert!(draw(&no_times(), true).is_empty());
        let mut one = no_times();
        add(&mut one, 0, 1);
        assert_eq!(draw(&one, true).len(), 1);
    }
}
