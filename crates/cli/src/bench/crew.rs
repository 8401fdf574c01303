//! The processes of `crowd`: started, told to begin and to stop, listened to, and never left behind.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Plan;
use super::said::Said;
use crate::exit::{Exit, Failure};
use crate::settings::{self, Password, Settings};

/// How long is waited for the end of workers that were stopped.
const GRACE: Duration = Duration::from_secs(10);

/// What is heard of a worker.
pub(crate) enum WorkerMessage {
    /// It said something.
    Said(usize, Said),
    /// It ended before it had told all.
    Failed(Failure),
}

/// The workers.
pub(crate) struct Crew {
    /// Closed, a worker stops.
    inputs: Vec<ChildStdin>,
    listeners: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts them. The store's URL may hold a password: it goes by the environment, where only its owner can see it.
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

    /// Lets all begin, to work for so long.
    pub(crate) fn begin(&mut self, span: Duration) {
        for input in &mut self.inputs {
            // One that has gone is heard of otherwise.
            let _ = writeln!(input, "{}", span.as_millis());
        }
    }

    /// Lets all stop.
    pub(crate) fn stop(&mut self) {
        self.inputs.clear();
    }
}

impl Drop for Crew {
    /// Waits for the workers, which have to give back what they hold.
    fn drop(&mut self) {
        self.stop();
        let last = Instant::now() + GRACE;
        while self.listeners.iter().any(|listener| !listener.is_finished()) && Instant::now() < last {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Hands on what a worker says until its end.
fn listen(worker: usize, mut child: Child, output: ChildStdout, teller: &mpsc::UnboundedSender<WorkerMessage>) {
    let mut told_all = false;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some(said) = Said::parse(&line) {
            told_all |= matches!(said, Said::Done { .. });
            // Nobody listens where another worker failed.
            let _ = teller.send(WorkerMessage::Said(worker, said));
        }
    }
    let status = child.wait();
    if !told_all {
        let _ = teller.send(WorkerMessage::Failed(ended(worker, status.ok())));
    }
}

/// Why a worker ended too early. It has printed its own reason, and its exit code is ours.
fn ended(worker: usize, status: Option<ExitStatus>) -> Failure {
    let number = worker + 1;
    if let Some(signal) = status.and_then(|status| status.signal()) {
        return Failure::new(Exit::BUG, format!("bench: worker {number} was ended by signal {signal}"))
            .with_hint("its share is missing: measure again");
    }
    let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    let exit = code.filter(|code| *code != 0).map_or(Exit::BUG, Exit::other);
    Failure::new(exit, format!("bench: worker {number} ended before the work was done"))
}

fn unstarted(error: &std::io::Error) -> Failure {
    Failure::new(Exit::BUG, format!("bench: a worker could not be started: {error}"))
}
