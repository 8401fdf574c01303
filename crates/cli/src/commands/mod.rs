//! One file per command. Each takes its arguments and the settings, and returns the exit code.

mod acquire;
mod bench;
mod r#break;
mod completions;
mod doctor;
mod hold;
mod list;
mod man;
mod release;
mod renew;
mod run;
mod schema;
mod show;

use crate::args::Command;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

/// Runs a command. Some need no store, and work without one.
pub(crate) fn dispatch(command: &Command, settings: Result<Settings, Failure>) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(args, &settings?),
        Command::Hold(args) => hold::run(args, &settings?),
        Command::Acquire(args) => acquire::run(args, &settings?),
        Command::Renew(args) => renew::run(args, &settings?),
        Command::Release(args) => release::run(args, &settings?),
        Command::List(args) => list::run(args, &settings?),
        Command::Show(args) => show::run(args, &settings?),
        Command::Break(args) => r#break::run(args, &settings?),
        Command::Bench(args) => bench::run(args, &settings?),
        Command::BenchWorker(args) => bench::work(args, &settings?),
        Command::Doctor(args) => doctor::run(args, &settings?),
        Command::Schema => schema::run(&settings?),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    }
}
