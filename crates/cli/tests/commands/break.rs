//! `break`: for operators.

use std::time::Instant;

use crate::harness::{Place, Running};

#[test]
fn it_is_refused_without_yes_and_says_who_would_lose_the_lock() {
    let place = Place::new();
    place.run(&["acquire", "a", "--label", "nightly"]).is(0);
    place.run(&["break", "a"]).fails(64, "nightly").fails(64, "who has held it for").fails(64, "--yes");
    place.run(&["break", "a", "--now"]).fails(64, "nightly");
    place.run(&["break", "free"]).fails(64, "--yes").fails(64, "'leasehold show free'");
    assert!(place.is_held("a"));
}

/// Its holder is told lost, and others come when its lease has run out.
#[test]
fn at_the_end_of_the_lease() {
    let place = Place::new();
    let began = Instant::now();
    let taken = place.run(&["acquire", "a", "--owner", "me", "--lease", "1s", "--json"]).is(0).json();
    place.run(&["break", "a", "--yes"]).is(0).says("me").says("free in");
    place.run(&["renew", "a", "--owner", "me", "--lease", "1m"]).is(77);
    let next = place.run(&["acquire", "a", "--wait", "20s", "--json"]).is(0).json();
    assert!(began.elapsed().as_millis() >= 1_000, "it was freed at once");
    assert!(next["fence"].as_u64() > taken["fence"].as_u64());
}

#[test]
fn at_once() {
    let place = Place::new();
    let fence = place.acquire("a", "me");
    let mut waiting = Running::start(&mut place.command(&["acquire", "a", "--json", "-vv"]));
    waiting.until_it_says("Waits");
    place.run(&["break", "a", "--yes", "--now"]).is(0).says("free now");
    assert!(waiting.ended().is(0).json()["fence"].as_u64().unwrap() > fence, "the fence count was touched");
    place.run(&["release", "a", "--owner", "me"]).is(77);
}

#[test]
fn a_free_name_has_nothing_to_break() {
    let place = Place::new();
    place.run(&["break", "a", "--yes"]).is(0).says("free");
    place.run(&["break", "a,b", "--yes", "--now"]).is(0).says("\"a\" is free").says("\"b\" is free");
}
