//! The flags of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Workload to run
    #[arg(long, value_name = "W", value_enum, default_value_t = Workload::Solo)]
    pub(crate) workload: Workload,
    /// Duration of the run [default: 5s; hold: 30s]
    #[arg(long = "for", value_name = "D", value_parser = duration)]
    pub(crate) span: Option<Duration>,
    /// Number of tasks; for crowd per process, for hold the number of locks [default: fleet 1000, hot 64, crowd 1, hold 100000]
    #[arg(long, value_name = "N")]
    pub(crate) tasks: Option<u32>,
    /// Number of processes, for crowd [default: 8]
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<u32>,
    /// How long tasks of one process may hand the lock to each other before other processes get a turn [default: 50ms]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `bench` measures.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// One task acquires and releases one name in turn
    Solo,
    /// Many tasks, each with its own name
    Fleet,
    /// Many tasks of one process compete for one name
    Hot,
    /// Several processes compete for one name
    Crowd,
    /// One process keeps many locks
    Hold,
}

/// What a process of `--workload crowd` is started with, by `bench` itself.
#[derive(Args, Debug)]
pub(crate) struct BenchWorkerArgs {
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) number: u64,
    #[arg(long)]
    pub(crate) tasks: usize,
    #[arg(long)]
    pub(crate) stamps: PathBuf,
    #[arg(long, value_parser = duration)]
    pub(crate) budget: Option<Duration>,
}
