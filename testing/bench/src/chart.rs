//! A picture of a table: horizontal bars, shortest time first.

use std::fmt::Write as _;

use crate::ratio::{Rounds, Row};

const WIDTH: f64 = 760.0;
const NAMES: f64 = 260.0;
const NUMBERS: f64 = 70.0;
const LINE: f64 = 26.0;
const TITLE: f64 = 34.0;
const OURS: &str = "#2f81f7";
const BARE: &str = "#8c959f";
const OTHERS: &str = "#d0a24c";

/// Draws the medians; a thin line on each bar is the spread of the rounds.
pub(crate) fn draw(title: &str, rounds: &Rounds) -> String {
    let mut rows: Vec<Row<'_>> = rounds.rows().collect();
    rows.sort_by(|one, other| one.sample.median().total_cmp(&other.sample.median()));
    let longest = rows.iter().map(|row| row.sample.largest()).fold(f64::MIN_POSITIVE, f64::max);
    let height = TITLE + LINE * rows.len() as f64 + 6.0;
    let scale = (WIDTH - NAMES - NUMBERS) / longest;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"13\" fill=\"#24292f\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"20\" font-weight=\"600\">{title}, {}</text>",
        rounds.unit()
    );
    for (index, row) in rows.iter().enumerate() {
        let _ = writeln!(svg, "{}", bar(row, TITLE + LINE * index as f64, scale));
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(row: &Row<'_>, top: f64, scale: f64) -> String {
    let (median, least, most) = (row.sample.median(), row.sample.smallest(), row.sample.largest());
    let (text, middle, length) = (top + 16.0, top + 12.0, median * scale);
    let (from, to, number) = (NAMES + least * scale, NAMES + most * scale, NAMES + most * scale + 6.0);
    format!(
        "<text x=\"{x}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
         <rect x=\"{NAMES}\" y=\"{y}\" width=\"{length:.1}\" height=\"18\" rx=\"2\" fill=\"{colour}\"/>\
         <path d=\"M{from:.1} {middle}H{to:.1}\" stroke=\"#24292f\"/>\
         <text x=\"{number:.1}\" y=\"{text}\">{median:.0}</text>",
        x = NAMES - 8.0,
        y = top + 3.0,
        name = row.name.replace('&', "&amp;").replace('<', "&lt;"),
        colour = colour(row.name),
    )
}

fn colour(name: &str) -> &'static str {
    match name {
        _ if name.contains("scripts") => BARE,
        _ if name.starts_with("leasehold") => OURS,
        _ => OTHERS,
    }
}
