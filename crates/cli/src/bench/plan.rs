//! The measurement plan: arguments of `bench` with their defaults and bounds.

use std::time::Duration;

use crate::args::{BenchArgs, Workload};
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

const SPAN: Duration = Duration::from_secs(5);
/// Long enough that every lease is renewed three times.
const SPAN_OF_HOLD: Duration = Duration::from_secs(30);
const SPAN_MAX: Duration = Duration::from_secs(60 * 60);
const TASKS_MAX: u32 = 1_000_000;
const PROCESSES_MAX: u32 = 256;

/// A workload with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    /// Unique to this run.
    pub(crate) run: String,
    pub(crate) span: Duration,
    /// Per process.
    pub(crate) tasks: usize,
    pub(crate) processes: usize,
    pub(crate) budget: Option<Duration>,
}

impl Plan {
    pub(crate) fn new(args: &BenchArgs, settings: &Settings) -> Result<Self, Failure> {
        let (workload, label) = (args.workload, label(args.workload));
        if args.tasks.is_some() && workload == Workload::Solo {
            return Err(Failure::usage("--tasks does not apply to solo, which has one task")
                .with_hint("--workload fleet has many tasks with a name each; --workload hot has many on one name"));
        }
        if args.processes.is_some() && workload != Workload::Crowd {
            return Err(Failure::usage(format!("--processes applies to crowd only; {label} has one process"))
                .with_hint("--workload crowd has several processes on one name"));
        }
        if workload == Workload::Crowd && is_inside_one_process(settings) {
            return Err(Failure::new(Exit::UNFIT, "crowd needs several processes, but memory: exists inside one")
                .with_hint("use --store file:/path/to/locks.db for several processes, or --workload hot for one"));
        }
        let span = args.span.unwrap_or(if workload == Workload::Hold { SPAN_OF_HOLD } else { SPAN });
        if span.is_zero() || span > SPAN_MAX {
            return Err(Failure::usage("--for must be from 1ms to 1h").with_hint("write it like '--for 10s'"));
        }
        let tasks = within("--tasks", args.tasks.unwrap_or(usual_tasks(workload)), TASKS_MAX)?;
        let processes = args.processes.unwrap_or(if workload == Workload::Crowd { 8 } else { 1 });
        let processes = within("--processes", processes, PROCESSES_MAX)?;
        Ok(Self { workload, run: run()?, span, tasks, processes, budget: args.budget })
    }

    /// A name of this run.
    pub(crate) fn name(&self, of: &str) -> String {
        format!("{}/{of}", self.run)
    }

    /// Name of the workload, as in the arguments.
    pub(crate) fn label(&self) -> &'static str {
        label(self.workload)
    }
}

fn is_inside_one_process(settings: &Settings) -> bool {
    settings.store.url.as_str().split(':').next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory"))
}

fn label(workload: Workload) -> &'static str {
    match workload {
        Workload::Solo => "solo",
        Workload::Fleet => "fleet",
        Workload::Hot => "hot",
        Workload::Crowd => "crowd",
        Workload::Hold => "hold",
    }
}

fn usual_tasks(workload: Workload) -> u32 {
    match workload {
        Workload::Solo | Workload::Crowd => 1,
        Workload::Fleet => 1_000,
        Workload::Hot => 64,
        Workload::Hold => 100_000,
    }
}

fn within(flag: &str, given: u32, most: u32) -> Result<usize, Failure> {
    if (1..=most).contains(&given) {
        return Ok(given as usize);
    }
    Err(Failure::usage(format!("{flag} {given} is out of range")).with_hint(format!("use a number from 1 to {most}")))
}

fn run() -> Result<String, Failure> {
    let chance = getrandom::u64()
        .map_err(|error| Failure::new(Exit::BUG, format!("cannot generate random numbers: {error}")))?;
    Ok(format!("leasehold-bench-{chance:016x}"))
}
