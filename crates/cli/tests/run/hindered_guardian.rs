//! A guardian that is hindered, and a start with signals blocked: what was promised is kept all the same.

use std::fs;
use std::io::{PipeWriter, Write};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{PATIENCE, Place, Running, code, output};

/// Prints the pid of its guardian, then leaves a process behind that ignores SIGTERM, with its pid.
const LEAVES_ONE: &str =
    "echo $PPID; setsid sh -c 'trap : TERM; echo $$; while :; do sleep 0.01; done' </dev/null 2>&- &";

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

fn is_there(pid: Pid) -> bool {
    fs::exists(format!("/proc/{}", pid.as_raw_nonzero())).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Leaves no room for anything else.
fn fill(pipe: &mut PipeWriter) {
    let flags = fcntl_getfl(&*pipe).unwrap();
    fcntl_setfl(&*pipe, flags | OFlags::NONBLOCK).unwrap();
    while pipe.write(&[b'.'; 4_096]).is_ok() {}
    while pipe.write(b".").is_ok() {}
    fcntl_setfl(&*pipe, flags).unwrap();
}

#[test]
fn a_reader_of_standard_error_that_does_not_read_hinders_nobody() {
    let place = Place::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    fill(&mut writer);
    let mut running = Running::with_errors_to(place.shell("x --keep 3s", LEAVES_ONE), writer.into());
    let (guardian, left) = (pid(&running.line()), pid(&running.line()));
    // After a second it reports which processes are left, and cannot: standard error is not read. One of its threads
    // waits there.
    let folder = format!("/proc/{}/task", guardian.as_raw_nonzero());
    let waits =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("wchan")).is_ok_and(|at| at.contains("pipe_write"));
    until("the guardian told nobody", || {
        let tasks: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
        tasks.len() > 1 || tasks.into_iter().any(waits)
    });
    running.signal(Signal::KILL);
    running.status();
    assert_eq!(code(&output(place.run("x", &["true"]))), 0);
    assert!(!is_there(left), "it works beside the next holder");
    drop(reader);
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
}

/// Repeatedly: the runner may continue it meanwhile, for messages that it still has to send.
fn stop(pid: Pid) {
    until("it does not stop", || {
        kill_process(pid, Signal::STOP).unwrap();
        is_stopped(pid)
    });
}

#[test]
fn a_stopped_guardian_is_not_waited_for() {
    let place = Place::new();
    let line = "trap : HUP TERM; echo $PPID; echo $$; while :; do sleep 0.01; done";
    let mut running = Running::start(place.shell("x --keep 6s", line));
    let (guardian, command) = (pid(&running.line()), pid(&running.line()));
    stop(guardian);
    // The guardian is told each of these. When its socket is full, it is continued.
    until("the runner waits for the guardian", || {
        running.signal(Signal::HUP);
        !is_stopped(guardian)
    });
    stop(guardian);
    let mut taken = place.program();
    taken.args(["break", "x", "--yes", "--now"]);
    assert_eq!(code(&output(taken)), 0);
    assert_eq!(running.status().code(), Some(76));
    assert!(!is_there(command));
}

/// Starts it as a process does that has these signals blocked.
fn start_blocked(run: std::process::Command) -> Running {
    let mut set = SigSet::empty();
    for signal in [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGINT] {
        set.add(signal);
    }
    set.thread_block().unwrap();
    let running = Running::start(run);
    set.thread_unblock().unwrap();
    running
}

#[test]
fn signals_that_were_blocked_at_the_start_are_heard() {
    let place = Place::new();
    // The end of a child is one of them: unheard, the guardian would sleep until its time is over.
    assert_eq!(start_blocked(place.run("x --lease 20s", &["true"])).end().0.code(), Some(0));
    for (signal, expected) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let running = start_blocked(place.shell("x", "echo ready; exec sleep 60"));
        running.line();
        running.signal(signal);
        assert_eq!(running.end().0.code(), Some(expected));
    }
}
