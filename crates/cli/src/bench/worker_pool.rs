//! The worker processes of `crowd`: starts, starts and stops their work, reads their messages, and always waits for
//! their end.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Plan;
use super::worker_report::WorkerReport;
use crate::exit::{Exit, Failure};
use crate::settings::{self, Password, Settings};

/// How long workers that were stopped have to end.
const GRACE: Duration = Duration::from_secs(10);

/// News from a worker.
pub(crate) enum WorkerMessage {
    /// It sent a message.
    WorkerReport(usize, WorkerReport),
    /// It ended before its last message.
    Failed(Failure),
}

/// The workers.
pub(crate) struct WorkerPool {
    /// Closing one stops its worker.
    inputs: Vec<ChildStdin>,
    listeners: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    /// Starts the workers. The store's URL may hold a password, so it is passed in the environment, which only its
    /// owner can read.
    pub(crate) fn start(
        plan: &Plan,
        settings: &Settings,
        stamps: &Path,
    ) -> Result<(Self, mpsc::UnboundedReceiver<WorkerMessage>), Failure> {
        let this = std::env::current_exe().map_err(|error| unstarted(&error))?;
        let (teller, news) = mpsc::unbounded_channel();
        let mut crew = Self { inputs: Vec::new(), listeners: Vec::new() };
        for worker in 0..plan.processes {
            let mut command = Command::new(&this);
            command.arg("bench-worker").arg("--name").arg(plan.name("crowd"));
            command.arg("--number").arg((worker + 1).to_string()).arg("--tasks").arg(plan.tasks.to_string());
            command.arg("--stamps").arg(stamps);
            if let Some(budget) = plan.budget {
                command.arg("--budget").arg(humantime::format_duration(budget).to_string());
            }
            command.env(settings::STORE, settings.store.url.as_str());
            if let Some(Password::File(path)) = &settings.store.password {
                command.env(settings::PASSWORD_FILE, path);
            }
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| unstarted(&error))?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Failure::new(Exit::BUG, "bench: a worker has no pipes"));
            };
            crew.inputs.push(input);
            let teller = teller.clone();
            crew.listeners.push(std::thread::spawn(move || listen(worker, child, output, &teller)));
        }
        Ok((crew, news))
    }

    /// Starts the measurement in all workers.
    pub(crate) fn begin(&mut self, span: Duration) {
        for input in &mut self.inputs {
            // A worker that has ended is reported elsewhere.
            let _ = writeln!(input, "{}", span.as_millis());
        }
    }

    /// Stops all workers.
    pub(crate) fn stop(&mut self) {
        self.inputs.clear();
    }
}

impl Drop for WorkerPool {
    /// Waits for the workers, which must release their locks.
    fn drop(&mut self) {
        self.stop();
        let last = Instant::now() + GRACE;
        while self.listeners.iter().any(|listener| !listener.is_finished()) && Instant::now() < last {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Forwards what a worker says, until its end.
fn listen(worker: usize, mut child: Child, output: ChildStdout, teller: &mpsc::UnboundedSender<WorkerMessage>) {
    let mut told_all = false;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some(said) = WorkerReport::parse(&line) {
            told_all |= matches!(said, WorkerReport::Done { .. });
            // The receiver is gone if another worker failed.
            let _ = teller.send(WorkerMessage::WorkerReport(worker, said));
        }
    }
    let status = child.wait();
    if !told_all {
        let _ = teller.send(WorkerMessage::Failed(ended(worker, status.ok())));
    }
}

/// Why a worker ended early. It printed its own reason, and its exit code becomes ours.
fn ended(worker: usize, status: Option<ExitStatus>) -> Failure {
    let number = worker + 1;
    if let Some(signal) = status.and_then(|status| status.signal()) {
        return Failure::new(Exit::BUG, format!("bench: worker {number} was ended by signal {signal}"))
            .with_hint("its results are missing: run it again");
    }
    let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    let exit = code.filter(|code| *code != 0).map_or(Exit::BUG, Exit::other);
    Failure::new(exit, format!("bench: worker {number} ended before the work was done"))
}

fn unstarted(error: &std::io::Error) -> Failure {
    Failure::new(Exit::BUG, format!("bench: a worker could not be started: {error}"))
}
