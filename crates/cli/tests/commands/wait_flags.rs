//! Waiting: a signal ends it and leaves nothing behind; a store that does not answer is tried for as long as was said.

use std::fs::File;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;

use crate::harness::{Place, Running};

#[test]
fn a_signal_while_waiting_leaves_nothing_behind() {
    for (signal, code) in [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)] {
        for command in ["acquire", "hold"] {
            let place = Place::new();
            place.acquire("a", "first");
            let mut waiting = Running::start(&mut place.command(&[command, "a", "-vv"]));
            waiting.until_it_says("waits for");
            waiting.signal(signal);
            let ran = waiting.ended();
            assert_eq!(ran.is(code).out, "");
            assert_eq!(place.shown("a")["waiters"], 0, "{command}: it is still on the list");
            place.run(&["release", "a", "--owner", "first"]).is(0);
            place.nothing_is_left("a");
        }
    }
}

/// Another process writes, and does not end.
fn stuck(place: &Place) -> Connection {
    place.make();
    let file = Connection::open(place.file()).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    file
}

#[test]
fn a_store_that_does_not_answer_ends_it() {
    let place = Place::new();
    let stuck = stuck(&place);
    for args in [&["acquire", "a", "--no-wait"][..], &["hold", "a", "--no-wait"]] {
        // A waiting command reports a silent store after ten seconds; one that tries once fails with the first call.
        place.run(args).fails(69, &place.store());
    }
    let began = Instant::now();
    place.run(&["acquire", "a", "--wait", "3s"]).fails(69, &place.store());
    assert!(began.elapsed() >= Duration::from_millis(2_500), "{:?}", began.elapsed());
    drop(stuck);
    place.nothing_is_left("a");
}

#[test]
fn without_a_limit_it_is_tried_for_10_s() {
    let place = Place::new();
    let stuck = stuck(&place);
    let began = Instant::now();
    place.run(&["acquire", "a"]).fails(69, &place.store());
    assert!(began.elapsed() >= Duration::from_secs(8), "{:?}", began.elapsed());
    drop(stuck);
    place.nothing_is_left("a");
}

/// Another process makes the file, and does not end: it cannot even be opened.
#[test]
fn a_store_that_cannot_be_opened_is_tried_again() {
    let place = Place::new();
    place.make();
    std::fs::remove_file(place.file()).unwrap();
    let opening = File::open(place.path("locks.db.d/opening")).unwrap();
    opening.lock().unwrap();
    place.run(&["acquire", "a", "--no-wait"]).fails(69, &place.store());
    let mut waiting = Running::start(&mut place.command(&["acquire", "a", "-v"]));
    waiting.until_it_says("trying again");
    opening.unlock().unwrap();
    waiting.ended().is(0);
    assert!(place.is_held("a"));
}

#[test]
fn a_store_that_comes_back_in_time_is_used() {
    let place = Place::new();
    let stuck = stuck(&place);
    let mut waiting = Running::start(&mut place.command(&["acquire", "a", "--wait", "90s", "-vv"]));
    waiting.until_it_says("waits for");
    stuck.execute_batch("ROLLBACK").unwrap();
    waiting.ended().is(0);
    assert!(place.is_held("a"));
}

/// That port has no listener.
#[test]
fn a_wait_for_a_dead_server_does_not_end_before_its_time() {
    let place = Place::new();
    for (flag, long) in [("--wait", 1_100), ("--patience", 1_100), ("--wait", 100)] {
        let began = std::time::Instant::now();
        let args = ["acquire", "a", "--store", "redis://127.0.0.1:1", flag, &format!("{long}ms")];
        place.run(&args).fails(69, "Connection refused");
        assert!(began.elapsed() >= std::time::Duration::from_millis(long), "{flag} {long}: {:?}", began.elapsed());
    }
}
