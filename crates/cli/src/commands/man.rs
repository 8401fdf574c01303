//! `man`: the manual page, from the same definitions as the help.

use std::io::IsTerminal;

use clap::CommandFactory;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{Cli, ManArgs};
use crate::exit::{Exit, Failure};
use crate::output;

const EXIT_CODES: [(&str, &str); 12] = [
    ("0", "success; for run, the command exited with 0"),
    ("the command's own", "run only: the command ran to its end under the lock; 128+n if signal n ended it"),
    ("64", "wrong usage: flags, names, durations, URL, options"),
    ("69", "the store could not be reached, has no quorum, or did not answer"),
    ("70", "internal error: a bug in leasehold"),
    ("74", "the output could not be written"),
    ("75", "busy: held by another, or the wait ran out (run: --busy-exit changes it)"),
    ("76", "the lock was lost, or its time ended: the work may be incomplete (run: --lost-exit changes it)"),
    ("77", "not the holder (renew, release, break --fence)"),
    ("78", "the store was reached but is unfit"),
    ("126, 127", "run only: the command could not be started, was not found"),
    ("128+n", "interrupted by signal n while waiting"),
];

const VALUES: [(&str, &str); 2] = [
    (
        "NAME",
        "1 to 512 bytes; several, separated by commas, are taken together, all or none. A comma in a name is written \\,",
    ),
    ("D", "a duration such as 250ms, 10s or 5m"),
];

const VARIABLES: [(&str, &str); 5] = [
    ("LEASEHOLD_STORE", "the store, if --store is not given"),
    ("LEASEHOLD_PASSWORD_FILE", "a file with the store's password, if neither its URL nor --password-file gives one"),
    ("LEASEHOLD_PASSWORD", "the password itself, if neither the URL nor a file has it (file: and memory: need none)"),
    ("XDG_STATE_HOME, HOME", "location of the default store: leasehold/locks.db in the state folder"),
    ("NO_COLOR", "disables colours"),
];

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    // What follows the help has its own sections here.
    let mut command = Cli::command()
        .after_help(Resettable::Reset)
        .subcommand_help_heading("COMMANDS")
        .subcommand_value_name("COMMAND");
    command.build();
    let page = match &args.command {
        None => page_of(command).map(|mut page| {
            page.extend(section("NAMES AND DURATIONS", &VALUES));
            page.extend(section("EXIT STATUS", &EXIT_CODES));
            page.extend(section("ENVIRONMENT", &VARIABLES));
            page
        }),
        Some(name) => match command.find_subcommand(name).filter(|found| !found.is_hide_set()) {
            Some(found) => page_of(found.clone()),
            None => {
                return Err(
                    Failure::usage(format!("there is no command {name:?}")).with_hint("'leasehold --help' lists them")
                );
            }
        },
    };
    output::raw(&page.map_err(|error| Failure::new(Exit::BUG, error.to_string()))?)?;
    if std::io::stdout().is_terminal() {
        let which = args.command.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        output::note(&format!("this is the source of the page; 'leasehold man{which} | man -l -' shows it"));
    }
    Ok(Exit::DONE)
}

fn page_of(command: clap::Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).source(concat!("leasehold ", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
    Ok(page)
}

fn section(title: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, meaning) in entries {
        roff.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
    }
    roff.to_roff().into_bytes()
}
