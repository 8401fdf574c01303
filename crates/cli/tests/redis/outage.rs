//! A server that is away while a command waits, and a runner that is killed while it holds a lock.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::harness::{Case, Checked, run, run_with, url};
use crate::program;

pub(crate) const CASES: &[Case] = &[
    ("outage::a_wait_says_that_the_server_is_away_and_back", a_wait_says_that_the_server_is_away_and_back),
    ("outage::patience_ends_a_wait", patience_ends_a_wait),
    ("outage::a_wait_with_a_limit_says_when_it_ends", a_wait_with_a_limit_says_when_it_ends),
    ("outage::at_the_start_it_is_said_once", at_the_start_it_is_said_once),
    ("outage::a_runner_that_was_killed_keeps_nobody_waiting", a_runner_that_was_killed_keeps_nobody_waiting),
    ("outage::what_is_left_of_a_killed_runner_keeps_its_lock", what_is_left_of_a_killed_runner_keeps_its_lock),
    (
        "outage::a_runner_that_is_killed_after_its_command_keeps_nobody_waiting",
        a_runner_that_is_killed_after_its_command,
    ),
    ("outage::a_killed_runner_gives_back_no_hold_but_its_own", a_killed_runner_gives_back_no_hold_but_its_own),
    ("outage::a_hold_that_may_be_anothers_is_left_to_its_lease", a_hold_that_may_be_anothers_is_left_to_its_lease),
];

/// A command whose standard error is read line by line. Killed when it is dropped.
struct Waiter(Child, Receiver<String>);

impl Waiter {
    fn start(url: &str, args: &[&str]) -> Self {
        let mut command = program::command();
        command.env_clear().env("LEASEHOLD_STORE", url).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it");
        let errors = program::lines(child.stderr.take());
        Self(child, errors)
    }

    /// The next line, or nothing at the end.
    fn line(&self) -> String {
        match self.1.recv_timeout(Duration::from_secs(60)) {
            Err(RecvTimeoutError::Timeout) => panic!("it waits in silence"),
            line => line.unwrap_or_default(),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until_one_waits(url: &str, name: &str) {
    let began = Instant::now();
    while run(url, &["show", name, "--json"]).is(0).json()["waiters"] != 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody waits");
    }
}

fn a_wait_says_that_the_server_is_away_and_back() -> Checked {
    let mut server = Redis::start()?;
    let url = url(&server);
    run(&url, &["acquire", "a", "--lease", "1h"]).is(0);
    let mut waiter = Waiter::start(&url, &["acquire", "a"]);
    until_one_waits(&url, "a");
    server.kill()?;
    let away = waiter.line();
    assert!(away.contains(&format!("{url} has not answered for")) && away.contains("; still waiting: "), "{away}");
    // A client that is killed with its server forgets, so that the wait ends.
    server.restart_empty()?;
    let back = waiter.line();
    assert!(back.contains(&format!("{url} answers again")), "{back}");
    assert_eq!(waiter.line(), "", "each is said once");
    assert!(waiter.0.wait()?.success());
    Ok(())
}

fn patience_ends_a_wait() -> Checked {
    let mut server = Redis::start()?;
    let url = url(&server);
    run(&url, &["acquire", "a", "--lease", "1h"]).is(0);
    let mut waiter = Waiter::start(&url, &["run", "a", "--patience", "4s", "-c", "true"]);
    until_one_waits(&url, "a");
    server.kill()?;
    let away = waiter.line();
    assert!(away.contains("the wait ends when it has not for 4s"), "{away}");
    let given_up = waiter.line();
    assert!(given_up.contains("gave up waiting") && given_up.contains(&url), "{given_up}");
    assert!(waiter.line().contains("hint: "));
    assert_eq!(waiter.0.wait()?.code(), Some(69));
    Ok(())
}

fn a_wait_with_a_limit_says_when_it_ends() -> Checked {
    let server = Redis::start()?;
    let url = url(&server);
    run(&url, &["acquire", "a", "--lease", "1h"]).is(0);
    let waiter = Waiter::start(&url, &["run", "a", "--wait", "20s", "-c", "true"]);
    let impatient = Waiter::start(&url, &["run", "a", "--patience", "0s", "-c", "true"]);
    let began = Instant::now();
    while run(&url, &["show", "a", "--json"]).is(0).json()["waiters"] != 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody waits");
    }
    server.stop()?;
    let given_up = impatient.line();
    assert!(given_up.contains("gave up waiting") && !given_up.contains("ms:"), "since it was asked: {given_up}");
    assert!(impatient.line().contains("hint: "));
    assert_eq!(impatient.line(), "", "it does not wait for the server once more");
    let away = waiter.line();
    assert!(away.contains("the wait ends in") && away.contains("at the latest"), "{away}");
    Ok(())
}

fn at_the_start_it_is_said_once() -> Checked {
    let mut server = Redis::start()?;
    let url = url(&server);
    server.kill()?;
    let mut waiter = Waiter::start(&url, &["acquire", "a", "--patience", "4s"]);
    let away = waiter.line();
    assert!(away.contains("does not answer; trying again for 4s") && away.contains(&url), "{away}");
    let failed = waiter.line();
    assert!(failed.starts_with("leasehold: connect") && failed.contains(&url), "{failed}");
    assert_eq!(waiter.0.wait()?.code(), Some(69));
    Ok(())
}

/// A `run` that was killed, and a process that it had started. The lease is longer than any test.
struct Killed(Pid);

impl Killed {
    fn new(url: &str, password: Option<&str>, flags: &[&str], line: &str) -> Self {
        let mut command: Command = program::command();
        command
            .env_clear()
            .env("LEASEHOLD_STORE", url)
            .args(["run", "a", "--keep", "1h"])
            .args(flags)
            .args(["-c", line]);
        password.iter().for_each(|password| {
            command.env("LEASEHOLD_PASSWORD", password);
        });
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it");
        let mut started = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut started).expect("a line");
        let started = started.trim().parse().ok().and_then(Pid::from_raw).expect("a process");
        child.kill().expect("it is there");
        child.wait().expect("an end");
        Self(started)
    }

