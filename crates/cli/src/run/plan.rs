//! The plan of a `run`, from its arguments: which lock, for which owner, for how long, and what to start.

use std::ffi::OsString;
use std::time::Duration;

use leasehold::{Client, Error, GroupGuard, GroupLock, Name, Owner};

use super::descendants;
use super::environment::{Around, Here, Nesting, Outer};
use super::times::{self, Times};
use crate::args::RunArgs;
use crate::exit::{Exit, Failure};
use crate::{human, names, settings, store};

/// The lock to take.
pub(crate) struct Plan {
    pub(crate) lock: GroupLock,
    pub(crate) lease: Duration,
    pub(crate) times: Times,
    /// The store,
    pub(crate) here: Here,
    /// the outer runs,
    pub(crate) around: Around,
    /// and the one whose lock is joined.
    pub(crate) joined: Option<Outer>,
}

impl Plan {
    pub(crate) fn new(args: &RunArgs, client: &Client, here: Here, names: &[Name]) -> Result<Self, Failure> {
        let lease = args.lease.or(args.keep).unwrap_or_else(|| client.defaults().term.lease());
        let lease = lease.min(args.max_hold.unwrap_or(Duration::MAX));
        let times = times(args, lease)?;
        let around = Around::of_process();
        let joined = joined(&around, args.who.owner.as_deref(), names, client, &here)?;
        let lock = client.lock_all(names.iter().map(Name::as_str))?.owned_by(&owner(args, joined.as_ref())?);
        // A run that cannot join has run nothing, and keeps no others out.
        let at_least = args.at_least.filter(|_| joined.is_none());
        let lock = at_least.into_iter().fold(with_options(lock, args, lease), GroupLock::at_least);
        Ok(Self { lock, lease, times, here, around, joined })
    }

    /// The joined lock once more, now with `--at-least`: name by name, which is how a client re-enters its own locks.
    pub(crate) fn again(&self, args: &RunArgs, client: &Client, guard: &GroupGuard) -> Result<Vec<GroupLock>, Error> {
        let Some(span) = args.at_least.filter(|_| self.joined.is_some()) else { return Ok(Vec::new()) };
        let owner = guard.guards()[0].owner();
        let again = |lock: GroupLock| with_options(lock.owned_by(owner), args, self.lease).at_least(span);
        guard.fences().map(|(name, _)| client.lock_all([name.as_str()]).map(again)).collect()
    }
}

fn with_options(mut lock: GroupLock, args: &RunArgs, lease: Duration) -> GroupLock {
    lock = if args.lease.is_some() { lock.lease(lease) } else { lock.keep(lease) };
    // Without `max_hold`: the lock is kept as long as something runs that could not be ended by then.
    args.who.label.iter().fold(lock, GroupLock::label)
}

/// Checks that need no store.
pub(crate) fn check(args: &RunArgs) -> Result<(), Failure> {
    for (flag, given) in [("--keep", args.keep), ("--lease", args.lease)] {
        given.map(|given| settings::lease(flag, given)).transpose()?;
    }
    args.max_hold.map(settings::max_hold).transpose()?;
    args.at_least.map(|given| settings::at_least(given, args.lease.is_some())).transpose()?;
    args.lease.or(args.keep).map(|lease| times(args, lease)).transpose()?;
    if descendants::can_be_found() {
        return Ok(());
    }
    let what =
        "processes of the command could not be found and ended: /proc is missing, or is that of another pid namespace";
    Err(Failure::new(Exit::other(126), what).with_hint("mount it, as 'unshare --mount-proc' does; nothing was run"))
}

fn times(args: &RunArgs, lease: Duration) -> Result<Times, Failure> {
    let lease = lease.min(args.max_hold.unwrap_or(Duration::MAX));
    if let Some(grace) = times::grace(lease, args.grace) {
        return Ok(Times::new(lease, grace));
    }
    let (grace, lease) = (human::span(args.grace.unwrap_or_default()), human::span(lease));
    Err(Failure::usage(format!("a grace of {grace} is half the lease of {lease} or more"))
        .with_hint("make --grace shorter, or --keep, --lease or --max-hold longer"))
}

/// A fresh owner is explicit all the same, so that a nested `run` can use it.
fn owner(args: &RunArgs, joined: Option<&Outer>) -> Result<Owner, Failure> {
    settings::owner_of_run(args.who.owner.as_deref().or(joined.map(|outer| outer.owner.as_str())))
}

/// The variables say what is held, and they may be old.
const UNCOUNTED: &str = "leave the lock out here: the command has that of the outer run. Without an outer run, its variables are left \
    over: unset LEASEHOLD_NAME";
const SPREAD: &str = "leave that name out here, or take all of them in the outer run. Without an outer run, its variables are left \
    over: unset LEASEHOLD_NAME";

/// The outer `run` that has these locks, unless another owner was given. A lock that cannot be joined would be waited
/// for for ever.
fn joined(
    around: &Around,
    owner: Option<&str>,
    names: &[Name],
    client: &Client,
    here: &Here,
) -> Result<Option<Outer>, Failure> {
    if store::is_alone(client) {
        return Ok(None);
    }
    let is_uncounted = !client.capability().shared_reentrance;
    match around.nesting(names, here) {
        Nesting::Within(outer) if is_uncounted && owner.is_none_or(|id| id == outer.owner) => {
            let what = format!("{:?} is held by an outer run", names::join(names));
            let uncounted = format!("{} does not count the holds of an owner", client.store_label());
            Err(Failure::usage(format!("{what}, and this one would wait for it: {uncounted}")).with_hint(UNCOUNTED))
        }
        Nesting::Across(name) if owner.is_none_or(|id| is_uncounted && around.has_as(id, names, here)) => {
            let name = name.as_str();
            let what = format!("{name:?} is held by an outer run, but not all the others by the same one");
            Err(Failure::usage(what).with_hint(SPREAD))
        }
        Nesting::Within(outer) if owner.is_none() => Ok(Some(outer.clone())),
        _ => Ok(None),
    }
}

/// The command and its arguments.
pub(crate) fn words(args: &RunArgs) -> Vec<OsString> {
    match &args.line {
        Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
        None => args.command.clone(),
    }
}
