//! The command line of leasehold: parses, runs, exits.

mod args;
mod bench;
mod commands;
mod events;
mod exit;
mod hints;
mod human;
mod names;
mod outage;
mod output;
mod run;
mod runtime;
mod settings;
mod spinner;
mod stdin;
mod store;
mod wait;

use std::panic::catch_unwind;

use clap::Parser;

use crate::args::Cli;
use crate::exit::{Exit, Failure};
use crate::settings::{Environment, Settings};

fn main() {
    // A panic is an internal error with its own exit code. Its message was printed as it happened.
    let exit = catch_unwind(run).unwrap_or(Exit::BUG);
    events::flush();
    // Not by returning: a thread that still reads standard input must not keep the process alive.
    std::process::exit(exit.code().into());
}

fn run() -> Exit {
    run::outlive_file_limit();
    if let Some(exit) = run::helper() {
        return exit;
    }
    let cli = match Cli::try_parse_from(args::with_help_as_flag(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    hints::remember_store(&cli.common);
    let settings = Settings::new(&cli.common, &Environment::of_process());
    match commands::dispatch(&cli.command, settings) {
        Ok(exit) => exit,
        Err(failure) => report(&failure),
    }
}

fn report(failure: &Failure) -> Exit {
    output::failure(failure);
    failure.exit
}
