//! A store of its own for every test, and commands under its locks. A test that hangs is ended.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::program;

/// Nothing here takes longer, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A folder with a store in it.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        format!("file:{}", self.path("locks.db").display())
    }

    /// `leasehold run`, with words that are separated by spaces, and then the command.
    pub(crate) fn run(&self, words: &str, command: &[&str]) -> Command {
        let mut run = self.program();
        run.arg("run").args(words.split_whitespace());
        if !command.is_empty() {
            run.arg("--").args(command);
        }
        run
    }

    /// `leasehold run … -c line`.
    pub(crate) fn shell(&self, words: &str, line: &str) -> Command {
        let mut run = self.run(words, &[]);
        run.args(["-c", line]);
        run
    }

    /// `leasehold` on this store, in this folder.
    pub(crate) fn program(&self) -> Command {
        self.here(program::command())
    }

    /// A shell on this store, in this folder, with the path of `leasehold` in `$LEASEHOLD`.
    pub(crate) fn outside(&self, line: &str) -> Command {
        let mut shell = self.here(program::bare(Command::new("sh")));
        shell.args(["-c", line]);
        shell
    }

    fn here(&self, mut command: Command) -> Command {
        command.current_dir(self.0.path()).env("LEASEHOLD_STORE", self.store()).env("LEASEHOLD", program::PATH);
        command
    }

    /// Whether the lock is free.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        code(&output(self.run(&format!("{name} --no-wait"), &["true"]))) == 0
    }
}

pub(crate) fn program_path() -> &'static Path {
    Path::new(program::PATH)
}

/// Runs to the end, and gives all that was printed.
pub(crate) fn output(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    in_time(pid, move || child.wait_with_output().unwrap())
}

/// Does something that waits for a process, and ends the process if it takes too long.
pub(crate) fn in_time<T: Send + 'static>(pid: Pid, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = kill_process(pid, Signal::KILL);
        panic!("nothing came from process {} in {PATIENCE:?}", pid.as_raw_nonzero());
    })
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{}: {}", output.status, stderr(output)))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command that runs beside the test, whose lines are waited for.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: Command) -> Self {
        Self::with_errors_to(command, Stdio::piped())
    }

    pub(crate) fn with_errors_to(mut command: Command, errors: Stdio) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let (lines, errors) = (program::lines(child.stdout.take()), program::lines(child.stderr.take()));
        Self { child, lines, errors }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line that it prints.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line").trim_end_matches('\n').to_owned()
    }

    /// The next line that it prints on standard error.
    pub(crate) fn error_line(&self) -> String {
        self.errors.recv_timeout(PATIENCE).expect("a line on standard error").trim_end_matches('\n').to_owned()
    }

    /// Its end, while others may still have its output open.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let pid = self.pid();
        let ended = move || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        in_time(pid, ended);
        self.child.wait().unwrap()
    }

    /// Its end, and what else it said on standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let pid = self.pid();
        let status = in_time(pid, move || self.child.wait().unwrap());
        (status, self.errors.into_iter().collect())
    }
}
