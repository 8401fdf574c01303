//! The flags of `run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{WaitArgs, WhoArgs, duration};

#[derive(Args, Debug)]
#[command(
    override_usage = "leasehold run NAME [OPTIONS] -- COMMAND ARGS…\n       leasehold run NAME [OPTIONS] -c 'shell line'"
)]
pub(crate) struct RunArgs {
    /// The lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// The lease that is renewed while the command runs [default: 30s]
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "lease")]
    pub(crate) keep: Option<Duration>,
    /// A lease that is not renewed: the command is ended with it
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) waiting: WaitArgs,
    /// Hold the lock for at most this long: the command is asked to end the grace before
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "lease")]
    pub(crate) max_hold: Option<Duration>,
    /// Keep others out for at least this long, though the command is done sooner
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// The time between SIGTERM and the end of the lease [default: 5s, or a sixth of the lease where that is less]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    #[command(flatten)]
    pub(crate) who: WhoArgs,
    /// Write what happened to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Leave the store's credentials in the command's environment: for runs inside that have no password file
    #[arg(long)]
    pub(crate) pass_secrets: bool,
    /// The exit code where the lock was busy
    #[arg(long, value_name = "N", default_value_t = 75)]
    pub(crate) busy_exit: u8,
    /// The exit code where the lock was lost
    #[arg(long, value_name = "N", default_value_t = 76)]
    pub(crate) lost_exit: u8,
    /// Run a line of shell instead of a command
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command", required_unless_present = "command")]
    pub(crate) line: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
