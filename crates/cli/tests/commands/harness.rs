//! A store of its own for every test, and the command run on it.

use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, Ran, lines};

/// Nothing takes this long unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Every JSON field of a lock, in order.
pub(crate) const FIELDS: [&str; 15] = [
    "name", "granted", "held", "owner", "label", "fence", "holds", "broken", "lease_ms", "left_ms", "host", "pid",
    "since", "waiters", "store",
];

/// A folder with a store, and a home: nothing outside of it is touched.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path("locks.db")
    }

    pub(crate) fn store(&self) -> String {
        format!("file:{}", self.file().display())
    }

    /// The command, not yet started, without a store: the default one is in the folder.
    pub(crate) fn bare(&self, args: &[&str]) -> Command {
        let mut command = program::command();
        command.env("HOME", self.0.path()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The command on this store, not yet started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bare(args);
        command.env("LEASEHOLD_STORE", self.store());
        command
    }

    /// The command on this store, run to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Running::start(&mut self.command(args)).ended()
    }

    /// The one lock, as `show --json` has it.
    pub(crate) fn shown(&self, name: &str) -> Value {
        self.run(&["show", name, "--json"]).is(0).json()
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.shown(name)["held"] == true
    }

    /// Nothing is held, and the waitlists are empty.
    pub(crate) fn nothing_is_left(&self, name: &str) {
        assert_eq!(self.run(&["list", "--json"]).is(0).out, "");
        assert_eq!(self.shown(name)["waiters"], 0);
    }

    /// The store is there, and nothing is held in it.
    pub(crate) fn make(&self) {
        self.acquire("made", "maker");
        self.run(&["release", "made", "--owner", "maker"]).is(0);
    }

    /// Takes a lock for a minute; answers its fence.
    pub(crate) fn acquire(&self, name: &str, owner: &str) -> u64 {
        let taken = self.run(&["acquire", name, "--owner", owner, "--lease", "1m", "--no-wait", "--json"]);
        taken.is(0).json()["fence"].as_u64().unwrap()
    }
}

/// A command that runs. Killed when it is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    out: Receiver<String>,
    err: Receiver<String>,
    seen_out: String,
    seen_err: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let (out, err) = (lines(child.stdout.take()), lines(child.stderr.take()));
        Self { child, stdin, out, err, seen_out: String::new(), seen_err: String::new() }
    }

    /// The next line of data.
    pub(crate) fn line(&mut self) -> String {
        let line = self.out.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("no line: {error}; {}", self.rest_err()));
        self.seen_out += &line;
        line.trim_end().to_owned()
    }

    /// Waits until standard error has said this.
    pub(crate) fn until_it_says(&mut self, text: &str) {
        self.until_it_has_said(1, text);
    }

    /// Waits until standard error contains this, this many times.
    pub(crate) fn until_it_has_said(&mut self, times: usize, text: &str) {
        while self.seen_err.matches(text).count() < times {
            let line = self.err.recv_timeout(LIMIT);
            self.seen_err +=
                &line.unwrap_or_else(|error| panic!("it never said {text:?} ({error}): {}", self.seen_err));
        }
    }

    fn rest_err(&mut self) -> String {
        self.seen_err.extend(self.err.try_iter());
        self.seen_err.clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ran {
        let status = self.wait();
        self.seen_out.extend(self.out.iter());
        self.seen_err.extend(self.err.iter());
        Ran { code: status.code(), out: std::mem::take(&mut self.seen_out), err: std::mem::take(&mut self.seen_err) }
    }

    fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None if began.elapsed() > LIMIT => panic!("it hangs: {}", self.rest_err()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ran {
    /// It failed with words for people: what failed, and what to try.
    pub(crate) fn fails(&self, code: i32, words: &str) -> &Self {
        self.is(code);
        assert!(self.err.starts_with("leasehold: "), "{self:?}");
        assert!(self.err.contains("\nhint: "), "{self:?}");
        assert!(self.err.contains(words), "{words:?} is missing in {self:?}");
        self
    }

    pub(crate) fn says(&self, words: &str) -> &Self {
        assert!(self.out.contains(words), "{words:?} is missing in {self:?}");
        self
    }
}

/// The fields of an object, in order.
pub(crate) fn fields(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}
