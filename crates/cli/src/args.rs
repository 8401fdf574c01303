//! Every command and flag, as clap reads them. What they mean together is checked in `settings.rs` and by the commands.

mod bench;
mod locks;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use bench::{BenchArgs, BenchWorkerArgs, Workload};
pub(crate) use locks::{AcquireArgs, HoldArgs, ReleaseArgs, RenewArgs, WaitArgs, WhoArgs};
pub(crate) use run::RunArgs;

/// Distributed lock: run a command while nothing else that needs the same lock runs.
#[derive(Parser, Debug)]
#[command(name = "leasehold", version, disable_help_subcommand = true, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "Durations: 250ms, 10s, 5m. Several comma-separated NAMEs are acquired together, all or none; \\, is a \
                          literal comma.\nExit codes: 64 usage, 69 store unreachable, 75 busy, 76 lost, 77 not the holder, 78 \
                          store unfit. 'leasehold man' lists all of them.";

/// What every command has.
#[derive(Args, Debug, Default)]
pub(crate) struct CommonArgs {
    /// URL of the store that keeps the locks [env: LEASEHOLD_STORE] [default: a file in your state folder]
    #[arg(short, long, global = true, display_order = 90, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Read the store's password from this file, again for every connection [env: LEASEHOLD_PASSWORD_FILE, or the password
    /// itself in LEASEHOLD_PASSWORD]
    #[arg(long, global = true, display_order = 91, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Do not create the store's file if it does not exist: fail with 78
    #[arg(long, global = true, display_order = 91)]
    pub(crate) no_create: bool,
    /// Log more to standard error; -vv logs every step
    #[arg(short, long, global = true, display_order = 92, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(Box<RunArgs>),
    /// Hold a lock until standard input closes or a signal arrives
    Hold(HoldArgs),
    /// Acquire a lock for a fixed time and exit, for scripts
    Acquire(AcquireArgs),
    /// Extend a lock taken with acquire
    Renew(RenewArgs),
    /// Release a lock taken with acquire
    Release(ReleaseArgs),
    /// List the locks that are held
    List(ListArgs),
    /// Show who holds a lock
    Show(ShowArgs),
    /// Take a lock away from its holder, for operators
    Break(BreakArgs),
    /// Measure how fast the store is
    Bench(BenchArgs),
    #[command(hide = true)]
    BenchWorker(BenchWorkerArgs),
    /// Check that the store is fit to keep locks
    Doctor(DoctorArgs),
    /// Print the tables that a SQL store needs (no store of this build needs any)
    Schema,
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only list names that begin with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// Print JSON: one object per line, or one array
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "lines")]
    pub(crate) json: Option<JsonForm>,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BreakArgs {
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Confirm; without it nothing changes
    #[arg(long)]
    pub(crate) yes: bool,
    /// Free the lock at once instead of at the end of its lease. The holder may go on working until its next renewal, up to a
    /// third of its lease, beside the next holder: fences tell them apart
    #[arg(long)]
    pub(crate) now: bool,
    /// Only if the lock is still held with this fence; otherwise exit with 77
    #[arg(long, value_name = "N", value_parser = fence)]
    pub(crate) fence: Option<u64>,
    /// Also delete a value that leasehold does not recognise as a lock; `show` prints it
    #[arg(long)]
    pub(crate) foreign: bool,
    /// Also forget the last fence, to repair one that is damaged or far ahead of the store's clock. The next fence may then be
    /// smaller than earlier ones: a resource that checks fences rejects it until its own record is reset too
    #[arg(long)]
    pub(crate) reset_fence: bool,
    /// Print JSON: the former holder, and whether the lock was taken away
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON: one object per line, or one array
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "lines")]
    pub(crate) json: Option<JsonForm>,
}

/// How several JSON objects are printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JsonForm {
    /// One object per line; no output if there are none
    Lines,
    /// One array, even if it is empty
    Array,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Print the page of this command instead of the main page
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

/// `leasehold help run` is `leasehold run --help`.
pub(crate) fn with_help_as_flag(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    if words.get(1).is_some_and(|word| word == "help") && words.len() <= 3 {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

/// Parses a duration such as 250ms, 10s or 5m.
fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with(['+', '-']) {
        return Err("a duration has no sign".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Parses a fence.
fn fence(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a fence is a whole number, as `leasehold show` prints it".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use leasehold_fuzz::Target;

    use super::*;
    use crate::names;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        for line in [
            "run a --wait 1s --no-wait -- true",
            "run a --keep 1s --lease 1s -- true",
            "run a --lease 1s --max-hold 5s -- true",
            "run a -c true -- true",
            "run a",
            "acquire a --wait 1s --no-wait",
            "hold a --wait 1s --no-wait",
            "renew a",
            "release a",
            "acquire a --lease soon",
            "run a --busy-exit 256 -- true",
        ] {
            let words = std::iter::once("leasehold").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn help_is_a_command_too() {
        let given = |line: &str| with_help_as_flag(line.split(' ').map(OsString::from));
        assert_eq!(given("leasehold help"), ["leasehold", "--help"]);
        assert_eq!(given("leasehold help run"), ["leasehold", "run", "--help"]);
        assert_eq!(given("leasehold show help"), ["leasehold", "show", "help"]);
    }

    #[test]
    fn what_follows_the_dashes_is_the_command() {
        let cli = Cli::try_parse_from(["leasehold", "run", "a", "--", "ls", "-s", "--wait"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("{cli:?}") };
        assert_eq!(run.command, ["ls", "-s", "--wait"]);
        assert_eq!(cli.common.store, None);
    }

    #[test]
    fn fuzzed_arguments() {
        const WORDS: &[&str] = &["\n", "\n--\n", "--json", "--wait\n", "-c\n", "1h", "\\,", ",", "=", "\u{202e}"];
        Target::new("arguments", 500).words(WORDS).run(|input| {
            let text = String::from_utf8_lossy(input);
            let words = std::iter::once("leasehold").chain(text.split('\n'));
            if let Err(error) = Cli::try_parse_from(words) {
                error.render().to_string();
            }
        });
    }

    #[test]
    fn fuzzed_names() {
        Target::new("arguments", 20_000).words(&["\\", "\\,", ","]).run(|input| {
            let Ok(names) = names::parse(&String::from_utf8_lossy(input).replace('\n', ",")) else { return };
            assert_eq!(names::parse(&names::join(&names)).unwrap(), names);
        });
    }
}
