//! One file a command. Each takes its arguments and the settings, and says how the process ends.

mod bench;
mod run;

use crate::args::Command;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

/// Runs a command.
pub(crate) fn dispatch(command: &Command, settings: &Settings) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(args, settings),
        Command::Bench(args) => bench::run(args, settings),
        Command::BenchWorker(args) => bench::work(args, settings),
        _ => Err(Failure::new(Exit::BUG, "not built yet")),
    }
}
