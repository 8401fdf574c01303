//! Every flag of `run`, its report, and what is refused.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Place, Running, code, output, stderr, stdout};

fn report(place: &Place) -> Value {
    serde_json::from_slice(&std::fs::read(place.path("report.json")).unwrap()).unwrap()
}

#[test]
fn a_fixed_lease_ends_the_command_and_counts_as_lost() {
    let place = Place::new();
    let output = output(place.run("a --lease 3s --report report.json", &["sleep", "600"]));
    assert_eq!(code(&output), 76, "{}", stderr(&output));
    assert!(stderr(&output).contains("the lease ended"), "{}", stderr(&output));
    let report = report(&place);
    assert_eq!((&report["outcome"], &report["reason"]), (&"lost".into(), &"time_ended".into()));
    assert_eq!((&report["child_signal"], &report["exit_code"]), (&15.into(), &76.into()));
    assert!(report["held_ms"].as_u64().unwrap() < 600_000, "{report}");
}

#[test]
fn max_hold_ends_a_kept_lock() {
    let place = Place::new();
    let output = output(place.run("a --keep 3s --max-hold 6s --lost-exit 3 --report r.json", &["sleep", "600"]));
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&std::fs::read(place.path("r.json")).unwrap()).unwrap();
    let held = report["held_ms"].as_u64().unwrap();
    assert!((4_000..600_000).contains(&held), "renewed, and ended: {report}");
}

#[test]
fn a_kept_lock_outlives_its_lease() {
    let place = Place::new();
    let output = output(place.run("a --keep 3s", &["sleep", "5"]));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn at_least_keeps_others_out_though_the_command_is_done() {
    let place = Place::new();
    let began = Instant::now();
    assert_eq!(code(&output(place.run("a --at-least 1s", &["true"]))), 0);
    assert_eq!(code(&output(place.run("a", &["true"]))), 0);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn the_grace_is_the_time_between_sigterm_and_the_end() {
    let place = Place::new();
    // It is asked to end four seconds before its lease is over, and is busy ending until it is killed.
    let line = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";
    let running = Running::start(place.shell("a --lease 10s --grace 4s", line));
    running.line();
    let began = Instant::now();
    assert_eq!(running.line(), "asked");
    assert!(began.elapsed() < Duration::from_millis(9_500), "asked as it was killed: {:?}", began.elapsed());
    assert_eq!(running.end().0.code(), Some(76));
}

#[test]
fn a_grace_of_half_the_lease_is_refused_before_anything_is_asked() {
    let place = Place::new();
    for words in ["a --lease 2s --grace 1s", "a --keep 2s --grace 5s", "a --grace 15s", "a --max-hold 2s --grace 1s"] {
        let output = output(place.shell(words, "echo ran"));
        assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{words}");
        assert!(stderr(&output).contains("half the lease") && stderr(&output).contains("hint:"), "{}", stderr(&output));
    }
}

#[test]
fn busy_has_a_code_of_its_own() {
    let place = Place::new();
    let holder = Running::start(place.shell("a --label nightly", "echo ready; exec sleep 60"));
    holder.line();
    for (words, expected) in [("a --no-wait", 75), ("a --wait 100ms", 75), ("a --no-wait --busy-exit 0", 0)] {
        let output = output(place.shell(&format!("{words} --report report.json"), "echo ran"));
        assert_eq!((code(&output), stdout(&output).as_str()), (expected, ""), "{words}");
        assert!(stderr(&output).contains("nightly"), "{}", stderr(&output));
        let report = report(&place);
        assert_eq!((&report["outcome"], &report["name"]), (&"busy".into(), &"a".into()));
        assert!(report["fence"].is_null() && report["child_code"].is_null());
    }
    holder.signal(Signal::KILL);
    holder.end();
}

#[test]
fn the_report_tells_the_commands_code_from_ours() {
    let place = Place::new();
    let words = "b,a --report report.json --owner me";
    assert_eq!(code(&output(place.shell(words, "exit 75"))), 75);
    let done = report(&place);
    assert_eq!((&done["outcome"], &done["child_code"], &done["exit_code"]), (&"done".into(), &75.into(), &75.into()));
    assert_eq!((&done["name"], &done["owner"]), (&"a,b".into(), &"me".into()));
    assert_eq!(done["locks"][1]["name"], "b");
    assert!(done["locks"][0]["fence"] == done["fence"] && done["fence"].as_u64().unwrap() > 0);
    assert!(done["waited_ms"].is_u64() && done["held_ms"].is_u64() && done["reason"].is_null(), "{done}");
    assert_eq!(code(&output(place.run(words, &["/no/such"]))), 127);
    assert_eq!(report(&place)["outcome"], "not_started");
    assert_eq!(code(&output(place.shell(&format!("{words} --grace 20s"), "true"))), 64);
    assert_eq!(report(&place)["outcome"], "usage");
    assert_eq!(code(&output(place.shell("a --report no/such/folder", "echo ran"))), 64);
}

/// Found out before the command starts, and nothing is left where it never does.
#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_command_starts() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder")).unwrap();
    let refused = |words: &str, code_is: i32, why: &str| {
        let output = output(place.shell(words, "touch started"));
        assert_eq!(code(&output), code_is, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains(why) && stderr(&output).contains("hint: "), "{words}: {}", stderr(&output));
        assert!(!place.path("started").exists(), "{words}");
    };
    refused("a --report /proc/report.json", 74, "could not be written there");
    refused("a --report folder", 64, "it is a folder");
    refused("a --report no/such/folder", 64, "no such folder");
    refused("a --report -", 64, "/dev/stdout");
    assert!(!place.path("-").exists());
    // What is open for reading only.
    let mut reading = place.shell("a --report /dev/stdout", "touch started");
    let status = reading.stdout(std::fs::File::open("/dev/null").unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(74));
    // A command that is not found, and one that may not run: a report of that, and no other file.
    assert_eq!(code(&output(place.run("a --report folder/report.json", &["no-such-command"]))), 127);
    let left: Vec<_> = std::fs::read_dir(place.path("folder")).unwrap().map(|left| left.unwrap().file_name()).collect();
    assert_eq!(left, ["report.json"]);
    assert!(!place.path("started").exists());
}

#[test]
fn a_report_on_standard_output_comes_after_the_commands_own() {
    let place = Place::new();
    let is_whole = |text: &str| {
        let (first, rest) = text.split_once('\n').unwrap();
        let report: Value = serde_json::from_str(rest).unwrap();
        assert_eq!((first, &report["outcome"], &report["child_code"]), ("ran", &"done".into(), &3.into()));
    };
    for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        is_whole(&stdout(&output(place.shell(&format!("a --report {path}"), "echo ran; exit 3"))));
    }
    // A file is neither replaced nor overwritten.
    let mut to_file = place.shell("a --report /dev/stdout", "echo ran; exit 3");
    to_file.stdout(std::fs::File::create(place.path("out")).unwrap());
    assert_eq!(to_file.status().unwrap().code(), Some(3));
    is_whole(&std::fs::read_to_string(place.path("out")).unwrap());
}

