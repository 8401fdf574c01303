//! Flags of the commands that acquire, extend and release locks.

use std::time::Duration;

use clap::Args;

use super::{duration, fence};

/// How long to wait for a lock. Default: without limit.
#[derive(Args, Debug, Default)]
pub(crate) struct WaitArgs {
    /// Wait at most this long for the lock [default: no limit]
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Give up with 69 when the store has not answered for this long [default: 10s at the start, then no limit]
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) patience: Option<Duration>,
    /// Fail with 75 if the lock is not free
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Who takes a lock.
#[derive(Args, Debug, Default)]
pub(crate) struct WhoArgs {
    /// Owner of the lock; another call with the same ID re-enters it, if the store counts holds
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// Human-readable label, shown by show and list
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Lease, renewed while the lock is held [default: 30s]
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
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Lease; nothing renews it [default: 30s]
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
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Owner that acquired the lock
    #[arg(long, value_name = "ID")]
    pub(crate) owner: String,
    /// Only if the lock still has this fence
    #[arg(long, value_name = "N", value_parser = fence)]
    pub(crate) fence: Option<u64>,
    /// New lease, counted from now [default: 30s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// Name of the lock, or several separated by commas
    #[arg(value_name = "NAME")]
    pub(crate) names: String,
    /// Owner that acquired the lock
    #[arg(long, value_name = "ID")]
    pub(crate) owner: String,
    /// Only if the lock still has this fence
    #[arg(long, value_name = "N", value_parser = fence)]
    pub(crate) fence: Option<u64>,
    /// Release every hold of the owner, not just one
    #[arg(long)]
    pub(crate) all: bool,
}
