//! Who holds a lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::port::{self, Busy};
use leasehold_core::time::STORE_EPOCH_UNIX_SECONDS;
use leasehold_core::{Fence, Name, StoreTime};

/// The holder of a lock, as far as it is known: `None` is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The lock.
    pub name: Name,
    /// The owner as the store keeps it: the id of an explicit owner, or an id that the client generated.
    pub owner: Option<String>,
    /// The fence of the grant.
    pub fence: Option<Fence>,
    /// How many holds the owner has. Zero if it released the lock, and the lock is in its cooldown.
    pub holds: Option<u32>,
    /// Time left without a renewal. Also `None` for a lock without expiry.
    pub left: Option<Duration>,
    /// The lease that was requested.
    pub lease: Option<Duration>,
    /// Since when.
    pub since: Option<SystemTime>,
    /// Whether its right was ended ([`Break::AtLeaseEnd`](crate::Break::AtLeaseEnd)): it cannot renew the lock, and others get it
    /// when the time left is over.
    pub broken: Option<bool>,
    /// Its machine.
    pub host: Option<Arc<str>>,
    /// Its process.
    pub pid: Option<u32>,
    /// The label that it gave the lock.
    pub label: Option<Arc<str>>,
}

impl Holder {
    pub(crate) fn unknown(name: Name) -> Self {
        Self {
            name,
            owner: None,
            fence: None,
            holds: None,
            left: None,
            lease: None,
            since: None,
            broken: None,
            host: None,
            pid: None,
            label: None,
        }
    }

    pub(crate) fn known(name: Name, holder: &port::Holder) -> Self {
        Self {
            owner: Some(holder.owner.to_string()),
            fence: holder.fence,
            holds: Some(holder.holds),
            left: holder.left,
            lease: holder.lease,
            since: holder.since.map(system_time),
            broken: Some(holder.broken),
            host: holder.about.host.clone(),
            pid: holder.about.pid,
            label: holder.about.label.clone(),
            ..Self::unknown(name)
        }
    }

    pub(crate) fn of(busy: Busy) -> Self {
        match busy.holder {
            Some(holder) => Self::known(busy.name, &holder),
            // Nobody holds it, and it is known until when: it is in its cooldown.
            None => Self { left: busy.free_in, holds: busy.free_in.map(|_| 0), ..Self::unknown(busy.name) },
        }
    }

    fn in_cooldown(name: &Name, cooldown: port::Cooldown) -> Self {
        let last = cooldown.last.map_or_else(|| Self::unknown(name.clone()), |last| Self::known(name.clone(), &last));
        Self { holds: Some(0), left: Some(cooldown.left), ..last }
    }

    /// Whether it has released the lock, and others are kept out for the rest of [`Lock::at_least`](crate::Lock::at_least).
    pub fn is_cooldown(&self) -> bool {
        self.holds == Some(0)
    }

    /// Whether its right is known to have been ended while its lease has not run out: [`Holder::broken`].
    pub fn is_broken(&self) -> bool {
        self.broken == Some(true)
    }
}

impl fmt::Display for Holder {
    /// One line: `"invoices", held by nightly on host7 (process 4711), fence 17, 12.5s left`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.is_cooldown(), self.is_broken()) {
            (true, _) => "lingering after",
            (false, true) => "broken, held by",
            (false, false) => "held by",
        };
        write!(f, "{:?}, {how} ", self.name.as_str())?;
        match (&self.label, &self.owner) {
            (Some(label), _) => f.write_str(label)?,
            (None, Some(owner)) => f.write_str(owner)?,
            (None, None) => f.write_str("somebody")?,
        }
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        if let Some(pid) = self.pid {
            write!(f, " (process {pid})")?;
        }
        if let Some(fence) = self.fence {
            write!(f, ", fence {fence}")?;
        }
        match self.left {
            Some(left) => write!(f, ", {:.1}s left", left.as_secs_f64()),
            None => Ok(()),
        }
    }
}

fn system_time(time: StoreTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(STORE_EPOCH_UNIX_SECONDS) + Duration::from_nanos(time.as_nanos())
}

/// The state of a lock in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The lock.
    pub name: Name,
    /// Its holders; none when it is free.
    pub holders: Vec<Holder>,
    /// The last holder, if it released the lock and others are still kept out, with the time that is left of that.
    pub cooldown: Option<Holder>,
    /// How many clients wait for it, if the store knows. A client counts once for all of its waiting tasks, and only after the store
    /// has refused it.
    pub waiters: Option<u32>,
}

impl Status {
    /// Whether anybody holds it.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    pub(crate) fn of(inspected: port::Inspected) -> Self {
        let name = inspected.name;
        let holders = inspected.holders.iter().map(|holder| Holder::known(name.clone(), holder)).collect();
        let cooldown = inspected.cooldown.map(|cooldown| Holder::in_cooldown(&name, cooldown));
        Self { name, holders, cooldown, waiters: inspected.waiters }
    }
}
