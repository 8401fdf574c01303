//! Holding a lease here: re-entering it, passing it on, giving it back.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::entry::{Entry, Held, hold_end};
use super::losses::{lost, lost_by, undecided};
use super::pending_release::PendingRelease;
use super::types::{
    AcquireRequest, AfterRenewal, CallKind, Context, HoldId, How, Loss, Output, Outputs, Request, Sending, TaskEffect,
    TicketId,
};
use super::{PendingExtension, Table};
use crate::backoff;
use crate::error::{Error, ErrorKind, Outcome};
use crate::lease;
use crate::name::Name;
use crate::options::Term;
use crate::port::{Released, Renewed, Reply};
use crate::time::Moment;

impl Table {
    /// The owner holds it already: count, without asking the store, unless it needs the lease for longer, or beyond the end of
    /// this process where the store would end it then.
    pub(super) fn reenter(&mut self, now: Moment, id: TicketId, name: &Name, want: AcquireRequest, out: &mut Outputs) {
        let hold = HoldId(self.numbers.next());
        let Some(held) = self.entries.get_mut(name).and_then(Entry::live) else { return };
        let long_enough = match want.options.term {
            Term::Kept(_) => held.needed_until() > held.deadline,
            Term::Fixed(term) => lease::deadline(now, term) <= held.deadline,
        };
        // Nobody else can be an owner that was generated: its fixed time is of no use to anybody after this process.
        let used_later = held.is_shared() || !want.options.at_least.is_zero();
        let outlives = held.kept && used_later && !want.options.ends_with_process();
        if !long_enough || outlives {
            held.kept &= !outlives;
            let term = want.options.term.lease();
            let patience = want.patience(now, self.settings.patience);
            let fresh = || PendingExtension { patience, attempts: 0, asleep: None };
            self.extensions.entry(id).or_insert_with(fresh);
            return self.request_extension(now, id, name, term, AfterRenewal::Enter(Box::new(want)), out);
        }
        held.at_least = held.at_least.max(now + want.options.at_least);
        let end = hold_end(now, now, held, &want);
        let grant = held.enter(now, hold, end, want.options.term, How::Reentered);
        self.guards += 1;
        out.push(Output::To(id, TaskEffect::Granted(smallvec![grant])));
        self.agenda.touch(name);
    }

    pub(super) fn extend(
        &mut self,
        now: Moment,
        id: TicketId,
        hold: HoldId,
        name: &Name,
        term: Duration,
        out: &mut Outputs,
    ) {
        if self.left_of(now, name, hold).is_none() {
            let error = self.loss(hold).map_or_else(|| lost("extend"), |report| lost_by("extend", report.loss));
            return out.push(Output::To(id, TaskEffect::Failed(error)));
        }
        self.request_extension(now, id, name, term, AfterRenewal::Extend(hold, term), out);
    }

    fn request_extension(
        &mut self,
        now: Moment,
        id: TicketId,
        name: &Name,
        term: Duration,
        then: AfterRenewal,
        out: &mut Outputs,
    ) {
        let Some(held) = self.entries.get_mut(name).and_then(Entry::live) else { return };
        let before = held.asked_until;
        held.may_last(now, self.settings.call_limit, term);
        // Its answer may be lost, or come when the task that asked has gone.
        held.outlasts = true;
        let what = CallKind::Extend { name: name.clone(), number: held.number, ticket: id, then, before };
        let request = Request::Renew(vec![held.renewal(self.settings.client, name, term)]);
        out.push(Output::To(id, TaskEffect::Call(Box::new(Sending { context: Context::new(now, what), request }))));
    }

