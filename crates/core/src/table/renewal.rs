//! Keeping leases: renewing them in time, and noticing in time that they are lost.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Table;
use super::entry::Entry;
use super::held::Hold;
use super::losses::{LostHold, undecided};
use super::types::{CallKind, Loss, Output, Outputs, Request, Sending};
use crate::error::Error;
use crate::lease;
use crate::name::Name;
use crate::port::{Renew, Renewed, Reply};
use crate::time::Moment;

/// How many leases one renewal carries: a failing chunk delays no other.
const RENEW_CHUNK: usize = 1_000;

impl Table {
    /// Handles every timer that is due: leases that are over are lost, others are renewed, releases are sent again.
    pub(super) fn tick(&mut self, now: Moment, out: &mut Outputs) {
        let mut renewals = Vec::new();
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, name)) = self.timers.pop_first() else { break };
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.timer = Moment::NEVER;
                self.due(now, &name, &mut renewals, out);
                self.agenda.touch(&name);
            }
        }
        for chunk in renewals.chunks(RENEW_CHUNK) {
            let what =
                CallKind::Renew(chunk.iter().map(|(renew, number)| (renew.lease.name.clone(), *number)).collect());
            let request = Request::Renew(chunk.iter().map(|(renew, _)| renew.clone()).collect());
            out.push(Output::Background(Sending::new(now, what, request)));
        }
    }

    fn due(&mut self, now: Moment, name: &Name, renewals: &mut Vec<(Renew, u64)>, out: &mut Outputs) {
        self.send_releases(now, name, out);
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut) else { return };
        if now >= held.deadline {
            return self.lose_all(now, name, Loss::TimeEnded, true, out);
        }
        self.end_holds(now, name, out);
        if let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut)
            && now >= held.next_renewal()
        {
            held.check_due = Moment::NEVER;
            if held.renewing {
                out.push(Output::RenewalLate(name.clone(), held.deadline.since(now)));
            }
            held.renewing = true;
            held.renew_due = lease::renew_hanging(now, held.short_of(now));
            let term = held.keep().min(lease::to_last(held.needed_until().since(now)));
            // A check lengthens nothing: the store has the lease for longer than its holder counts on.
            let term = if held.is_needed_longer() { term } else { held.deadline.since(now) };
            held.may_last(now, self.settings.call_limit, term);
            renewals.push((held.renewal(self.settings.client, name, term), held.number));
        }
    }

    /// Guards that reached their own end are lost. The lease may go on under others.
    fn end_holds(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut) else { return };
        if held.holds.iter().all(|hold| hold.end <= now) {
            return self.lose_all(now, name, Loss::TimeEnded, true, out);
        }
        let mut ended: SmallVec<[Hold; 1]> = SmallVec::new();
        while let Some(at) = held.holds.iter().position(|hold| hold.end <= now) {
            ended.push(held.remove(at));
        }
        for hold in ended {
            self.guards -= 1;
            let Some(held) = self.entries.get(name).and_then(Entry::held) else { return };
            let report = self.report(now, name, held, &hold, Loss::TimeEnded);
            self.lost_holds.insert(hold.id, LostHold::new(report.clone(), None, self.jumped));
            out.push(Output::Lost(hold.id, name.clone(), report));
        }
    }

    /// The answer to a batch of renewals.
    pub(super) fn renewed(
        &mut self,
        now: Moment,
        sent: Moment,
        leases: &[(Name, u64)],
        reply: Reply<Vec<Renewed>>,
        out: &mut Outputs,
    ) {
        let results = reply.map(|answered| answered.result).map_err(Arc::new);
        for (at, (name, number)) in leases.iter().enumerate() {
            let result = match &results {
                Ok(results) => results.get(at).copied().ok_or_else(|| Arc::new(undecided())),
                Err(error) => Err(error.clone()),
            };
            self.renewed_one(now, sent, name, *number, result, out);
            self.agenda.touch(name);
        }
    }

    fn renewed_one(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        result: Result<Renewed, Arc<Error>>,
        out: &mut Outputs,
    ) {
        // A renewal that crossed a release is not a loss: the lease is no longer held, or is on its way back.
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut).filter(|held| held.number == number)
        else {
            return;
        };
        held.renewing = false;
        if now >= held.deadline {
            // It was invalid for a moment already: it stays lost, even if the store kept it.
            return self.lose_all(now, name, Loss::TimeEnded, true, out);
        }
        match result {
            Ok(Renewed::Kept { left }) => {
                held.prolong(now, sent, left);
                self.forget_failures(name);
            }
            Ok(Renewed::Lost) => self.lose_all(now, name, Loss::Gone, false, out),
            Ok(Renewed::Broken) => self.lose_all(now, name, Loss::Broken, true, out),
            Err(error) => self.not_renewed(now, sent, name, error, out),
            Ok(Renewed::Unknown) => self.not_renewed(now, sent, name, Arc::new(undecided()), out),
        }
    }

    /// Nothing is known of a renewal: the next is tried soon.
    fn not_renewed(&mut self, now: Moment, sent: Moment, name: &Name, error: Arc<Error>, out: &mut Outputs) {
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut) else { return };
        held.renew_due = held.renew_due.min(lease::renew_again(now, held.short_of(now)));
        if !held.is_needed_longer() {
            return; // it was only a check
        }
        self.renewal_failed(now, sent, name, error, out);
    }

    /// The wall clock ran ahead of the client's clock, which may have stood still. The time that it missed counts from now on, also for
    /// calls that are under way: that may end leases early, and never lengthens them. But the wall clock may just have been set, so a
    /// lease that the store may still have is not taken to be over for that.
    pub(super) fn jumped(&mut self, now: Moment, ahead: Duration, out: &mut Outputs) {
        self.jumped += ahead;
        self.settings.clock.skip(ahead);
        for entry in self.entries.values_mut() {
            entry.last_longer(ahead);
        }
        self.tick(now + ahead, out);
    }
}
