//! `run` on a real terminal, under an interactive shell: reading, Ctrl-C, Ctrl-Z, `fg` and `bg`, and which group has
//! the terminal afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::mpsc;

use rustix::process::{Pid, Signal, getpgid, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetpgrp;

use crate::harness::{PATIENCE, Place, program_path};

/// A shell on a terminal, and hands on its keyboard.
pub(crate) struct Shell {
    place: Rc<Place>,
    shell: Child,
    keyboard: File,
    screen: mpsc::Receiver<String>,
    seen: String,
}

impl Shell {
    pub(crate) fn start() -> Self {
        let place = Rc::new(Place::new());
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let other = || File::options().read(true).write(true).open(&name).unwrap();
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]).current_dir(place.path(""));
        shell.env("LEASEHOLD_STORE", place.store()).env("PS1", "").env("TERM", "dumb").env("L", program_path());
        let shell = shell.stdin(other()).stdout(other()).stderr(other()).spawn().unwrap();
        let keyboard = File::from(terminal);
        let screen = screen(keyboard.try_clone().unwrap());
        let mut shell = Self { place, shell, keyboard, screen, seen: String::new() };
        shell.types("stty -echo; PS1=; echo hello-$((1+1))\n");
        shell.sees("hello-2");
        shell
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Where it is.
    pub(crate) fn place(&self) -> Rc<Place> {
        self.place.clone()
    }

    /// Sets variables for what it starts in place of `$L`.
    pub(crate) fn sets(&mut self, variables: &[(&str, String)]) {
        let words: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.types(&format!("L=\"env {} $L\"; echo set-$((1+1))\n", words.join(" ")));
        self.sees("set-2");
    }

    pub(crate) fn keyboard(&self) -> &File {
        &self.keyboard
    }

    /// Waits for a text on the screen, after those that were waited for before.
    pub(crate) fn sees(&mut self, text: &str) {
        while !self.seen.contains(text) {
            match self.screen.recv_timeout(PATIENCE) {
                Ok(more) => self.seen.push_str(&more),
                Err(_) => panic!("no {text:?} but {:?}", self.seen),
            }
        }
        let after = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..after);
    }

    /// The number that comes next on the screen, before a dot.
    fn number(&mut self) -> Pid {
        while !self.seen.contains('.') {
            self.seen.push_str(&self.screen.recv_timeout(PATIENCE).expect("a number"));
        }
        Pid::from_raw(self.seen.split('.').next().unwrap().parse().unwrap()).unwrap()
    }

    /// The shell prints the exit code of its last command: so it has the terminal.
    pub(crate) fn code_is(&mut self, code: i32) {
        self.types("echo rc=$?.\n");
        self.sees(&format!("rc={code}."));
        assert_eq!(tcgetpgrp(&self.keyboard).unwrap(), Pid::from_child(&self.shell), "the shell has the terminal");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.shell), Signal::KILL);
        let _ = self.shell.wait();
    }
}

fn screen(mut from: File) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
pub(crate) const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

#[test]
fn a_command_reads_the_terminal() {
    let mut shell = Shell::start();
    shell.types("$L run x -- cat\n");
    shell.types("one\n");
    shell.sees("one");
    shell.types("two\n");
    shell.sees("two");
    shell.types(CTRL_D);
    shell.code_is(0);
}

#[test]
fn the_commands_group_has_the_terminal() {
    let mut shell = Shell::start();
    // From its first moment: it is tried often, and quickly.
    let line = "set -- $(cat /proc/$$/stat); [ $5 = $8 ] && [ $5 = $$ ]";
    shell.types(&format!("for i in 1 2 3 4 5 6 7 8 9 10; do $L run x -- sh -c '{line}' || break; done\n"));
    shell.code_is(0);
    shell.types("$L run x -- /no/such\n");
    shell.sees("not found");
    shell.code_is(127);
    shell.types("$L run x -- /etc/passwd\n");
    shell.code_is(126);
    shell.types(
        "grep -E '^Sig(Blk|Ign)' /proc/self/status >a; $L run x -- grep -E '^Sig(Blk|Ign)' /proc/self/status >b\n",
    );
    shell.types("cmp a b\n");
    shell.code_is(0);
}

#[test]
fn ctrl_c_ends_the_command_alone() {
    let mut shell = Shell::start();
    shell.types("$L run x -- sh -c 'echo up-$((1+1)); exec sleep 60'\n");
    shell.sees("up-2");
    shell.types(CTRL_C);
    shell.code_is(130);
    assert!(shell.place.is_free("x"));
    shell.types(
        "$L run x -- sh -c 'trap \"echo caught; exit 4\" INT; echo up-$((1+1)); while :; do sleep 0.01; done'\n",
    );
    shell.sees("up-2");
    shell.types(CTRL_C);
    shell.sees("caught");
    shell.code_is(4);
}

#[test]
fn ctrl_backslash_ends_the_command() {
    let mut shell = Shell::start();
    shell.types("ulimit -c 0; $L run x -- sh -c 'echo up-$((1+1)); exec sleep 60'\n");
    shell.sees("up-2");
    shell.types(CTRL_BACKSLASH);
    shell.code_is(131);
}

