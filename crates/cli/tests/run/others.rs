//! Children that a process had before it became a runner, as with `worker & exec leasehold run …`: they are none of the command's.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Place, Running, code, output};

/// The worker and its child wait for a line. Whatever ends the command, both are there to hear it.
fn worker_outlives(end: impl FnOnce(&Place, Pid)) {
    let place = Place::new();
    let line = r#"mkfifo pipe; exec 9<>pipe; (head -n 1 <&9; echo over) 2>&- &
        exec "$LEASEHOLD" run x --keep 3s -c 'setsid sh -c "trap : TERM; echo \$\$; while :; do sleep 0.01; done" & echo $PPID; wait'"#;
    let mut running = Running::start(place.outside(line));
    let number = |text: String| Pid::from_raw(text.parse().unwrap()).unwrap();
    let (one, two) = (number(running.line()), number(running.line()));
    let parent = std::fs::read_to_string(format!("/proc/{}/stat", one.as_raw_nonzero())).unwrap();
    // The command and its child may come in any order; the guardian is the one that is no grandchild.
    let (guardian, left) = if parent.contains("(lease-guardian)") { (one, two) } else { (two, one) };
    end(&place, guardian);
    assert_eq!(running.status().code(), Some(76));
    assert!(kill_process(left, Signal::CONT).is_err(), "what the command left is gone");
    let mut pipe = File::options().write(true).custom_flags(NONBLOCK).open(place.path("pipe")).expect("a worker");
    pipe.write_all(b"alive\n").unwrap();
    assert_eq!([running.line(), running.line()], ["alive", "over"]);
}

/// Without a reader, this is an error and does not wait.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

#[test]
fn they_outlive_the_loss_of_the_lock() {
    worker_outlives(|place, _| {
        let mut taken = place.program();
        taken.args(["break", "x", "--yes", "--now"]);
        assert_eq!(code(&output(taken)), 0);
    });
}

#[test]
fn they_outlive_the_end_of_the_guardian() {
    worker_outlives(|_, guardian| kill_process(guardian, Signal::KILL).unwrap());
}
