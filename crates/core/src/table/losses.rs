//! Losing a lock: what is told of it, and which renewals failed before.

use std::sync::Arc;
use std::time::Duration;

use super::Table;
use super::entry::{Held, Hold};
use super::types::{FailedRenewal, Loss, LossReport, Output, Outputs};
use crate::error::Error;
use crate::name::Name;
use crate::time::Moment;

/// So many failed renewals of a lease are remembered.
const FAILURES_MAX: usize = 3;

impl Table {
    /// What is told of a guard that is lost now.
    pub(super) fn report(&self, now: Moment, name: &Name, held: &Held, hold: &Hold, loss: Loss) -> Arc<LossReport> {
        let at = now - self.jumped;
        let left = if loss == Loss::Broken { held.deadline.since(now) } else { Duration::ZERO };
        let renewals = self.failures.get(name).map(|failures| failures.as_slice()).unwrap_or_default();
        Arc::new(LossReport { loss, at, held: held.held_for(now, hold), left, renewals: renewals.into() })
    }

    /// A lease was not renewed: remembered until one is, or until the lease is gone.
    pub(super) fn renewal_failed(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        error: Arc<Error>,
        out: &mut Outputs,
    ) {
        let failure = FailedRenewal { at: now - self.jumped, took: now.since(sent), error };
        let failures = self.failures.entry(name.clone()).or_default();
        if failures.len() == FAILURES_MAX {
            failures.remove(0);
        }
        failures.push(failure.clone());
        let held = self.entries.get(name).and_then(|entry| entry.held.as_deref());
        let left = held.map_or(Duration::ZERO, |held| held.deadline.since(now));
        out.push(Output::RenewalFailed(name.clone(), failure, left));
    }

    /// A lease was renewed, or is gone.
    pub(super) fn forget_failures(&mut self, name: &Name) {
        if !self.failures.is_empty() {
            self.failures.remove(name);
            super::shrink(&mut self.failures);
        }
    }
}
