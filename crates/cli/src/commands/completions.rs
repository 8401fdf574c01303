//! `completions`: a completion script for a shell.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "leasehold", &mut script);
    output::raw(&script)?;
    Ok(Exit::DONE)
}

/// Without the commands that are ours alone: the scripts would offer them.
fn visible() -> clap::Command {
    let all = Cli::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let bare = clap::Command::new("leasehold").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    bare.args(all.get_arguments().cloned()).subcommands(commands)
}
