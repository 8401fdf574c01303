//! The first moments of a `run`: a guardian or starter that is paused, stopped or killed there.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcgetpgrp;

use crate::gate::{self, Gate};
use crate::harness::{Place, Running, code, output, stderr};
use crate::terminal::{CTRL_Z, Shell, parent};

fn is_there(pid: Pid) -> bool {
    PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero())).exists()
}

#[test]
fn a_guardian_that_comes_too_late_starts_nothing() {
    for is_runner_killed in [false, true] {
        let place = Place::new();
        let gate = Gate::new(&place);
        let mut run = place.run("x --lease 2s", &["touch", "ran"]);
        run.envs(gate::variables(&place.path(""), "lease-guardian"));
        let mut running = Running::start(run);
        gate.arrived();
        if is_runner_killed {
            running.signal(Signal::KILL);
            running.status();
        }
        // It has the lock when the lease has run out: now nothing may start under the old one.
        assert_eq!(code(&output(place.run("x", &["true"]))), 0);
        gate.open();
        // The guardian has standard error until its end.
        let (status, _) = running.end();
        assert_eq!(status.code(), (!is_runner_killed).then_some(76));
        assert_eq!(gate.started(), "");
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn a_command_that_is_let_go_in_time_starts() {
    let place = Place::new();
    let gate = Gate::new(&place);
    let mut run = place.run("x", &["touch", "ran"]);
    run.envs(gate::variables(&place.path(""), "lease-guardian"));
    let running = Running::start(run);
    gate.arrived();
    gate.open();
    assert_eq!(running.end().0.code(), Some(0));
    assert_eq!(gate.started(), "touch\n", "so the gate would have seen it");
}

#[test]
fn ctrl_c_in_the_guardians_first_moment_is_a_signal() {
    let place = Place::new();
    let mut run = place.run("x --report report.json", &["touch", "ran"]);
    run.envs(gate::variables(&place.path(""), "nobody")).env("GATE_INTERRUPTS", "1");
    let output = output(run);
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(!place.path("ran").exists() && place.is_free("x"));
}

#[test]
fn a_starter_that_comes_too_late_starts_nothing() {
    for (at, is_runner_killed) in [("lease-starter", false), ("exec", false), ("exec", true)] {
        let mut shell = Shell::start();
        let place = shell.place();
        let gate = Gate::new(&place);
        shell.sets(&gate::variables(&place.path(""), at));
        shell.types("$L run x --keep 3s -- touch ran\n");
        let starter = gate.arrived();
        let runner = parent(parent(starter));
        if is_runner_killed {
            kill_process(runner, Signal::KILL).unwrap();
        }
        assert_eq!(code(&output(place.run("x", &["true"]))), 0);
        assert!(!is_there(starter), "it is gone before the next holder comes");
        shell.code_is(if is_runner_killed { 137 } else { 76 });
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn ctrl_z_in_the_starters_first_moment_ends_the_run_in_time() {
    let mut shell = Shell::start();
    let place = shell.place();
    let gate = Gate::new(&place);
    shell.sets(&gate::variables(&place.path(""), "exec"));
    shell.types("$L run x --keep 3s -- touch ran\n");
    gate.arrived();
    shell.types(CTRL_Z);
    shell.sees("could not be renewed in time");
    shell.code_is(76);
    assert!(!place.path("ran").exists());
}

#[test]
fn the_terminal_is_given_back_when_the_guardian_is_killed_before_the_command_is_there() {
    let mut shell = Shell::start();
    let place = shell.place();
    let gate = Gate::new(&place);
    shell.sets(&gate::variables(&place.path(""), "exec"));
    // In a script, so that it is not the shell that takes the terminal back.
    shell.types("sh -c '$L run x -- touch ran; echo ended=$?.; read line; echo got=$line.'\n");
    let starter = gate.arrived();
    assert_eq!(tcgetpgrp(shell.keyboard()).unwrap(), starter, "it has the terminal");
    kill_process(parent(starter), Signal::KILL).unwrap();
    shell.sees("ended=76.");
    shell.types("rest\n");
    shell.sees("got=rest.");
    shell.code_is(0);
}

#[test]
fn the_terminal_is_given_back_when_the_command_cannot_be_started() {
    let mut shell = Shell::start();
    shell.types("sh -c '$L run x -- /no/such; echo ended=$?.; read line; echo got=$line.'\n");
    shell.sees("ended=127.");
    shell.types("rest\n");
    shell.sees("got=rest.");
    shell.code_is(0);
}
