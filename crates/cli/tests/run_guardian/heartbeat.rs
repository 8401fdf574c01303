//! The command of a trial and what it starts: each writes the time to one file, again and again, until it is ended.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Makes the test program one of them.
pub(crate) const WORD: &str = "__beat";

/// The pause between two stamps.
const PAUSE: Duration = Duration::from_micros(500);

/// What a command does besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// Starts others, which start others.
    Forks,
    /// Starts one in a session of its own, and ends.
    Daemon,
    /// Does not heed SIGTERM, nor do those that it started.
    Deaf,
    /// Starts the next in a session of its own, and ends, again and again.
    Comet,
    /// Starts thousands, each in a session of its own. Not among all: it is a strain.
    Crowd,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Plain, Self::Forks, Self::Daemon, Self::Deaf, Self::Comet];

    /// How many lines are printed when all are there.
    pub(crate) fn lines(self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Daemon | Self::Deaf | Self::Crowd => 2,
            Self::Forks | Self::Comet => 5,
        }
    }
}

/// Beats, as the words say.
pub(crate) fn beat(role: &str, path: &str) {
    let file = File::options().append(true).open(path).unwrap();
    println!("{}", std::os::unix::process::parent_id());
    match role {
        "Plain" | "leaf" => {}
        "Forks" => {
            start("branch", path);
            start("branch", path);
        }
        "branch" => start("leaf", path),
        "Daemon" => return start("away", path),
        "Deaf" => {
            heed_nothing();
            start("deaf", path);
        }
        "deaf" => heed_nothing(),
        "away" => drop(rustix::process::setsid()),
        "Comet" => {
            let _ = rustix::process::setsid();
            stamp(&file, 20);
            return start("Comet", path);
        }
        "Crowd" => panic!("{}", Command::new(std::env::var_os("CROWD").unwrap()).arg(path).exec()),
        other => panic!("no role {other}"),
    }
    stamp(&file, usize::MAX);
}

/// It is not waited for, like many that people start.
#[allow(clippy::zombie_processes, reason = "somebody else must see to it: that is what is tried")]
fn start(role: &str, path: &str) {
    let mut next = Command::new("/proc/self/exe");
    next.args([WORD, role, path]).spawn().unwrap();
}

fn heed_nothing() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
    }
}

fn stamp(mut file: &File, times: usize) {
    for _ in 0..times {
        file.write_all(&leasehold_clock::now().as_nanos().to_le_bytes()).unwrap();
        std::thread::sleep(PAUSE);
    }
}