    /// The store lengthened the lease, or has it no more.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answered call")]
    pub(super) fn extension_answered(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        id: TicketId,
        then: AfterRenewal,
        before: Moment,
        reply: Reply<Vec<Renewed>>,
        out: &mut Outputs,
    ) {
        let waiting = self.extensions.remove(&id);
        let cancelled = matches!(then, AfterRenewal::Enter(_)) && waiting.is_none();
        let answered = match reply {
            // Nobody could tell: as good as no answer, and no loss.
            Ok(answered) if answered.result.first() == Some(&Renewed::Unknown) => Err(undecided()),
            reply => reply,
        };
        let ours = self.entries.get_mut(name).and_then(Entry::live).filter(|held| held.number == number);
        if let (Err(error), Some(held)) = (&answered, ours) {
            match error.outcome() {
                Outcome::NotApplied => held.was_not_asked(sent, then.term(), before),
                _ => held.asked_until = held.asked_until.max(lease::deadline(sent, then.term())),
            }
        }
        let answered = match answered {
            Err(error) => return self.extension_failed(now, id, then, waiting, error, out),
            Ok(answered) => answered,
        };
        let ours = self.entries.get_mut(name).and_then(Entry::live).filter(|held| held.number == number);
        match (ours, answered.result.first()) {
            (Some(held), _) if now >= held.deadline => self.lose_all(now, name, Loss::TimeEnded, true, out),
            (Some(held), Some(Renewed::Kept { left })) => {
                held.prolong(now, sent, *left);
                self.forget_failures(name);
            }
            (Some(_), Some(Renewed::Broken)) => self.lose_all(now, name, Loss::Broken, true, out),
            (Some(_), _) => self.lose_all(now, name, Loss::Gone, false, out),
            (None, _) => {}
        }
        match then {
            AfterRenewal::Enter(_) if cancelled => {}
            AfterRenewal::Enter(want) => self.enter_extended(now, sent, id, name, *want, out),
            AfterRenewal::Extend(hold, term) => self.extended(now, sent, id, hold, name, term, out),
        }
        self.agenda.touch(name);
    }

    /// The store did not answer: a task that waits tries again after a pause, until its patience ends.
    fn extension_failed(
        &mut self,
        now: Moment,
        id: TicketId,
        then: AfterRenewal,
        waiting: Option<PendingExtension>,
        error: Error,
        out: &mut Outputs,
    ) {
        match (then, waiting) {
            (AfterRenewal::Enter(want), Some(mut waiting))
                if error.is_retryable() && !want.once && now < waiting.patience =>
            {
                let until = now + backoff::retry_pause(&mut self.rng, waiting.attempts);
                waiting.attempts += 1;
                waiting.asleep = Some(want);
                self.extensions.insert(id, waiting);
                out.push(Output::To(id, TaskEffect::Sleep(until)));
            }
            _ => out.push(Output::To(id, TaskEffect::Failed(error))),
        }
    }

    /// After a pause, a re-entry that the store did not answer starts over.
    pub(super) fn reenter_again(&mut self, id: TicketId) {
        let Some(want) = self.extensions.get_mut(&id).and_then(|waiting| waiting.asleep.take()) else { return };
        self.agenda.begin_again(id, *want);
    }

