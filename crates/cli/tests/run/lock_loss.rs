//! A lock that is broken, and a store that is gone: before the command, while it runs, and as the lock is released.

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, Running, code, output, stderr, stdout};

fn report(place: &Place) -> Value {
    serde_json::from_slice(&std::fs::read(place.path("report.json")).unwrap()).unwrap()
}

/// While this lives, no other process can use the store.
fn occupied(place: &Place) -> Connection {
    let connection = Connection::open(place.path("locks.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

#[test]
fn a_lock_that_is_taken_away_at_once_ends_the_command_and_all_that_it_started() {
    let place = Place::new();
    let line = "setsid sh -c 'trap \"touch asked\" TERM; echo $$; while :; do sleep 0.01; done' & wait";
    let running = Running::start(place.shell("x --keep 6s --report report.json", line));
    let left = Pid::from_raw(running.line().parse().unwrap()).unwrap();
    taken(&place, &["--now"]);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(76), "{said}");
    assert!(kill_process(left, Signal::CONT).is_err(), "it is gone before the runner is");
    assert!(said.contains("the store no longer had it"), "{said}");
    let report = report(&place);
    assert_eq!((&report["outcome"], &report["reason"]), (&"lost".into(), &"gone".into()));
    assert!(report["child_signal"] == 9 && !place.path("asked").exists(), "at once, and without asking");
    assert_eq!(code(&output(place.run("x", &["true"]))), 0);
}

fn taken(place: &Place, how: &[&str]) {
    broken(place, "x", how);
}

fn broken(place: &Place, name: &str, how: &[&str]) {
    let mut taken = place.program();
    taken.args(["break", name, "--yes"]).args(how);
    assert_eq!(code(&output(taken)), 0);
}

/// It heeds no SIGTERM, but says that one came.
const DEAF: &str = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";

fn ends_as(place: &Place, running: Running, reason: &str) {
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(76), "{said}");
    let report = report(place);
    assert_eq!((&report["reason"], &report["child_signal"]), (&reason.into(), &9.into()), "{report}");
}

/// Until its deadline it would work beside the next holder.
#[test]
fn a_lock_that_is_broken_and_then_taken_away_at_once_is_lost_at_once() {
    let place = Place::new();
    let running = Running::start(place.shell("x --keep 20s --report report.json", DEAF));
    assert_eq!(running.line(), "ready");
    taken(&place, &[]);
    assert_eq!(running.line(), "asked");
    taken(&place, &["--now"]);
    ends_as(&place, running, "gone");
}

#[test]
fn of_several_locks_the_break_of_one_does_not_hide_the_loss_of_another() {
    for (orderly, at_once) in [("x", "y"), ("y", "x")] {
        let place = Place::new();
        let running = Running::start(place.shell("x,y --keep 20s --report report.json", DEAF));
        assert_eq!(running.line(), "ready");
        broken(&place, orderly, &[]);
        broken(&place, at_once, &["--now"]);
        ends_as(&place, running, "gone");
    }
}

/// Nothing renews it, so nothing else would find out.
#[test]
fn a_fixed_lease_that_is_taken_away_ends_the_command() {
    let place = Place::new();
    let running = Running::start(place.shell("x --lease 20s --report report.json", DEAF));
    assert_eq!(running.line(), "ready");
    taken(&place, &["--now"]);
    ends_as(&place, running, "gone");
    let orderly = Running::start(place.shell("y --lease 12s --report report.json", DEAF));
    assert_eq!(orderly.line(), "ready");
    broken(&place, "y", &[]);
    ends_as(&place, orderly, "broken");
}

/// The lock is not granted again before its lease is over: until then the command may end cleanly.
#[test]
fn a_lock_that_an_operator_takes_away_leaves_the_command_the_time_that_is_left() {
    let place = Place::new();
    let line = "trap 'echo asked; exec sleep 600' TERM; echo ready; while :; do sleep 0.01; done";
    let running = Running::start(place.shell("x --keep 12s --grace 0s --report report.json", line));
    assert_eq!(running.line(), "ready");
    taken(&place, &[]);
    assert_eq!(running.line(), "asked", "before it is killed, though the grace is 0");
    // The shell may say that what it waited for was ended.
    let told =
        std::iter::repeat_with(|| running.error_line()).find(|line| line.contains("an operator took the lock away"));
    assert!(told.is_some_and(|told| told.contains("asked to end")));
    assert!(!place.is_free("x"), "nobody has it before the lease is over");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(76), "{said}");
    assert!(said.contains("an operator took it away, and the command was ended"), "{said}");
    assert!(!said.contains("another holder may have run"), "nobody had it before: {said}");
    let report = report(&place);
    assert_eq!((&report["outcome"], &report["reason"]), (&"lost".into(), &"broken".into()));
    assert_eq!(report["child_signal"], 9, "it did not end by itself: {report}");
}

