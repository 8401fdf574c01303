//! Re-entering a lease, and making it longer: both may need the store first.

use std::time::Duration;

use smallvec::smallvec;

use super::entry::Entry;
use super::held::Held;
use super::losses::{lost, lost_by, undecided};
use super::types::{
    AcquireRequest, AfterRenewal, CallKind, HoldId, How, Loss, Output, Outputs, Request, Sending, TaskEffect, TicketId,
};
use super::{PendingExtension, Table};
use crate::backoff;
use crate::error::{Error, Outcome};
use crate::lease;
use crate::name::Name;
use crate::options::Term;
use crate::port::{Renewed, Reply};
use crate::time::Moment;

impl Table {
    /// The owner holds it already: this counts one more hold, without the store unless it needs the lease for longer, or beyond the end
    /// of a process with which the store would end it.
    pub(super) fn reenter(
        &mut self,
        now: Moment,
        id: TicketId,
        name: &Name,
        request: AcquireRequest,
        out: &mut Outputs,
    ) {
        let hold = HoldId(self.numbers.next());
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut) else { return };
        let long_enough = match request.options.term {
            Term::Kept(_) => held.is_needed_longer(),
            Term::Fixed(term) => lease::deadline(now, term) <= held.deadline,
        };
        // A generated owner lives in this process alone: its fixed time is of no use to anybody after that.
        let used_later = held.is_shared() || !request.options.at_least.is_zero();
        let outlives = held.kept && used_later && !request.options.ends_with_process();
        if !long_enough || outlives {
            held.kept &= !outlives;
            let term = request.options.term.lease();
            let patience = request.patience(now, self.settings.patience);
            let fresh = || PendingExtension { patience, attempts: 0, asleep: None };
            self.extensions.entry(id).or_insert_with(fresh);
            return self.request_extension(now, id, name, term, AfterRenewal::Enter(Box::new(request)), out);
        }
        held.at_least = held.at_least.max(now + request.options.at_least);
        let end = held.hold_end(now, now, &request);
        let grant = held.enter(now, hold, end, request.options.term, How::Reentered);
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
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut) else { return };
        let before = held.asked_until;
        held.may_last(now, self.settings.call_limit, term);
        // Its answer may be lost, or come when the task that asked has gone.
        held.outlasts = true;
        let what = CallKind::Extend { name: name.clone(), number: held.number, ticket: id, then, before };
        let renewal = Request::Renew(vec![held.renewal(self.settings.client, name, term)]);
        out.push(Output::To(id, TaskEffect::Call(Sending::new(now, what, renewal))));
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
            // Too few servers could tell: as good as no answer, and no loss.
            Ok(answered) if answered.result.first() == Some(&Renewed::Unknown) => Err(undecided()),
            reply => reply,
        };
        let ours = self.entries.get_mut(name).and_then(Entry::held_mut).filter(|held| held.number == number);
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
        let ours = self.entries.get_mut(name).and_then(Entry::held_mut).filter(|held| held.number == number);
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
            AfterRenewal::Enter(request) => self.enter_extended(now, sent, id, name, *request, out),
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
            (AfterRenewal::Enter(request), Some(mut waiting))
                if error.is_retryable() && !request.once && now < waiting.patience =>
            {
                let until = now + backoff::retry_pause(&mut self.rng, waiting.attempts);
                waiting.attempts += 1;
                waiting.asleep = Some(request);
                self.extensions.insert(id, waiting);
                out.push(Output::To(id, TaskEffect::Sleep(until)));
            }
            _ => out.push(Output::To(id, TaskEffect::Failed(error))),
        }
    }

    /// After a pause, a re-entry that the store did not answer starts over.
    pub(super) fn reenter_again(&mut self, id: TicketId) {
        let Some(request) = self.extensions.get_mut(&id).and_then(|waiting| waiting.asleep.take()) else { return };
        self.agenda.requests.push((id, *request));
    }

    fn enter_extended(
        &mut self,
        now: Moment,
        sent: Moment,
        id: TicketId,
        name: &Name,
        request: AcquireRequest,
        out: &mut Outputs,
    ) {
        let hold = HoldId(self.numbers.next());
        let ours = self.entries.get_mut(name).and_then(Entry::held_mut);
        let in_time = |held: &&mut Held| now < held.deadline.min(held.hold_end(now, sent, &request));
        let Some(held) = ours.filter(|held| held.holder == request.owner).filter(in_time) else {
            return self.agenda.requests.push((id, request));
        };
        held.at_least = held.at_least.max(now + request.options.at_least);
        let end = held.hold_end(now, sent, &request);
        let grant = held.enter(now, hold, end, request.options.term, How::Reentered);
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
        let held = self.entries.get_mut(name).and_then(Entry::held_mut);
        let end = lease::deadline(sent, term);
        let effect = match held.and_then(|held| held.extend(hold, end, now)) {
            Some(()) => TaskEffect::Extended,
            None => TaskEffect::Failed(lost("extend")),
        };
        out.push(Output::To(id, effect));
        self.agenda.touch(name);
    }
}
