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

/// Its holder learns of the loss, and others get it when its lease has run out.
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

/// Until its lease is over it looks like any other lock, and its holder learns why it cannot continue.
#[test]
fn a_broken_lock_is_shown_as_broken() {
    let place = Place::new();
    let fence = place.acquire("a", "me").to_string();
    place.acquire("b", "me");
    assert_eq!(place.shown("a")["broken"], false);
    assert_eq!(place.shown("free")["broken"], serde_json::Value::Null);
    place.run(&["break", "a", "--yes"]).is(0);
    let row = place.shown("a");
    assert_eq!((&row["broken"], &row["held"], &row["owner"]), (&true.into(), &true.into(), &"me".into()));
    assert_eq!(place.shown("b")["broken"], false);
    place.run(&["show", "a"]).is(0).says("\"a\" was broken").says("me").says("left:");
    let table = place.run(&["list"]);
    assert_eq!(table.is(0).out.matches(", broken").count(), 1, "{table:?}");
    assert_eq!(place.run(&["list", "--json"]).json_lines()[0]["broken"], true);
    for renew in [&["renew", "a", "--owner", "me"][..], &["renew", "a", "--owner", "me", "--fence", &fence]] {
        let ran = place.run(renew);
        ran.fails(77, "was broken");
        assert!(!ran.err.contains(&fence), "it is its own fence: {ran:?}");
    }
    place.run(&["acquire", "a", "--owner", "me", "--no-wait"]).fails(75, "broken");
    let refused = place.run(&["acquire", "a", "--no-wait", "--json"]).is(75).json();
    assert_eq!((&refused["broken"], &refused["granted"]), (&true.into(), &false.into()));
    place.run(&["break", "a", "--yes"]).is(0).says("was broken already");
    place.run(&["release", "a", "--owner", "me"]).is(0);
    assert!(!place.is_held("a"));
}

#[test]
fn at_once() {
    let place = Place::new();
    let fence = place.acquire("a", "me");
    let mut waiting = Running::start(&mut place.command(&["acquire", "a", "--json", "-vv"]));
    waiting.until_it_says("waits for");
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

/// A decision to break one holder's lock does not break the next holder's.
#[test]
fn only_while_a_fence_holds_it() {
    let place = Place::new();
    let old = place.acquire("a", "me").to_string();
    place.run(&["release", "a", "--owner", "me"]).is(0);
    place.run(&["break", "a", "--yes", "--fence", &old]).is(0).says("\"a\" is free");
    let new = place.acquire("a", "you").to_string();
    for how in [&["--now"][..], &[]] {
        let refused = place.run(&[&["break", "a", "--yes", "--fence", &old], how].concat());
        refused.fails(77, &format!("not held under fence {old}")).fails(77, "'leasehold show a'");
    }
    let refused = place.run(&["break", "a", "--yes", "--fence", &old, "--json"]).is(77).json();
    assert_eq!((&refused["broke"], &refused["owner"]), (&false.into(), &"you".into()));
    assert_eq!(place.shown("a")["broken"], false);
    place.run(&["break", "a", "--yes", "--fence", &new]).is(0);
    assert_eq!(place.shown("a")["broken"], true);
    place.run(&["break", "a,b", "--yes", "--fence", &new]).fails(64, "one lock");
    place.run(&["break", "a", "--yes", "--fence", "new"]).fails(64, "a fence is a whole number");
}

/// It is not held under that fence: its cooldown and its fences are left alone.
#[test]
fn a_lock_that_is_not_held_is_left_alone_where_a_fence_is_given() {
    let place = Place::new();
    place.run(&["run", "a", "--at-least", "1m", "--", "true"]).is(0);
    for how in [&["--now"][..], &["--now", "--reset-fence"], &[]] {
        let refused = place.run(&[&["break", "a", "--yes", "--fence", "5"], how].concat());
        refused.fails(77, "not held under fence 5").fails(77, "lingering after");
    }
    place.run(&["show", "a"]).is(0).says("\"a\" lingers");
    let free = place.run(&["break", "b", "--yes", "--fence", "5", "--reset-fence"]);
    free.is(0).says("\"b\" is free");
    assert!(!free.err.contains("its fences begin again"), "{}", free.err);
}

#[test]
fn as_json() {
    let place = Place::new();
    place.run(&["break", "a", "--yes", "--json"]).is(0);
    let fence = place.acquire("a", "me");
    let broke = place.run(&["break", "a", "--yes", "--json"]).is(0).json();
    assert_eq!((&broke["broke"], &broke["name"], &broke["held"]), (&true.into(), &"a".into(), &true.into()));
    assert_eq!((&broke["fence"], &broke["owner"]), (&fence.into(), &"me".into()));
    let again = place.run(&["break", "a", "--yes", "--json"]).is(0).json();
    assert_eq!((&again["broke"], &again["broken"]), (&false.into(), &true.into()), "it was broken before");
    let both = place.run(&["break", "a,b", "--yes", "--now", "--json"]).is(0).json();
    let locks = both["locks"].as_array().unwrap();
    assert_eq!(
        (&locks[0]["broke"], &locks[1]["broke"], &locks[1]["held"]),
        (&true.into(), &false.into(), &false.into())
    );
    let nobody = place.run(&["break", "a", "--yes", "--json"]).is(0).json();
    assert_eq!((&nobody["broke"], &nobody["held"]), (&false.into(), &false.into()));
}

/// For a record that is ahead of the clock: what it means is said.
#[test]
fn a_fence_can_be_forgotten() {
    let place = Place::new();
    place.acquire("a", "me");
    place
        .run(&["break", "a", "--yes", "--now", "--reset-fence"])
        .is(0)
        .says("its fences begin again at the store's clock");
    let help = place.run(&["break", "--help"]).is(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("may then be smaller than earlier ones"), "{help}");
}
