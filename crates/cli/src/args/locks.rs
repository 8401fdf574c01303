//! The flags of the commands that take, lengthen and give back locks.

use std::time::Duration;

use clap::Args;

use super::duration;

/// How long to wait for a lock: for ever, unless told otherwise.
#[derive(Args, Debug, Default)]
pub(crate) struct WaitArgs {
    /// Wait at most this long [default: for ever]
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Give up (69) when the store has not answered for this long [default: 10s at the start, then for ever]
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) patience: Option<Duration>,
    /// Do not wait
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Who takes a lock.
#[derive(Args, Debug, Default)]
pub(crate) struct WhoArgs {
    /// Take it for this owner: whoever gives the same ID re-enters, where the store counts holds
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// A word for people who look who holds it
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// The lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// The lease that is renewed while it is held [default: 30s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) keep: Option<Duration>,
    #[command(flatten)]
    pub(crate) waiting: WaitArgs,
    #[command(flatten)]
    pub(crate) who: WhoArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AcquireArgs {
    /// The lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// For how long [default: 30s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) waiting: WaitArgs,
    #[command(flatten)]
    pub(crate) who: WhoArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RenewArgs {
    /// The lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// The owner it was acquired for
    #[arg(long, value_name = "ID")]
    pub(crate) owner: String,
    /// Only if it still has this fence
    #[arg(long, value_name = "N")]
    pub(crate) fence: Option<u64>,
    /// For how long from now [default: 30s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// The lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// The owner it was acquired for
    #[arg(long, value_name = "ID")]
    pub(crate) owner: String,
    /// Only if it still has this fence
    #[arg(long, value_name = "N")]
    pub(crate) fence: Option<u64>,
    /// Give back every hold of the owner, not one
    #[arg(long)]
    pub(crate) all: bool,
}
