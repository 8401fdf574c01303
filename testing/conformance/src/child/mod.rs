//! The test binary as another process: one that forks, or one that obeys a test.

mod fork;
mod obey;
pub mod planted;
mod pupil;
mod recorded;
pub(crate) mod work;

use std::process::{Command, ExitCode};

use crate::case::Failure;
use planted::Planted;

/// Set in children: the job, and what it needs to know, on a line each.
const JOB: &str = "LEASEHOLD_CONFORMANCE_JOB";

/// What a child can do.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Fork while a lock is held, and see that the child of the fork can do nothing.
    Fork,
    /// Executes commands from the standard input: see [`crate::remote::Remote`].
    Obey {
        /// Its number in ledgers.
        who: u64,
        /// What it does wrong.
        bug: Planted,
    },
}

/// A child to be started.
///
/// # Errors
///
/// When this program cannot be found.
pub fn command(url: &str, job: Job) -> Result<Command, Failure> {
    let job = match job {
        Job::Fork => format!("fork\n{url}"),
        Job::Obey { who, bug } => format!("obey\n{url}\n{who}\n{}", bug.name()),
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.env(JOB, job);
    Ok(command)
}

/// Does the job of a child, where this process is one.
pub fn run() -> Option<ExitCode> {
    let job = std::env::var(JOB).ok()?;
    let lines: Vec<&str> = job.lines().collect();
    let done = match lines.as_slice() {
        ["fork", url] => fork::fork(url),
        ["obey", url, who, bug] => obey::obey(url, who, bug),
        _ => Err("there is no such job".into()),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the child failed: {error}");
            ExitCode::FAILURE
        }
    })
}
