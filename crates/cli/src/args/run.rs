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
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Lease, renewed while the command runs [default: 30s]
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "lease")]
    pub(crate) keep: Option<Duration>,
    /// Lease that is not renewed; the command is terminated when it ends
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) waiting: WaitArgs,
    /// Hold the lock at most this long; the command gets SIGTERM one grace period earlier
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "lease")]
    pub(crate) max_hold: Option<Duration>,
    /// Keep the lock taken for at least this long, even if the command ends sooner
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when the lock ends before the command [default: 5s, or a sixth of a shorter lease]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    #[command(flatten)]
    pub(crate) who: WhoArgs,
    /// Write the outcome to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Leave the store's credentials in the command's environment, for nested runs without a password file
    #[arg(long)]
    pub(crate) pass_secrets: bool,
    /// Exit code if the lock was busy
    #[arg(long, value_name = "N", default_value_t = 75)]
    pub(crate) busy_exit: u8,
    /// Exit code if the lock was lost
    #[arg(long, value_name = "N", default_value_t = 76)]
    pub(crate) lost_exit: u8,
    /// Run a shell command line
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command", required_unless_present = "command")]
    pub(crate) line: Option<OsString>,
    /// Command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
