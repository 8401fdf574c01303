//! `man`: the manual page, from the same definition as the help.

use std::io::IsTerminal;

use clap::CommandFactory;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{Cli, ManArgs};
use crate::exit::{Exit, Failure};
use crate::output;

const EXIT_CODES: [(&str, &str); 12] = [
    ("0", "all went well; of run, that the command ended with 0"),
    ("the command's own", "of run: it ran under the lock to its end; 128+n where signal n ended it"),
    ("64", "wrong usage: flags, names, durations, URL, options"),
    ("69", "the store could not be reached, has no quorum, or did not answer"),
    ("70", "a bug of leasehold's"),
    ("74", "the output could not be written"),
    ("75", "busy: held by another, or the wait ran out (run: --busy-exit changes it)"),
    ("76", "the lock was lost, or its time ended: the work may be incomplete (run: --lost-exit changes it)"),
    ("77", "not the holder (renew, release)"),
    ("78", "the store was reached but is unfit"),
    ("126, 127", "of run: the command could not be started, was not found"),
    ("128+n", "signal n came while waiting"),
];

const VALUES: [(&str, &str); 2] = [
    (
        "NAME",
        "1 to 512 bytes; several, separated by commas, are taken together, all or none. A comma in a name is written \\,",
    ),
    ("D", "a duration such as 250ms, 10s or 5m"),
];

const VARIABLES: [(&str, &str); 5] = [
    ("LEASEHOLD_STORE", "the store, where --store is not given"),
    (
        "LEASEHOLD_PASSWORD_FILE",
        "a file with the password of a store that logs in, where its URL has none and --password-file is not given",
    ),
    (
        "LEASEHOLD_PASSWORD",
        "the password itself, where neither the URL nor a file has it (file: and memory: need none)",
    ),
    ("XDG_STATE_HOME, HOME", "where the default store is: leasehold/locks.db in the state folder"),
    ("NO_COLOR", "no colours"),
];

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    // What is said after the help stands in sections of its own here.
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
    Man::new(command).render(&mut page)?;
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
