//! The way to a lock: a task comes, its call is sent, the store grants it, and the lease is recorded.
//!
//! Refusals and failures are in `refusal.rs`. Nothing here decides what comes next for a name that tasks wait for: see `progress.rs`.

use std::time::Duration;

use super::Table;
use super::entry::{Entry, State};
use super::held::Held;
use super::pending_release::PendingRelease;
use super::queue::Ticket;
use super::types::{
    AcquireRequest, CallKind, Grant, HoldId, How, Loss, Output, Outputs, Request, Sending, Settings, TaskEffect,
    TicketId,
};
use super::wait_state::{PendingAcquire, WaitState};
use crate::error::Outcome;
use crate::fence::{Block, Fence};
use crate::lease;
use crate::name::{Name, Names};
use crate::options::{KEEP_DEFAULT, Term, WaitMode};
use crate::owner::RequestId;
use crate::port::{Acquired, Answered, Granted, Release, Reply};
use crate::time::{Moment, StoreTime};

impl Table {
    /// A task wants a lock.
    pub(super) fn acquire(&mut self, now: Moment, id: TicketId, request: AcquireRequest, out: &mut Outputs) {
        if self.closed {
            return out.push(Output::To(id, TaskEffect::Failed(super::closed_error())));
        }
        let Names::One(name) = &request.names else { return self.acquire_many(now, id, request, out) };
        match self.entries.get_mut(name) {
            // Nobody here holds the name or wants it.
            None => {
                let name = name.clone();
                let mut entry = Entry::default();
                entry.wait_mut().queue.insert(id, Ticket { request, patience: None });
                self.entries.insert(name.clone(), entry);
                self.send_acquire(now, id, &name, out);
            }
            Some(entry) if entry.must_queue(now, id, &request) => {
                // A task that joins a long line copies no name.
                let once = request.once.then(|| name.clone());
                entry.wait_mut().queue.insert(id, Ticket { request, patience: None });
                if let Some(name) = once {
                    self.try_among_others(now, id, &name, out);
                }
            }
            Some(_) => {
                let name = name.clone();
                self.acquire_known(now, id, &name, request, out);
            }
        }
    }

    /// Re-enters, refuses, or queues a task for a name that is in the table.
    fn acquire_known(&mut self, now: Moment, id: TicketId, name: &Name, request: AcquireRequest, out: &mut Outputs) {
        if let Some(held) = self.entries.get(name).and_then(Entry::held) {
            if now >= held.deadline {
                self.lose_all(now, name, Loss::TimeEnded, true, out);
            } else if held.holder == request.owner {
                return self.reenter(now, id, name, request, out);
            } else if request.once {
                let busy = self.busy_here(now, name, held);
                return out.push(Output::To(id, TaskEffect::Busy(Box::new(busy))));
            }
        }
        self.enqueue(id, name, request, out);
    }

    /// A task starts over. If it re-enters a lease that is too short for it, it does so with the rest of its patience.
    pub(super) fn acquire_again(&mut self, now: Moment, id: TicketId, request: AcquireRequest, out: &mut Outputs) {
        let before = self.extensions.remove(&id);
        self.acquire(now, id, request, out);
        if let (Some(before), Some(waiting)) = (before, self.extensions.get_mut(&id)) {
            (waiting.patience, waiting.attempts) = (before.patience, before.attempts);
        }
    }

    /// Sends an acquire for a task that waits at `name`, unless an earlier one must be withdrawn first.
    pub(super) fn send_acquire(&mut self, now: Moment, id: TicketId, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let seen = entry.seen;
        let wait = entry.wait_mut();
        let takers = wait.queue.handoff_takers;
        let Some(Ticket { request, patience }) = wait.queue.get_mut(id) else { return };
        if wait.pending.as_ref().is_some_and(|pending| !pending.fits(request)) {
            return self.withdraw(now, name, out);
        }
        let Settings { client, patience: usual, clock, call_limit, .. } = &self.settings;
        patience.get_or_insert_with(|| request.patience(now, *usual));
        let pending = wait.pending.get_or_insert_with(|| {
            let request_id = RequestId { client: *client, number: self.numbers.next() };
            PendingAcquire::new(now, request_id, id, request)
        });
        pending.asker = id;
        let call = &mut pending.call;
        call.lease = request.options.lease();
        // Fences to hand the lease off to the others that wait here.
        let others = if request.allows_handoff() { takers.saturating_sub(1) } else { 0 };
        call.block = Block::size(others, call.lease);
        call.seen = seen;
        call.clock = clock.bounds(now);
        call.not_after = clock.latest(now) + *call_limit;
        call.enlist = !request.once && request.options.wait_mode == WaitMode::Notified;
        call.about = request.about.clone();
        let mut call = call.clone();
        wait.enlisted |= call.enlist;
        wait.hinted = false;
        entry.state = State::Acquiring;
        if let Names::Many(names) = &call.names {
            call.seen = self.seen(names);
        }
        let what = CallKind::Acquire { name: name.clone(), number: call.request.number, not_after: call.not_after };
        out.push(Output::To(id, TaskEffect::Call(Sending::new(now, what, Request::Acquire(call)))));
    }

    /// The largest fence seen of several names.
    fn seen(&self, names: &[Name]) -> Fence {
        names.iter().filter_map(|name| self.entries.get(name)).map(|entry| entry.seen).max().unwrap_or_default()
    }