    fn is_alive(&self) -> bool {
        test_kill_process(self.0).is_ok()
    }
}

fn a_runner_that_was_killed_keeps_nobody_waiting() -> Checked {
    let server = Redis::with(Settings::default().password("secret"))?;
    let line = "setsid sleep 600 & echo $!; wait";
    let killed = Killed::new(&url(&server), Some("secret"), &[], line);
    run_with(&url(&server), Some("secret"), &["acquire", "a", "--wait", "60s"]).is(0);
    assert!(!killed.is_alive(), "it was given back too soon");
    let servers = [Redis::start()?, Redis::start()?, Redis::start()?];
    let places = servers.each_ref().map(|server| server.address().to_string());
    let quorum = format!("redlock://{}?quarantine=0s", places.join(","));
    let killed = Killed::new(&quorum, None, &[], line);
    run(&quorum, &["run", "a", "--wait", "60s", "-c", "true"]).is(0);
    assert!(!killed.is_alive(), "it was given back too soon");
    Ok(())
}

fn what_is_left_of_a_killed_runner_keeps_its_lock() -> Checked {
    let server = Redis::start()?;
    // It heeds no SIGTERM, and has the whole grace.
    let line = "trap '' TERM; (echo $(exec sh -c 'echo $PPID'); while :; do sleep 0.05; done) & wait; wait";
    let killed = Killed::new(&url(&server), None, &["--grace", "6s"], line);
    let busy = run(&url(&server), &["acquire", "a", "--no-wait"]);
    assert!(killed.is_alive(), "it was ended sooner than its grace");
    busy.is(75);
    run(&url(&server), &["acquire", "a", "--wait", "60s"]).is(0);
    assert!(!killed.is_alive(), "it was given back too soon");
    Ok(())
}

/// The guardian sees first that no descendant is left, and only then that the runner is gone.
fn a_runner_that_is_killed_after_its_command() -> Checked {
    let server = Redis::start()?;
    let mut command: Command = program::command();
    command.env_clear().env("LEASEHOLD_STORE", url(&server)).args(["run", "a", "--keep", "1h"]);
    command.args(["-c", "echo $$; read -r _"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut runner = command.spawn()?;
    let mut started = String::new();
    BufReader::new(runner.stdout.take().expect("a pipe")).read_line(&mut started)?;
    let started = Killed(started.trim().parse().ok().and_then(Pid::from_raw).expect("a process"));
    kill_process(Pid::from_child(&runner), Signal::STOP)?;
    drop(runner.stdin.take());
    let began = Instant::now();
    while started.is_alive() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    runner.kill()?;
    runner.wait()?;
    run(&url(&server), &["acquire", "a", "--wait", "60s"]).is(0);
    Ok(())
}

/// Such as that of a `run` that joined it from elsewhere, which works on.
fn a_killed_runner_gives_back_no_hold_but_its_own() -> Checked {
    let server = Redis::start()?;
    let url = url(&server);
    let enter = format!("{} acquire a --owner $LEASEHOLD_OWNER --lease 10m --json", program::PATH);
    let _killed = Killed::new(&url, None, &[], &format!("{enter} >&2; sleep 600 & echo $!; wait"));
    let began = Instant::now();
    let left = loop {
        let shown = run(&url, &["show", "a", "--json"]).is(0).json();
        if shown["holds"] != 2 {
            break shown;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was given back: {shown}");
    };
    assert_eq!((&left["held"], &left["holds"]), (&true.into(), &1.into()), "{left}");
    Ok(())
}

fn a_hold_that_may_be_anothers_is_left_to_its_lease() -> Checked {
    for flags in [&["--owner", "me"][..], &["--at-least", "1h"]] {
        let server = Redis::start()?;
        let killed = Killed::new(&url(&server), None, flags, "sleep 600 & echo $!; wait");
        let began = Instant::now();
        while killed.is_alive() {
            assert!(began.elapsed() < Duration::from_secs(60), "it was not ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        run(&url(&server), &["acquire", "a", "--wait", "3s"]).is(75);
    }
    Ok(())
}
