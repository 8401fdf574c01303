//! `hold`: a kept lock for any language.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{FIELDS, Place, Running, fields};

/// Holds `a` until it is told to end.
fn hold(place: &Place, args: &[&str]) -> Running {
    Running::start(place.command(&[&["hold", "a"], args].concat()).stdin(Stdio::piped()))
}

#[test]
fn until_standard_input_closes() {
    let place = Place::new();
    let mut holding = hold(&place, &[]);
    let line = holding.line();
    let shown = place.shown("a");
    assert_eq!(line, format!("holding a, fence {}", shown["fence"]));
    assert_eq!((&shown["held"], &shown["lease_ms"]), (&Value::from(true), &Value::from(30_000)));
    drop(holding.stdin.take());
    holding.ended().is(0);
    place.nothing_is_left("a");
}

#[test]
fn until_a_signal_comes() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let place = Place::new();
        let mut holding = hold(&place, &[]);
        holding.line();
        holding.signal(signal);
        holding.ended().is(0);
        place.nothing_is_left("a");
    }
}

#[test]
fn json_has_every_field() {
    let place = Place::new();
    let mut holding = hold(&place, &["--json", "--keep", "5s", "--owner", "me", "--label", "nightly"]);
    let row: Value = serde_json::from_str(&holding.line()).unwrap();
    let mut expected = FIELDS;
    expected.sort_unstable();
    assert_eq!(fields(&row), expected);
    assert_eq!((&row["granted"], &row["lease_ms"]), (&Value::from(true), &Value::from(5_000)));
    assert_eq!((&row["owner"], &row["label"]), (&Value::from("me"), &Value::from("nightly")));
    assert_eq!(row["pid"], holding.child.id());
}

/// It is renewed for longer than its lease, which leaves a busy machine some time.
#[test]
fn it_keeps_the_lock() {
    let place = Place::new();
    let mut holding = hold(&place, &["--keep", "4s", "-vv"]);
    holding.line();
    holding.until_it_has_said(4, "renewed a lease");
    place.run(&["acquire", "a", "--no-wait"]).is(75);
    drop(holding.stdin.take());
    holding.ended().is(0);
}

#[test]
fn a_lost_lock_ends_it() {
    let place = Place::new();
    let mut holding = hold(&place, &["--keep", "3s"]);
    holding.line();
    place.run(&["break", "a", "--yes", "--now"]).is(0);
    holding.ended().fails(76, "lost");
}

#[test]
fn busy_and_several() {
    let place = Place::new();
    place.acquire("a", "first");
    hold(&place, &["--no-wait"]).ended().fails(75, "first");
    assert_eq!(hold(&place, &["--no-wait", "--json"]).ended().is(75).json()["owner"], "first");
    hold(&place, &["--wait", "200ms"]).ended().fails(75, "200ms");
    let mut both = Running::start(place.command(&["hold", "c,b", "--json"]).stdin(Stdio::piped()));
    let rows: Value = serde_json::from_str(&both.line()).unwrap();
    assert_eq!((&rows["locks"][0]["name"], &rows["locks"][1]["name"]), (&Value::from("b"), &Value::from("c")));
    drop(both.stdin.take());
    both.ended().is(0);
    assert!(!place.is_held("b") && !place.is_held("c"));
}

#[test]
fn a_killed_holder_frees_the_lock() {
    let place = Place::new();
    let mut holding = hold(&place, &[]);
    holding.line();
    holding.signal(Signal::KILL);
    place.run(&["acquire", "a", "--wait", "20s"]).is(0);
}

#[test]
fn of_several_the_one_that_was_lost_is_told() {
    let place = Place::new();
    let mut hold = Running::start(place.command(&["hold", "a,b", "--keep", "3s"]).stdin(std::process::Stdio::piped()));
    hold.line();
    place.run(&["break", "b", "--yes", "--now"]).is(0);
    let ended = hold.ended();
    ended.fails(76, "lost \"b\"");
}
