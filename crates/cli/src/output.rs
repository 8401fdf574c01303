//! Prints data to standard output, and everything else to standard error.
//!
//! Only our own colours control a terminal: text for people passes [`human::plain_lines`], and JSON passes [`json`],
//! which writes the same characters as JSON escapes.

mod json;
pub(crate) mod row;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use leasehold::GroupGuard;
use serde::Serialize;

use crate::args::{Cli, JsonForm};
use crate::exit::{Exit, Failure};
use crate::{hints, human, names};

pub(crate) use json::{json, json_bytes};
pub(crate) use row::{Row, Rows};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();
const NOTE: Style = Style::new().dimmed();

/// Data for people: one line or several.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    styled(&human::plain_lines(text))
}

/// Data for people with our colours. Text from outside must be [`human::plain`].
pub(crate) fn styled(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| unwritten(&error))
}

/// Several JSON objects.
pub(crate) fn objects(values: &[impl Serialize], form: JsonForm) -> Result<(), Failure> {
    match form {
        JsonForm::Lines => values.iter().try_for_each(json),
        JsonForm::Array => json(&values),
    }
}

/// A page or a script, unchanged.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
}

/// The fence of a guard, or `a=1,b=2` for several names.
pub(crate) fn fences(guard: &GroupGuard) -> String {
    let all: Vec<_> = guard.fences().collect();
    match all.as_slice() {
        [(_, fence)] => fence.to_string(),
        all => {
            let pairs = all.iter().map(|(name, fence)| format!("{}={fence}", names::join(std::slice::from_ref(*name))));
            pairs.collect::<Vec<_>>().join(",")
        }
    }
}

/// A reader that is gone needs no message.
fn unwritten(error: &io::Error) -> Failure {
    let quiet = error.kind() == io::ErrorKind::BrokenPipe;
    let message = if quiet { String::new() } else { format!("the output could not be written: {error}") };
    Failure::new(Exit::OUTPUT, message)
}

/// Prints why a command failed, and the hint; once.
pub(crate) fn failure(failure: &Failure) {
    if failure.message.is_empty() || failure.is_said {
        return;
    }
    let mut err = anstream::stderr().lock();
    // Standard error may be closed: then no message is possible.
    let _ = writeln!(err, "{ERROR}leasehold:{ERROR:#} {}", human::plain_lines(&failure.message));
    if let Some(hint) = &failure.hint {
        let _ = writeln!(err, "{HINT}hint:{HINT:#} {}", human::plain_lines(hint));
    }
}

/// Of two steps, the first failure, which the command ends with. The second is printed now, except that a failure to
/// write is printed only once.
pub(crate) fn first_failure(before: Result<(), Failure>, then: Result<(), Failure>) -> Result<(), Failure> {
    match (before, then) {
        (Err(first), Err(second)) => {
            if second.exit != Exit::OUTPUT {
                failure(&second);
            }
            Err(first)
        }
        (before, then) => before.and(then),
    }
}

/// Prints a note for the user; the command continues.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{NOTE}leasehold: {}{NOTE:#}", human::plain(text));
}

/// A wrong command line, or `--help` and `--version`, which are not errors.
pub(crate) fn usage(error: &clap::Error) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let mut out = anstream::stdout().lock();
        let written = write!(out, "{}", error.render().ansi()).and_then(|()| out.flush());
        return written.map_or_else(|error| unwritten(&error).exit, |()| Exit::DONE);
    }
    if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
        failure(&Failure::usage("no command was given").with_hint(commands()));
        return Exit::USAGE;
    }
    if let Some(refused) = below_zero(error).or_else(|| no_command(error)) {
        failure(&refused);
        return Exit::USAGE;
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    // Clap's tip would turn a mistyped flag into an argument.
    let text = text.split("\n\n").filter(|part| !part.starts_with("  tip: to pass '")).collect::<Vec<_>>().join("\n\n");
    failure(&Failure::usage(text.trim_end()).with_hint(instead(error)));
    Exit::USAGE
}

