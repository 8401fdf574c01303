//! Signals to the runner, and commands that leave others behind.

use rustix::process::Signal;

use crate::harness::{Place, Running, code, output};

const SIGNALS: [(Signal, &str); 4] =
    [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")];

#[test]
fn signals_are_passed_on_to_the_group() {
    let place = Place::new();
    for (signal, name) in SIGNALS {
        let line = format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.01; done");
        let running = Running::start(place.shell("a", &line));
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        assert_eq!(running.line(), format!("got {name}"));
        assert_eq!(running.end().0.code(), Some(9));
        assert!(place.is_free("a"));
    }
}

#[test]
fn a_command_that_a_passed_on_signal_ends_gives_128_and_its_number() {
    let place = Place::new();
    for (signal, name) in SIGNALS {
        let running = Running::start(place.shell("a", "echo ready; exec sleep 60"));
        running.line();
        running.signal(signal);
        assert_eq!(running.end().0.code(), Some(128 + signal.as_raw()), "{name}");
    }
}

#[test]
fn a_signal_while_waiting_ends_the_waiting() {
    let place = Place::new();
    let holder = Running::start(place.shell("a", "echo ready; exec sleep 60"));
    holder.line();
    for (signal, _) in SIGNALS {
        let waiter = Running::start(place.run("a -v --report report.json", &["true"]));
        assert!(waiter.error_line().contains("the locks are in"), "it waits when it has said so");
        waiter.signal(signal);
        assert_eq!(waiter.end().0.code(), Some(128 + signal.as_raw()));
        let report = std::fs::read(place.path("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!((&report["outcome"], &report["fence"]), (&"signal".into(), &serde_json::Value::Null));
    }
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().0.code(), Some(143));
    assert!(place.is_free("a"));
}

/// The command has the default limit and signal.
#[test]
fn a_file_that_may_grow_no_further_is_told_and_ends_no_runner() {
    let place = Place::new();
    assert_eq!(code(&output(place.run("a", &["true"]))), 0);
    let refused = output(place.outside("ulimit -f 0; exec \"$LEASEHOLD\" run a --no-wait -- true"));
    assert!([69, 78].contains(&code(&refused)) && !refused.stderr.is_empty(), "{refused:?}");
    let command = output(place.shell("a", "kill -XFSZ $$"));
    assert_eq!(code(&command), 128 + Signal::XFSZ.as_raw());
    let ignored = output(place.outside("trap '' XFSZ; exec \"$LEASEHOLD\" run a -c 'kill -XFSZ $$; exit 7'"));
    assert_eq!(code(&ignored), 7);
}

#[test]
fn the_lock_is_kept_until_what_the_command_left_is_gone() {
    let place = Place::new();
    let line = "(while [ ! -e stop ]; do sleep 0.01; done; echo last) & echo left $!; exit 5";
    let first = Running::start(place.shell("a", line));
    let left = first.line();
    let busy = output(place.run("a --no-wait", &["true"]));
    assert_eq!(code(&busy), 75);
    let second = Running::start(place.shell("a", "echo second"));
    // That comes by itself, after a second.
    let told = first.error_line();
    let pid = left.trim_start_matches("left ");
    assert!(told.contains(&format!("{pid} (")) && told.contains("\"a\""), "{told}");
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!((first.line().as_str(), second.line().as_str()), ("last", "second"));
    assert_eq!(first.end().0.code(), Some(5));
    assert_eq!(second.end().0.code(), Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn one_that_left_the_session_is_still_waited_for_and_hears_signals() {
    let place = Place::new();
    let line =
        "echo $$; setsid sh -c 'trap \"echo heard; exit\" TERM; echo away; while :; do sleep 0.01; done' & exit 3";
    let running = Running::start(place.shell("a", line));
    let command = running.line();
    assert_eq!(running.line(), "away");
    assert_eq!(code(&output(place.run("a --no-wait", &["true"]))), 75);
    // After the command's own end, only this signals what it left.
    while std::path::Path::new("/proc").join(&command).exists() {
        std::thread::yield_now();
    }
    running.signal(Signal::TERM);
    assert_eq!(running.line(), "heard");
    assert_eq!(running.end().0.code(), Some(3));
    assert!(place.is_free("a"));
}