    fn enter_extended(
        &mut self,
        now: Moment,
        sent: Moment,
        id: TicketId,
        name: &Name,
        want: AcquireRequest,
        out: &mut Outputs,
    ) {
        let hold = HoldId(self.numbers.next());
        let ours = self.entries.get_mut(name).and_then(Entry::live);
        let in_time = |held: &&mut Held| now < held.deadline.min(hold_end(now, sent, held, &want));
        let Some(held) = ours.filter(|held| held.holder == want.owner).filter(in_time) else {
            return self.agenda.begin_again(id, want);
        };
        held.at_least = held.at_least.max(now + want.options.at_least);
        let end = hold_end(now, sent, held, &want);
        let grant = held.enter(now, hold, end, want.options.term, How::Reentered);
        self.guards += 1;
        out.push(Output::To(id, TaskEffect::Granted(smallvec![grant])));
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one answered call")]
    fn extended(
        &mut self,
        now: Moment,
        sent: Moment,
        id: TicketId,
        hold: HoldId,
        name: &Name,
        term: Duration,
        out: &mut Outputs,
    ) {
        let held = self.entries.get_mut(name).and_then(Entry::live);
        let wanted = lease::deadline(sent, term);
        let told = match held.and_then(|held| held.extend(hold, wanted, now)) {
            Some(()) => TaskEffect::Extended,
            None => TaskEffect::Failed(lost("extend")),
        };
        out.push(Output::To(id, told));
        self.agenda.touch(name);
    }

    /// A guard gives its hold back.
    pub(super) fn release_hold(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        if !self.lost_holds.is_empty()
            && let Some((report, release)) = self.lost_holds.remove(&hold)
        {
            return self.release_lost(now, hold, report.loss, release, out);
        }
        let entry = self.entries.get_mut(name);
        let Some((entry, at)) = entry.and_then(|entry| entry.position(hold).map(|at| (entry, at))) else {
            let error = Error::new(ErrorKind::NotHolder, "release", "it was released already");
            return out.push(Output::Released(hold, Err(error)));
        };
        let Some(held) = entry.held.as_deref_mut() else { return };
        let ended = held.remove(at).end <= now;
        self.guards -= 1;
        let still = held.holds.len();
        if still > 0 {
            let result = if ended || now >= held.deadline {
                Err(lost("release"))
            } else {
                Ok(Released::StillHeld(still as u32))
            };
            out.push(Output::Released(hold, result));
            return self.agenda.touch(name);
        }
        let deadline = held.deadline;
        let hands_off = !ended && entry.can_hand_off(now);
        if now >= deadline {
            return self.release_late(now, hold, name, out);
        }
        if hands_off && let Some((id, grant)) = entry.hand_off(now, HoldId(self.numbers.next())) {
            self.guards += 1;
            entry.seen = entry.seen.max(grant.fence);
            out.push(Output::Released(hold, Ok(Released::Released { waiters: None })));
            out.push(Output::To(id, TaskEffect::Granted(smallvec![grant])));
            if entry.due() != entry.timer.0 {
                self.agenda.touch(name);
            }
            return;
        }
        if ended {
            out.push(Output::Released(hold, Err(lost("release"))));
        }
        self.start_release(now, name, (!ended).then_some(hold), out);
    }

    /// A guard whose lock was lost is dropped. With the last one of its lease goes what the store may still have of it.
    fn release_lost(
        &mut self,
        now: Moment,
        hold: HoldId,
        loss: Loss,
        release: Option<Arc<PendingRelease>>,
        out: &mut Outputs,
    ) {
        out.push(Output::Released(hold, Err(lost_by("release", loss))));
        if let Some(release) = release.and_then(Arc::into_inner) {
            self.release_beside(now, release, now, out);
        }
    }

    /// Its time was over before the table had noticed.
    fn release_late(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(held) = entry.held.take() else { return };
        let release = held.pending_release(client, name, now, false);
        self.forget_failures(name);
        self.release_lost(now, hold, Loss::TimeEnded, Some(Arc::new(release)), out);
        self.agenda.touch(name);
    }

    /// Sends a lease back to the store; the guard that gave it waits for the answer, or nobody does.
    fn start_release(&mut self, now: Moment, name: &Name, hold: Option<HoldId>, out: &mut Outputs) {
        self.forget_failures(name);
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let rejoin = !entry.wait().queue.is_empty() && entry.wait().watched;
        let Some(held) = entry.held.as_deref_mut() else { return };
        let release = held.pending_release(client, name, now, rejoin);
        let sending = held.releasing.insert(Box::new(release)).send(now, hold);
        out.push(match hold {
            Some(hold) => Output::ForHold(hold, sending),
            None => Output::Background(sending),
        });
        self.agenda.touch(name);
    }

    /// The store answered a release. Where no lease waits for that answer, something beside it may.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answered call")]
    pub(super) fn released(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        hold: Option<HoldId>,
        reply: Reply<Released>,
        out: &mut Outputs,
    ) {
        let held = self.entries.get_mut(name).and_then(|entry| entry.held.as_deref_mut());
        let release = held.filter(|held| held.number == number).and_then(|held| held.releasing.as_deref_mut());
        let Some(release) = release else {
            return self.released_beside(now, sent, name, number, hold, reply, out);
        };
        let answered = match reply {
            Ok(answered) => answered,
            Err(error) => {
                release.failed(now, error.outcome(), &mut self.rng);
                out.extend(hold.map(|hold| Output::Released(hold, Err(error))));
                return self.agenda.touch(name);
            }
        };
        let was_lost = answered.result == Released::NotHeld && !release.maybe_executed;
        let (rejoined, is_settled) = (release.request.rejoin, release.is_settled(now, sent, answered.at));
        let result = if was_lost { Err(lost("release")) } else { Ok(answered.result) };
        let Some(entry) = self.entries.get_mut(name) else { return };
        if let Some(release) = entry.held.take().and_then(|held| held.releasing).filter(|_| !is_settled) {
            entry.wait_mut().releases.push(*release);
        }
        let others_wait = !matches!(result, Ok(Released::Released { waiters: Some(0) } | Released::StillHeld(_)));
        if others_wait && result.is_ok() {
            // Longer only for those who are on the list: they hear when it is their turn again.
            let wait = entry.wait_mut();
            let turns = if rejoined { wait.turns } else { 0 };
            wait.yield_until = now + backoff::yield_pause(self.round_trip, turns);
            wait.attempts = 0;
            wait.turns += 1;
        } else {
            entry.reset_turns();
        }
        out.extend(hold.map(|hold| Output::Released(hold, result)));
        self.agenda.touch(name);
    }

    /// The client closes: its guards are told, its leases go back.
    pub(super) fn close_held(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(held) = self.entries.get_mut(name).and_then(Entry::live) else { return };
        let holds = std::mem::take(&mut held.holds);
        self.guards -= holds.len();
        for hold in holds {
            let Some(held) = self.entries.get(name).and_then(|entry| entry.held.as_deref()) else { return };
            let report = self.report(now, name, held, &hold, Loss::Closed);
            self.lost_holds.insert(hold.id, (report.clone(), None));
            out.push(Output::Lost(hold.id, name.clone(), report));
        }
        self.start_release(now, name, None, out);
    }
}

impl Held {
    /// A renewal is sent at `now` and executed within `call_limit`: even if its answer is lost, the store may keep the lease for `term`.
    pub(super) fn may_last(&mut self, now: Moment, call_limit: Duration, term: Duration) {
        self.over = self.over.max(lease::surely_over(now + call_limit, term));
        self.asked_until = self.asked_until.max(lease::deadline(now, term));
    }

