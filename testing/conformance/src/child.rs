//! The test binary as a child process: it adds to a number in a file, under a lock but without any other protection.

use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use leasehold::blocking::Client;

use crate::case::{Checked, Failure};

/// Set in children: the URL, the path of the file and how often to add one, on a line each.
const JOB: &str = "LEASEHOLD_CONFORMANCE_JOB";

/// Starts a child that adds one to the number in `file`, `times` times, each under the lock `counter`.
///
/// # Errors
///
/// When it cannot be started.
pub fn start(url: &str, file: &Path, times: u32) -> Result<Child, Failure> {
    let job = format!("{url}\n{}\n{times}", file.display());
    Ok(Command::new(std::env::current_exe()?).env(JOB, job).spawn()?)
}

/// Does the job of a child, where this process is one.
pub fn run() -> Option<ExitCode> {
    let job = std::env::var(JOB).ok()?;
    Some(match add(&job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the child failed: {error}");
            ExitCode::FAILURE
        }
    })
}

fn add(job: &str) -> Checked {
    let mut job = job.lines();
    let mut next = || job.next().ok_or("a job has three lines");
    let (url, file, times): (_, _, u32) = (next()?, next()?, next()?.parse()?);
    let client = Client::connect(url)?;
    for _ in 0..times {
        let guard = client.lock("counter").acquire()?;
        let count: u64 = std::fs::read_to_string(file)?.trim().parse()?;
        std::thread::sleep(Duration::from_micros(50));
        std::fs::write(file, (count + 1).to_string())?;
        guard.release()?;
    }
    Ok(())
}
