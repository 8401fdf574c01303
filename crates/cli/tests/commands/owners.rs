//! `renew` and `release`, with an explicit owner.

use std::process::Stdio;

use crate::harness::{Place, Running};

const STRANGER: i32 = 77;

fn left(place: &Place) -> u64 {
    place.shown("a")["left_ms"].as_u64().unwrap()
}

#[test]
fn renew_lengthens_and_never_shortens() {
    let place = Place::new();
    let fence = place.acquire("a", "me").to_string();
    place.run(&["renew", "a", "--owner", "me", "--lease", "10m"]).is(0).says("renewed \"a\": ");
    assert!(left(&place) > 500_000);
    place.run(&["renew", "a", "--owner", "me", "--fence", &fence, "--lease", "20m"]).is(0);
    assert!(left(&place) > 1_100_000);
    place.run(&["renew", "a", "--owner", "me"]).is(0);
    assert!(left(&place) > 1_100_000, "the default of 30s shortened it");
}

#[test]
fn renew_without_a_lease_is_for_30_s() {
    let place = Place::new();
    place.run(&["acquire", "a", "--owner", "me", "--lease", "5s"]).is(0);
    place.run(&["renew", "a", "--owner", "me"]).is(0);
    assert!((20_000..=30_000).contains(&left(&place)));
}

/// Another owner is refused, and nothing is lost.
#[test]
fn strangers_and_older_fences_are_refused() {
    let place = Place::new();
    let fence = place.acquire("a", "me");
    let older = (fence - 1).to_string();
    for command in ["renew", "release"] {
        place
            .run(&[command, "a", "--owner", "you"])
            .fails(STRANGER, "owner \"you\" does not hold it; owner \"me\" does");
        place.run(&[command, "a", "--owner", "me", "--fence", &older]).fails(STRANGER, &fence.to_string());
        place.run(&[command, "b", "--owner", "me"]).fails(STRANGER, "nobody");
    }
    place.run(&["renew", "a", "--owner", "you"]).fails(STRANGER, "hint: 'leasehold show a' shows who holds it");
    place.run(&["release", "a", "--owner", "you", "--all"]).fails(STRANGER, &place.store());
    let shown = place.shown("a");
    assert_eq!((&shown["owner"], shown["fence"].as_u64()), (&"me".into(), Some(fence)));
}

/// `hold` without an owner has one that only its own process can use, whatever `show` calls it.
#[test]
fn the_text_of_a_generated_owner_is_no_owner() {
    let place = Place::new();
    let mut hold = Running::start(place.command(&["hold", "a"]).stdin(Stdio::piped()));
    hold.line();
    let owner = place.shown("a")["owner"].as_str().unwrap().to_owned();
    for command in ["renew", "release"] {
        let refused = place.run(&[command, "a", "--owner", &owner]);
        refused.fails(STRANGER, "it was acquired without an explicit owner, so only its own process can");
        refused.fails(STRANGER, "hint: 'leasehold break a --yes' takes it away from that process");
    }
    assert!(place.is_held("a"));
}

#[test]
fn an_expired_or_released_lock_is_nobodys() {
    let place = Place::new();
    place.run(&["acquire", "a", "--owner", "me", "--lease", "500ms"]).is(0);
    let next = place.run(&["acquire", "a", "--owner", "next", "--wait", "20s"]);
    next.is(0);
    for command in ["renew", "release"] {
        place.run(&[command, "a", "--owner", "me"]).is(STRANGER);
    }
    place.run(&["release", "a", "--owner", "next"]).is(0).says("released \"a\"");
    place
        .run(&["release", "a", "--owner", "next"])
        .fails(STRANGER, "the lease ended, or it was released\nhint: there is nothing to release");
    place
        .run(&["renew", "a", "--owner", "next"])
        .fails(STRANGER, "the lease ended, or it was released\nhint: acquire it again");
}

#[test]
fn a_hold_at_a_time_or_all_of_them() {
    let place = Place::new();
    let take = |count: usize| {
        for _ in 0..count {
            place.acquire("a", "me");
        }
    };
    take(2);
    place.run(&["release", "a", "--owner", "me"]).is(0).says("one hold of \"a\"; 1 left");
    assert_eq!(place.shown("a")["holds"], 1);
    place.run(&["release", "a", "--owner", "me"]).is(0).says("released \"a\"");
    place.nothing_is_left("a");
    take(3);
    let fence = place.shown("a")["fence"].to_string();
    place.run(&["release", "a", "--owner", "me", "--all", "--fence", &fence]).is(0);
    place.nothing_is_left("a");
}

#[test]
fn several_names() {
    let place = Place::new();
    place.run(&["acquire", "a,b", "--owner", "me"]).is(0);
    place.run(&["renew", "b,a", "--owner", "me", "--lease", "10m"]).is(0).says("renewed \"a\", \"b\": ");
    assert!(place.shown("b")["left_ms"].as_u64().unwrap() > 500_000);
    for command in ["renew", "release"] {
        place.run(&[command, "a,b", "--owner", "me", "--fence", "1"]).fails(64, "one lock");
    }
    place.acquire("b", "me");
    let given = place.run(&["release", "a,b,c,d", "--owner", "me"]);
    given.is(STRANGER).says("released \"a\"\n").says("released one hold of \"b\"; 1 left\n");
    given.fails(STRANGER, "\"c\"");
    given.fails(STRANGER, "\"d\"");
    assert!(!place.is_held("a"));
    place.run(&["release", "b", "--owner", "me"]).is(0);
    place.nothing_is_left("a");
}