/// The hint for a refused command line.
fn instead(error: &clap::Error) -> String {
    let named = Cli::command();
    let command = std::env::args_os().skip(1).find_map(|word| named.find_subcommand(word).map(clap::Command::get_name));
    let help = command.map_or("'leasehold --help'".to_owned(), |command| format!("'leasehold {command} --help'"));
    let (argument, wrong) = (context(error, ContextKind::InvalidArg), context(error, ContextKind::InvalidValue));
    let argument = argument.unwrap_or_default().replace(['<', '>'], "");
    let kind = argument.rsplit(' ').next().unwrap_or_default();
    match error.kind() {
        ErrorKind::ArgumentConflict => format!("use only one of the two; {help} explains both"),
        ErrorKind::MissingRequiredArgument => format!("add {argument}; {help} explains it"),
        ErrorKind::InvalidSubcommand => meant(error).unwrap_or_else(commands),
        ErrorKind::InvalidValue if wrong.as_deref() == Some("") && kind == "D" => {
            format!("write it like '{} 10s'", argument.trim_end_matches(" D"))
        }
        ErrorKind::InvalidValue if wrong.as_deref() == Some("") => format!("write it like '{argument}'"),
        ErrorKind::InvalidValue => format!("use one of the possible values; {help} explains them"),
        ErrorKind::ValueValidation if kind == "D" => "write it like 250ms, 10s or 5m".to_owned(),
        ErrorKind::ValueValidation if argument.contains("-exit") => "an exit code is from 0 to 255".to_owned(),
        ErrorKind::ValueValidation if kind == "N" => "use a whole number".to_owned(),
        _ => format!("{help} lists what can be given"),
    }
}

/// Our command for a name that other programs use.
fn meant(error: &clap::Error) -> Option<String> {
    let command = match context(error, ContextKind::InvalidSubcommand)?.as_str() {
        "lock" | "exec" | "with" => "run",
        "unlock" | "free" => "release",
        "status" | "info" | "get" => "show",
        "ls" => "list",
        _ => return None,
    };
    Some(format!("did you mean 'leasehold {command}'? {}", commands()))
}

fn commands() -> String {
    let named = Cli::command();
    let shown = named.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    format!("the commands are {}; 'leasehold --help' explains them", names.join(", "))
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(value)) => Some(value.clone()),
        Some(ContextValue::Strings(values)) => Some(values.join(" ")),
        _ => None,
    }
}

/// `--lease -3s`, whose first two characters clap takes for a flag.
fn below_zero(error: &clap::Error) -> Option<Failure> {
    let word = context(error, ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    word.strip_prefix('-').filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))?;
    let hint = "numbers and durations have no sign: write them like 3, 250ms, 10s or 5m";
    let is_it = |given: &String| given.starts_with(&word);
    let given = std::env::args_os().map(|given| given.to_string_lossy().into_owned()).find(is_it).unwrap_or(word);
    Some(Failure::usage(format!("'{given}' was not expected")).with_hint(hint))
}

/// `run` without a command, or with one that is not after `--`: clap would suggest only -c.
fn no_command(error: &clap::Error) -> Option<Failure> {
    let line: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let at = line.iter().position(|word| word == "run")?;
    let value = |kind| context(error, kind);
    let example = |name: &str, command: &str| format!("leasehold run {name} -- {command}");
    match error.kind() {
        ErrorKind::MissingRequiredArgument if value(ContextKind::InvalidArg)?.contains("-c") => {
            let name = line.get(at + 1).filter(|word| !word.starts_with('-')).map_or("NAME", String::as_str);
            let hint = format!(
                "write it after '--', as in '{}', or use -c with a shell command line",
                example(name, "./job.sh")
            );
            Some(Failure::usage("there is no command to run under the lock").with_hint(hint))
        }
        ErrorKind::UnknownArgument if !line.iter().any(|word| word == "--") => {
            let word = value(ContextKind::InvalidArg)?;
            if let Some(shell) = line.iter().position(|word| word == "-c").filter(|_| !word.starts_with('-')) {
                let hint = format!("quote the whole line: -c {}", hints::in_quotes(&line[shell + 1..].join(" ")));
                return Some(
                    Failure::usage(format!("{word:?} was not expected: -c takes one argument")).with_hint(hint),
                );
            }
            // What looks like a flag may be a mistyped one of ours.
            let found = line.iter().position(|other| *other == word).filter(|_| !word.starts_with('-'))?;
            let (before, command) = (line[at + 1..found].join(" "), line[found..].join(" "));
            let what = format!("the command to run has to come after '--': {word:?} was not expected");
            Some(Failure::usage(what).with_hint(format!("write '{}'", example(&before, &command))))
        }
        _ => None,
    }
}