    /// A renewal was not executed, and never will be.
    pub(super) fn was_not_asked(&mut self, sent: Moment, term: Duration, before: Moment) {
        if self.asked_until == lease::deadline(sent, term) {
            self.asked_until = before;
        }
    }

    /// Lets a hold last until `end`, if it has not ended already. A kept one lasts as long as it may anyway.
    fn extend(&mut self, hold: HoldId, end: Moment, now: Moment) -> Option<()> {
        let deadline = self.deadline;
        let hold = self.holds.iter_mut().find(|h| h.id == hold)?;
        if now >= hold.end.min(deadline) || now >= end {
            return None;
        }
        if !hold.is_kept() {
            hold.end = hold.end.max(end);
        }
        Some(())
    }

    /// How soon it must be renewed to be kept: its usual lease, or what is left of it where that is less.
    pub(super) fn short_of(&self, now: Moment) -> Duration {
        self.keep().min(self.deadline.since(now))
    }

    /// The store said how much is left of a renewal sent at `sent`. Answers may come out of order; a lease is never shortened.
    pub(super) fn prolong(&mut self, now: Moment, sent: Moment, left: Duration) {
        self.deadline = self.deadline.max(lease::deadline(sent, left));
        self.over = self.over.max(lease::surely_over(now, left));
        self.renew_due = self.renew_due.max(lease::renew_due(sent, left.min(self.keep())));
    }
}