/// A command that ends cleanly is done with its lock, even if its lease is not over.
#[test]
fn a_command_that_ends_when_its_lock_is_taken_away_lets_the_next_one_in() {
    let place = Place::new();
    let line = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let running = Running::start(place.shell("x --keep 1m --report report.json", line));
    assert_eq!(running.line(), "ready");
    taken(&place, &[]);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(76), "{said}");
    let report = report(&place);
    assert_eq!((&report["reason"], &report["child_code"]), (&"broken".into(), &3.into()), "{report}");
    assert!(place.is_free("x"));
}

#[test]
fn a_store_that_cannot_be_reached_runs_nothing() {
    let place = Place::new();
    assert_eq!(code(&output(place.run("x", &["true"]))), 0);
    let occupied = occupied(&place);
    for words in ["x --no-wait", "x --wait 2s"] {
        let output = output(place.shell(&format!("{words} --report report.json"), "echo ran"));
        assert_eq!((code(&output), stdout(&output).as_str()), (69, ""), "{}", stderr(&output));
        assert_eq!(report(&place)["outcome"], "unreachable");
    }
    drop(occupied);
    assert!(place.is_free("x"));
}

#[test]
fn a_store_that_is_gone_while_the_command_runs_ends_it_in_time() {
    let place = Place::new();
    let running = Running::start(place.shell("x --keep 3s --report report.json", "echo ready; exec sleep 60"));
    running.line();
    let occupied = occupied(&place);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(76), "{said}");
    assert!(said.contains("could not be renewed in time"), "{said}");
    assert_eq!(report(&place)["reason"], "time_ended");
    drop(occupied);
}

#[test]
fn the_commands_code_is_kept_though_the_lock_cannot_be_given_back() {
    let place = Place::new();
    let line = "echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 5";
    let running = Running::start(place.shell("x --report report.json", line));
    running.line();
    let occupied = occupied(&place);
    std::fs::write(place.path("go"), "").unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("could not be released"), "{said}");
    assert_eq!(report(&place)["outcome"], "done");
    drop(occupied);
}

/// A command that ends before it can be stopped has still run without its lock, so its exit code must say so.
#[test]
fn a_loss_that_is_seen_only_at_the_end_is_a_loss() {
    let place = Place::new();
    let line = r#""$LEASEHOLD" break y --yes --now; "$LEASEHOLD" acquire y --owner other; exit 6"#;
    let taken_away = output(place.shell("y --report report.json", line));
    assert_eq!(code(&taken_away), 76, "{}", stderr(&taken_away));
    assert!(stderr(&taken_away).contains("no longer had it"), "{}", stderr(&taken_away));
    let report = report(&place);
    assert_eq!((&report["outcome"], &report["reason"]), (&"lost".into(), &"gone".into()), "{report}");
    // On a file the runner learns of it at once, and may be quicker than the command.
    let ended = (report["child_code"].as_i64(), report["child_signal"].as_i64());
    assert!([(Some(6), None), (None, Some(9))].contains(&ended), "{report}");
    assert_eq!(report["exit_code"], 76, "{report}");
    let of_two = output(place.shell("a,b --lost-exit 3", r#""$LEASEHOLD" break b --yes --now"#));
    assert_eq!(code(&of_two), 3, "{}", stderr(&of_two));
    assert!(stderr(&of_two).contains("lost \"b\""), "{}", stderr(&of_two));
    let cut = output(place.shell("a,b --keep 6s", r#""$LEASEHOLD" break b --yes --now; sleep 600"#));
    assert!(code(&cut) == 76 && stderr(&cut).contains("lost \"b\""), "{}", stderr(&cut));
}
