//! `bench`: measures a store. Prints a report and a histogram.

use std::io::IsTerminal;

use crate::args::{BenchArgs, BenchWorkerArgs};
use crate::bench::{self, Plan};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

pub(crate) fn run(args: &BenchArgs, settings: &Settings) -> Result<Exit, Failure> {
    let plan = Plan::new(args, settings)?;
    let measured = runtime()?.block_on(bench::measure(&plan, settings))?;
    if args.json {
        output::json(&measured.report)?;
    } else {
        output::styled(&bench::text(&measured.report, &measured.times, std::io::stdout().is_terminal()))?;
    }
    match measured.failure {
        Some(failure) => Err(failure),
        None => Ok(Exit::DONE),
    }
}

/// One process of `--workload crowd`.
pub(crate) fn work(args: &BenchWorkerArgs, settings: &Settings) -> Result<Exit, Failure> {
    runtime()?.block_on(bench::worker::run(args, settings))
}

/// At least two threads: a task that never waits must not block timers and signals.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let hint = "check the limits of this process: threads (ulimit -u), memory (ulimit -v), files (ulimit -n)";
    built.map_err(|error| Failure::new(Exit::BUG, format!("could not start the runtime: {error}")).with_hint(hint))
}
