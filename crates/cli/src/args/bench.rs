//! The flags of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(long, value_name = "W", value_enum, default_value_t = Workload::Solo)]
    pub(crate) workload: Workload,
    /// For how long [default: 5s, hold 30s]
    #[arg(long = "for", value_name = "D", value_parser = duration)]
    pub(crate) span: Option<Duration>,
    /// How many tasks; of crowd, in each process; of hold, how many locks [default: fleet 1000, hot 64, crowd 1, hold 100000]
    #[arg(long, value_name = "N")]
    pub(crate) tasks: Option<u32>,
    /// How many processes [default: crowd 8]
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<u32>,
    /// For how long a lock is passed from task to task before other processes get their turn [default: 50ms]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `bench` measures.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// One task, one name, take and release in turn
    Solo,
    /// Many tasks, each its own name
    Fleet,
    /// Many tasks of one process on one name
    Hot,
    /// Several processes on one name
    Crowd,
    /// Many held locks kept by one process
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
