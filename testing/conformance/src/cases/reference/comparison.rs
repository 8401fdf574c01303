//! Whether two answers are the same.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::port::{Busy, Cooldown, Granted, Holder, Inspected, StoreOwner};

use super::Manner;
use crate::case::Checked;

/// What a server counts in.
const UNIT: Duration = Duration::from_millis(1);

#[expect(clippy::needless_pass_by_value, reason = "references or numbers")]
pub(super) fn same<T: PartialEq + Debug>(what: &str, theirs: T, ours: T) -> Checked {
    if theirs == ours {
        return Ok(());
    }
    Err(format!("{what}: the store says {theirs:?}, the reference {ours:?}").into())
}

pub(super) fn differ(what: &str, theirs: &dyn Debug, ours: &dyn Debug) -> Checked {
    Err(format!("{what}: the store says {theirs:?}, the reference {ours:?}").into())
}

impl Manner {
    pub(super) fn same_grant(self, owner: &StoreOwner, theirs: &Granted, ours: &Granted) -> Checked {
        same("the block of fences", theirs.block, ours.block)?;
        same("holds", theirs.holds, ours.holds)?;
        self.same_left(Some(owner), Some(theirs.left), Some(ours.left))
    }

    pub(super) fn same_busy(self, theirs: &Busy, ours: &Busy) -> Checked {
        same("the busy name", &theirs.name, &ours.name)?;
        self.same_left(None, theirs.free_in, ours.free_in)?;
        self.same_holders(theirs.holder.as_slice(), ours.holder.as_slice())
    }

    pub(super) fn same_inspected(self, theirs: &Inspected, ours: &Inspected) -> Checked {
        same("the name", &theirs.name, &ours.name)?;
        if self.waiters {
            same("waiters", theirs.waiters, ours.waiters)?;
        }
        match (&theirs.cooldown, &ours.cooldown) {
            (Some(theirs), Some(ours)) => self.same_lingering(theirs, ours)?,
            (None, None) => {}
            (theirs, ours) => differ("lingers", theirs, ours)?,
        }
        self.same_holders(&theirs.holders, &ours.holders)
    }

    fn same_lingering(self, theirs: &Cooldown, ours: &Cooldown) -> Checked {
        self.same_left(None, Some(theirs.left), Some(ours.left))?;
        match &theirs.last {
            Some(last) => self.same_holders(std::slice::from_ref(last), ours.last.as_slice()),
            None => Ok(()),
        }
    }

    fn same_holders(self, theirs: &[Holder], ours: &[Holder]) -> Checked {
        same("the number of holders", theirs.len(), ours.len())?;
        for (theirs, ours) in theirs.iter().zip(ours) {
            same("the owner", &theirs.owner, &ours.owner)?;
            same("its fence", theirs.fence, ours.fence)?;
            same("its holds", theirs.holds, ours.holds)?;
            same("whether it is broken", theirs.broken, ours.broken)?;
            same("since when", theirs.since, ours.since)?;
            same("who it is", &theirs.about, &ours.about)?;
            // Of an owner that is not shared, a server keeps the lease of its acquire.
            if self.slack.is_zero() || matches!(ours.owner, StoreOwner::Shared(_)) {
                same("its lease", theirs.lease, ours.lease)?;
            }
            self.same_left(Some(&ours.owner), theirs.left, ours.left)?;
        }
        Ok(())
    }

    /// A server stores the ends of a shared owner's holds to the microsecond, and rounds up what is left of them. For
    /// anything else it reports the remaining time of the key.
    pub(super) fn same_left(
        self,
        owner: Option<&StoreOwner>,
        theirs: Option<Duration>,
        ours: Option<Duration>,
    ) -> Checked {
        let is_same = match (theirs, ours) {
            (Some(theirs), Some(ours)) if self.slack.is_zero() => theirs == ours,
            (Some(theirs), Some(ours)) if matches!(owner, Some(StoreOwner::Shared(_))) => theirs == rounded_up(ours),
            (Some(theirs), Some(ours)) => theirs.abs_diff(ours) <= self.slack,
            (theirs, ours) => theirs == ours,
        };
        if is_same { Ok(()) } else { differ("time left", &theirs, &ours) }
    }
}

fn rounded_up(span: Duration) -> Duration {
    let units = span.as_nanos().div_ceil(UNIT.as_nanos());
    UNIT * u32::try_from(units).unwrap_or(u32::MAX)
}
