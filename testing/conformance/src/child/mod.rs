//! The test binary as a child process that does one job.

mod count;
mod fork;

use std::process::{Child, Command, ExitCode};

use crate::case::Failure;

/// Set in children: the job, and what it needs to know, on a line each.
const JOB: &str = "LEASEHOLD_CONFORMANCE_JOB";

/// What a child can do.
#[derive(Clone, Copy, Debug)]
pub enum Job<'a> {
    /// Add one to the number in a file, so many times, each under the lock `counter` but without any other protection.
    Count {
        /// The file.
        file: &'a str,
        /// How often.
        times: u32,
    },
    /// Fork while a lock is held, and see that the child of the fork can do nothing.
    Fork,
}

/// Starts a child.
///
/// # Errors
///
/// When it cannot be started.
pub fn start(url: &str, job: Job<'_>) -> Result<Child, Failure> {
    let job = match job {
        Job::Count { file, times } => format!("count\n{url}\n{file}\n{times}"),
        Job::Fork => format!("fork\n{url}"),
    };
    Ok(Command::new(std::env::current_exe()?).env(JOB, job).spawn()?)
}

/// Does the job of a child, where this process is one.
pub fn run() -> Option<ExitCode> {
    let job = std::env::var(JOB).ok()?;
    let lines: Vec<&str> = job.lines().collect();
    let done = match lines.as_slice() {
        ["count", url, file, times] => count::count(url, file, times),
        ["fork", url] => fork::fork(url),
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