    /// The answer to an acquire.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answered call")]
    pub(super) fn acquire_answered(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        not_after: StoreTime,
        reply: Reply<Acquired>,
        out: &mut Outputs,
    ) {
        let Some(Entry { state, wait: Some(wait), .. }) = self.entries.get_mut(name) else { return };
        let WaitState { queue, pending, attempts, unanswered, .. } = &mut **wait;
        let Some(pending) = pending.as_mut().filter(|pending| pending.number() == number) else { return };
        debug_assert!(matches!(state, State::Acquiring), "{state:?}");
        match reply {
            Ok(Answered { at, result }) => {
                if std::mem::take(unanswered) {
                    queue.end_patience();
                }
                if let Some(ticket) = queue.get_mut(pending.asker) {
                    ticket.patience = Some(Moment::NEVER);
                }
                if pending.unsettled_until.is_some_and(|until| at > until) && !pending.is_group() {
                    pending.unsettled_until = None;
                }
                *attempts = if let Acquired::Busy(_) = result { *attempts + 1 } else { 0 };
                match result {
                    Acquired::Granted(grants) => return self.granted(now, sent, name, &grants, out),
                    Acquired::Busy(busy) => self.refused(now, name, *busy, out),
                    Acquired::TooLate => self.too_late(now, name, out),
                }
            }
            Err(error) => {
                if error.outcome() != Outcome::NotApplied {
                    let asker = queue.get(pending.asker);
                    let lease = asker.map_or(KEEP_DEFAULT, |ticket| ticket.request.options.term.lease());
                    pending.unsettled_until = pending.unsettled_until.max(Some(not_after));
                    // Where the store's clock stands is known to within one call, so `not_after` may be two calls away.
                    let executed_by = sent + self.jumped_meanwhile + self.settings.call_limit * 2;
                    pending.executed_by = pending.executed_by.max(executed_by);
                    pending.over = pending.over.max(lease::surely_over(executed_by, lease));
                    if let Names::Many(names) = pending.call.names.clone() {
                        self.note_enlisted(&names);
                    }
                }
                self.acquire_failed(now, name, &error, out);
            }
        }
        self.agenda.touch(name);
    }

    /// The store granted it: the task that asked takes it, or another that can use it.
    fn granted(&mut self, now: Moment, sent: Moment, name: &Name, grants: &[Granted], out: &mut Outputs) {
        let Some(Entry { state, wait: Some(wait), .. }) = self.entries.get_mut(name) else { return };
        let Some(pending) = wait.pending.take() else { return };
        *state = State::Idle;
        let lasts = |ticket: &Ticket| {
            let options = &ticket.request.options;
            let own_term = if let Term::Fixed(term) = options.term { term } else { Duration::MAX };
            grants.iter().all(|grant| now < lease::deadline(sent, grant.left.min(own_term)))
        };
        let taker = wait.taker(&pending, grants).filter(|(_, ticket)| lasts(ticket)).map(|(id, _)| id);
        let Some((id, ticket)) = taker.and_then(|id| Some((id, wait.queue.remove(id)?))) else {
            return self.release_grant(now, &pending, grants, out);
        };
        self.groups.remove(&id);
        let names = pending.call.names.as_slice();
        let record =
            |(name, grant): (&Name, &Granted)| self.record_grant(now, sent, name, &pending, *grant, &ticket.request);
        let given = names.iter().zip(grants).map(record).collect();
        out.push(Output::To(id, TaskEffect::Granted(given)));
        for name in names {
            self.answer_tries(now, name, out);
            self.agenda.touch(name);
        }
    }

    /// A granted lease is ours from now on, held by the task that took it.
    fn record_grant(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        pending: &PendingAcquire,
        grant: Granted,
        request: &AcquireRequest,
    ) -> Grant {
        let mut held = Held::granted(now, sent, pending, grant, request);
        let end = held.hold_end(now, sent, request);
        // The task that asked for it may have wanted it for longer than the one that takes it.
        held.outlasts = end < held.deadline;
        let hold = held.enter(now, HoldId(self.numbers.next()), end, request.options.term, How::Asked);
        self.guards += 1;
        let entry = self.entries.entry(name.clone()).or_default();
        if let Some(wait) = &mut entry.wait {
            wait.pending = None;
            wait.yield_until = Moment::default();
            wait.enlisted = false;
        }
        entry.seen = entry.seen.max(grant.block.first);
        entry.state = State::Held(Box::new(held));
        entry.tidy(now);
        Grant { entered: grant.holds > 1, ..hold }
    }

    /// Gives back what nobody here can use any more.
    fn release_grant(&mut self, now: Moment, pending: &PendingAcquire, grants: &[Granted], out: &mut Outputs) {
        let call = &pending.call;
        for (name, grant) in call.names.as_slice().iter().zip(grants) {
            let request = Release {
                fence: pending.unsettled_until.is_none().then_some(grant.block.first),
                last_used: Some(grant.block.first).filter(|used| *used < grant.block.last()),
                ..Release::hold(name.clone(), call.owner.clone(), call.request)
            };
            let over = lease::surely_over(now, grant.left).max(pending.over);
            let mut release = PendingRelease::new(pending.number(), request, over, pending.unsettled_until);
            release.executed_by = pending.executed_by;
            self.release_first(now, release, out);
        }
    }
}