#[test]
fn a_stranger_store_is_reported() {
    let place = Place::new();
    std::fs::write(place.path("locks.db"), "not a store, but somebody's letter").unwrap();
    assert_eq!(code(&output(place.shell("a --report report.json", "echo ran"))), 78);
    assert_eq!(report(&place)["outcome"], "unfit");
    assert_eq!(std::fs::read_to_string(place.path("locks.db")).unwrap(), "not a store, but somebody's letter");
}

#[test]
fn the_same_owner_enters_again() {
    let place = Place::new();
    let holder = Running::start(place.shell("a --owner me", "echo $LEASEHOLD_FENCE; exec sleep 60"));
    let fence = holder.line();
    let again = output(place.shell("a --owner me --no-wait", "echo $LEASEHOLD_FENCE $LEASEHOLD_OWNER"));
    assert_eq!(stdout(&again), format!("{fence} me\n"), "{}", stderr(&again));
    assert_eq!(code(&output(place.run("a --owner you --no-wait", &["true"]))), 75);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().0.code(), Some(143));
}

#[test]
fn bad_leases_are_refused() {
    let place = Place::new();
    for words in ["a --keep 1ms", "a --lease 2d", "a --max-hold 1ms", "a --at-least 5000d", "a --wait 1s --no-wait"] {
        let output = output(place.shell(words, "echo ran"));
        assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{words}: {}", stderr(&output));
    }
}

#[test]
fn spans_that_no_store_allows_are_refused_before_one_is_made() {
    let place = Place::new();
    for (words, flag, bounds) in [
        ("a --max-hold 0s", "--max-hold", "200ms to 366d"),
        ("a --max-hold 199ms --keep 1s", "--max-hold", "200ms to 366d"),
        ("a --max-hold 367d", "--max-hold", "200ms to 366d"),
        ("a --at-least 367d", "--at-least", "0s to 366d"),
        ("a --at-least 25h --lease 1s", "--at-least", "0s to 24h"),
    ] {
        let output = output(place.shell(words, "echo ran"));
        assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{words}: {}", stderr(&output));
        for said in [flag, bounds, "hint:"] {
            assert!(stderr(&output).contains(said), "{words}: {said:?} is missing: {}", stderr(&output));
        }
        assert!(!place.path("locks.db").exists(), "{words}");
    }
}

#[test]
fn others_are_kept_out_for_longer_than_the_command_may_run() {
    let place = Place::new();
    let output = output(place.run("a --max-hold 3s --at-least 2d", &["sleep", "600"]));
    assert_eq!(code(&output), 76, "{}", stderr(&output));
    assert!(!place.is_free("a"));
}

/// A log that standard error is added to is not replaced by the report.
#[test]
fn a_report_to_standard_error_leaves_what_was_said_there() {
    let place = Place::new();
    let log = place.path("log");
    std::fs::write(&log, "before\n").unwrap();
    let mut command = place.shell("a --report /dev/stderr", "echo during >&2");
    command.stderr(std::fs::File::options().append(true).open(&log).unwrap());
    command.status().unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.starts_with("before\nduring\n{"), "{said}");
}
