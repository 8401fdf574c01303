//! Locks that are lost: the report, and the renewals that failed before.

use std::sync::Arc;
use std::time::Duration;

use super::Table;
use super::entry::Entry;
use super::held::{Held, Hold};
use super::pending_release::PendingRelease;
use super::types::{FailedRenewal, Loss, LossReport, Output, Outputs};
use crate::error::{Error, ErrorKind, Outcome};
use crate::lease;
use crate::name::Name;
use crate::time::Moment;

/// A guard whose lock was lost, until it is dropped.
#[derive(Debug)]
pub(super) struct LostHold {
    pub(super) report: Arc<LossReport>,
    /// What to release with the last guard of the lease. All of its guards share it.
    release: Option<Arc<PendingRelease>>,
    /// What the client's clock had missed when it was lost.
    jumped: Duration,
}

impl LostHold {
    pub(super) fn new(report: Arc<LossReport>, release: Option<Arc<PendingRelease>>, jumped: Duration) -> Self {
        Self { report, release, jumped }
    }

    /// What to release, if this is the last guard of the lease. What the clock missed since it was lost does not end it sooner.
    pub(super) fn take_release(&mut self, jumped: Duration) -> Option<PendingRelease> {
        let mut release = self.release.take().and_then(Arc::into_inner)?;
        release.last_longer(jumped.saturating_sub(self.jumped));
        Some(release)
    }
}

/// How many failed renewals of a lease are remembered.
const FAILURES_MAX: usize = 3;

impl Table {
    /// Every guard of this lease is lost. If the store may still have it, it is released when the last guard is gone: until then it
    /// may protect the work of a task that has not noticed yet. If the store may have it for longer than these guards asked for, it
    /// is released as soon as they have had time to notice.
    pub(super) fn lose_all(&mut self, now: Moment, name: &Name, loss: Loss, may_be_there: bool, out: &mut Outputs) {
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(held) = entry.take_held() else { return };
        let mut release =
            (may_be_there || held.is_unsettled()).then(|| Arc::new(held.pending_release(client, name, now, false)));
        let given_back = release.take_if(|_| held.outlasts && loss == Loss::TimeEnded);
        self.guards -= held.holds.len();
        for hold in &held.holds {
            let report = self.report(now, name, &held, hold, loss);
            self.lost_holds.insert(hold.id, LostHold::new(report.clone(), release.clone(), self.jumped));
            out.push(Output::Lost(hold.id, name.clone(), report));
        }
        self.forget_failures(name);
        if let Some(release) = given_back.and_then(Arc::into_inner) {
            self.release_beside(now, release, lease::noticed(now), out);
        }
        self.agenda.touch(name);
    }

    /// The report for a guard that is lost now.
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
        let held = self.entries.get(name).and_then(Entry::held);
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

/// The error of a renewal that too few servers answered.
pub(super) fn undecided() -> Error {
    Error::new(ErrorKind::NoQuorum, "renew", "too few servers answered to tell").with_outcome(Outcome::Unknown)
}

/// The error for a lock that was lost, when the reason is not remembered.
pub(super) fn lost(operation: &'static str) -> Error {
    lost_because(operation, "the lock was lost before: its time had ended, or the store no longer had it")
}

pub(super) fn lost_by(operation: &'static str, loss: Loss) -> Error {
    match loss {
        Loss::TimeEnded => lost_because(operation, "the lock was lost before: its time had ended"),
        Loss::Gone => lost_because(operation, "the lock was lost before: the store no longer had it"),
        Loss::Broken => lost_because(operation, "the lock was lost before: an operator took it away"),
        Loss::Closed => Error::new(ErrorKind::Closed, operation, "the client was closed, and gave the lock back"),
    }
}

fn lost_because(operation: &'static str, what: &str) -> Error {
    let hint = "another may have held it meanwhile; check the fence at the resource";
    Error::new(ErrorKind::Lost, operation, what).with_hint(hint)
}