#[test]
fn ctrl_c_while_waiting_ends_the_waiting() {
    let mut shell = Shell::start();
    shell.types("$L run x -- sh -c 'echo held-$((1+1)); exec sleep 60' &\n");
    shell.sees("held-2");
    shell.types("$L run x -v -- true\n");
    shell.sees("the locks are in");
    shell.types(CTRL_C);
    shell.code_is(130);
    shell.types("kill %1; wait; echo over-$((1+1))\n");
    shell.sees("over-2");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_goes_on() {
    let mut shell = Shell::start();
    shell.types("$L run x -- sh -c 'echo up-$((1+1)); exec cat'\n");
    shell.sees("up-2");
    for round in 0..3 {
        shell.types(CTRL_Z);
        shell.sees("Stopped");
        shell.types("echo shell-$((1+1))\n");
        shell.sees("shell-2");
        shell.types("fg\n");
        shell.types(&format!("again {round}\n"));
        shell.sees(&format!("again {round}"));
    }
    shell.types(CTRL_D);
    shell.code_is(0);
}

#[test]
fn ctrl_z_then_bg_goes_on_in_the_background() {
    let mut shell = Shell::start();
    // It starts nothing: a shell that is stopped while it does waits for its child, and is itself not stopped, with us or without.
    shell.types("mkfifo go; $L run x -- sh -c 'echo up-$((1+1)); read line <go; echo went-$((1+1)); exit 6'\n");
    shell.sees("up-2");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    // On one line: the shell forgets a job once it has reported its end, which it does between two lines.
    shell.types("bg; echo >go; wait %1; echo rc=$?.\n");
    shell.sees("went-2");
    shell.sees("rc=6.");
}

#[test]
fn a_job_that_stays_stopped_is_ended_before_its_lease_is_over() {
    let mut shell = Shell::start();
    shell.types("$L run x --keep 1s -- sh -c 'echo up-$((1+1)); exec cat'\n");
    shell.sees("up-2");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    // It is never continued. It ends, and says so.
    shell.sees("could not be renewed in time");
    shell.types("$L run x -- echo next-$((1+1))\n");
    shell.sees("next-2");
    // The shell reports its jobs when it has the terminal again.
    shell.sees("Exit 76");
}

#[test]
fn ctrl_z_in_a_script_stops_the_script() {
    let mut shell = Shell::start();
    shell.types(
        "sh -c '$L run x -- sh -c \"echo up-\\$((1+1)); exec cat\"; echo after=$?; read line; echo got=$line.'\n",
    );
    shell.sees("up-2");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    shell.types("fg\n");
    shell.types("more\n");
    shell.sees("more");
    shell.types(CTRL_D);
    shell.sees("after=0");
    shell.types("rest\n");
    shell.sees("got=rest.");
    shell.code_is(0);
}

#[test]
fn a_background_job_that_reads_is_stopped_and_comes_to_the_foreground() {
    let mut shell = Shell::start();
    shell.types("$L run x -- cat &\n");
    shell.types("while ! jobs | grep -q Stopped; do sleep 0.05; done; echo stopped-$((1+1))\n");
    shell.sees("stopped-2");
    shell.types("fg\n");
    shell.types("now\n");
    shell.sees("now");
    shell.types(CTRL_D);
    shell.code_is(0);
}

#[test]
fn a_command_with_other_input_can_ask_for_the_terminal() {
    let mut shell = Shell::start();
    shell.types("echo data | $L run x -- sh -c 'cat; echo ask-$((1+1)); read line </dev/tty; echo told=$line.'\n");
    shell.sees("data");
    shell.sees("ask-2");
    shell.types("secret\n");
    shell.sees("told=secret.");
    shell.code_is(0);
}

#[test]
fn a_terminal_that_stops_background_output_does_not_stop_us() {
    let mut shell = Shell::start();
    shell.types("stty tostop; $L run x --lease 3s -- sleep 600\n");
    shell.sees("the lease ended");
    shell.code_is(76);
}

#[test]
fn an_interactive_shell_inside_has_jobs_of_its_own() {
    let mut shell = Shell::start();
    shell.types("$L run x -- bash --norc --noprofile --noediting -i\n");
    shell.types("PS1=; sh -c 'echo inner-$((1+1)); exec cat'\n");
    shell.sees("inner-2");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    shell.types("fg\n");
    shell.types("line\n");
    shell.sees("line");
    shell.types(CTRL_D);
    shell.types("exit 9\n");
    shell.code_is(9);
}

#[test]
fn the_terminal_is_given_back_when_the_guardian_or_the_runner_is_killed() {
    let mut shell = Shell::start();
    for is_guardian in [true, false] {
        // In a script, so that it is not the shell that takes the terminal back.
        shell.types(
            "sh -c '$L run x -- sh -c \"echo up=\\$PPID.; exec sleep 60\"
            while [ ! -e go ]; do sleep 0.01; done; rm go; read line; echo got=$line.'\n",
        );
        shell.sees("up=");
        let guardian = shell.number();
        let whom = if is_guardian { guardian } else { parent(guardian) };
        let home = getpgid(Some(parent(guardian))).unwrap();
        kill_process(whom, Signal::KILL).unwrap();
        while tcgetpgrp(&shell.keyboard).unwrap() != home {
            std::thread::yield_now();
        }
        std::fs::write(shell.place.path("go"), "").unwrap();
        shell.types("rest\n");
        shell.sees("got=rest.");
        shell.code_is(0);
    }
}

pub(crate) fn parent(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    Pid::from_raw(stat.split_whitespace().nth(3).unwrap().parse().unwrap()).unwrap()
}
