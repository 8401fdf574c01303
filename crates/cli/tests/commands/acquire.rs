//! `acquire`: a fixed lease that outlives the process.

use std::time::Instant;

use serde_json::json;

use crate::harness::{FIELDS, Place, Running, fields};

#[test]
fn it_prints_owner_and_fence_and_leaves_the_lock_behind() {
    let place = Place::new();
    let ran = place.run(&["acquire", "a"]);
    let (owner, fence) = ran.is(0).out.trim_end().split_once('\n').unwrap();
    let shown = place.shown("a");
    assert_eq!(owner, format!("owner: {}", shown["owner"].as_str().unwrap()));
    assert_eq!(fence, format!("fence: {}", shown["fence"]));
    assert_eq!(shown["lease_ms"], 30_000);
    assert_eq!(ran.err, "");
}

#[test]
fn json_has_every_field() {
    let place = Place::new();
    let row =
        place.run(&["acquire", "a", "--lease", "5s", "--owner", "me", "--label", "nightly", "--json"]).is(0).json();
    let mut expected = FIELDS;
    expected.sort_unstable();
    assert_eq!(fields(&row), expected);
    for (field, value) in [
        ("name", json!("a")),
        ("granted", json!(true)),
        ("held", json!(true)),
        ("owner", json!("me")),
        ("label", json!("nightly")),
        ("holds", json!(1)),
        ("lease_ms", json!(5_000)),
        ("waiters", json!(0)),
        ("store", json!(place.store())),
    ] {
        assert_eq!(row[field], value, "{field}");
    }
    assert!(row["fence"].as_u64().unwrap() > 0);
    assert!((1..=5_000).contains(&row["left_ms"].as_u64().unwrap()));
    assert!(row["pid"].as_u64().unwrap() > 1);
    assert!(!row["host"].as_str().unwrap().is_empty());
    let since = row["since"].as_str().unwrap();
    assert!(since.len() >= 20 && since.as_bytes()[10] == b'T' && since.ends_with('Z'), "{since}");
}

#[test]
fn busy_says_who_has_it() {
    let place = Place::new();
    let fence = place.acquire("a", "first");
    let busy = place.run(&["acquire", "a", "--no-wait"]);
    busy.fails(75, "first");
    assert!(busy.err.contains(&place.store()), "{busy:?}");
    assert_eq!(busy.out, "");
    let row = place.run(&["acquire", "a", "--no-wait", "--json"]).is(75).json();
    assert_eq!(row["granted"], false);
    assert_eq!(row["held"], true);
    assert_eq!(row["owner"], "first");
    assert_eq!(row["fence"], fence);
}

#[test]
fn a_wait_runs_out() {
    let place = Place::new();
    place.acquire("a", "first");
    let began = Instant::now();
    place.run(&["acquire", "a", "--wait", "300ms"]).fails(75, "waited for 300ms");
    assert!(began.elapsed().as_millis() >= 300);
    place.run(&["release", "a", "--owner", "first"]).is(0);
    place.nothing_is_left("a");
}

#[test]
fn without_a_limit_it_waits_for_its_turn() {
    let place = Place::new();
    let first = place.acquire("a", "first");
    let mut waiting = Running::start(&mut place.command(&["acquire", "a", "--json", "-vv"]));
    waiting.until_it_says("waits for");
    place.run(&["release", "a", "--owner", "first"]).is(0);
    let row = waiting.ended().is(0).json();
    assert!(row["fence"].as_u64().unwrap() > first);
}

#[test]
fn the_lease_ends_by_itself() {
    let place = Place::new();
    let first = place.run(&["acquire", "a", "--lease", "500ms", "--json"]).is(0).json();
    let second = place.run(&["acquire", "a", "--wait", "20s", "--json"]).is(0).json();
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
    assert_ne!(second["owner"], first["owner"], "each has an owner of its own");
}

#[test]
fn the_same_owner_re_enters() {
    let place = Place::new();
    let fence = place.acquire("a", "me");
    let again = place.run(&["acquire", "a", "--owner", "me", "--no-wait", "--json"]).is(0).json();
    assert_eq!((&again["fence"], &again["holds"]), (&json!(fence), &json!(2)));
}

#[test]
fn several_names_are_taken_together_or_not_at_all() {
    let place = Place::new();
    let taken = place.run(&["acquire", r"b,a,b,c\,d", "--json"]).is(0).json();
    assert_eq!(taken["granted"], true);
    let names: Vec<_> = taken["locks"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c,d"]);
    let busy = place.run(&["acquire", "a,x", "--no-wait", "--json"]).is(75).json();
    assert_eq!(busy["granted"], false);
    assert_eq!((&busy["locks"][0]["held"], &busy["locks"][1]["held"]), (&json!(true), &json!(false)));
    assert!(!place.is_held("x"), "one of the two was taken");
    let printed = place.run(&["acquire", "y,z", "--owner", "me"]);
    let fence = |name| place.shown(name)["fence"].to_string();
    assert_eq!(printed.is(0).out, format!("owner: me\nfence: y={},z={}\n", fence("y"), fence("z")));
}

/// No one would know of it.
#[test]
#[cfg(target_os = "linux")]
fn what_cannot_be_said_is_given_back() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = Running::start(place.command(&["acquire", "a"]).stdout(full)).ended();
    ran.is(74);
    assert!(ran.err.contains("could not be written"), "{ran:?}");
    place.nothing_is_left("a");
}

#[test]
fn a_store_that_ends_with_the_process_is_unfit_for_it() {
    let place = Place::new();
    place.run(&["acquire", "a", "--store", "memory:"]).fails(78, "memory:");
}
