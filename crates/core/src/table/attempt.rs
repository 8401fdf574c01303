//! One attempt to acquire: the call to the store, and what its answer means for those who wait.
//!
//! A pending acquire is sent until it is answered; all its sendings bear one request id. Nothing here decides what comes next for a name:
//! see `progress.rs`.

use std::time::Duration;

use smallvec::SmallVec;

use super::Table;
use super::entry::{Entry, Held, PendingAcquire, Phase, Ticket, allows_handoff, hold_end, nanos};
use super::pending_release::PendingRelease;
use super::types::{
    AcquireRequest, CallKind, Context, HoldId, How, Output, Outputs, Request, Sending, TaskEffect, TicketId,
};
use crate::error::{Error, Outcome};
use crate::fence::{Block, Fence};
use crate::lease;
use crate::name::{Name, Names};
use crate::options::{Term, WaitMode};
use crate::owner::{RequestId, StoreOwner};
use crate::port::{Acquire, Acquired, Answered, Busy, Granted, Mode, Release, Reply};
use crate::time::{Moment, StoreTime};

impl Table {
    /// Sends an acquire for the first in line.
    pub(super) fn send_acquire(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let seen = self.seen(name);
        let Some(entry) = self.entries.get_mut(name) else { return };
        let entry = entry.wait_mut();
        let Some(id) = entry.asker().map(|(id, _)| id) else { return };
        let Some(Ticket { want, patience }) = entry.queue.get_mut(id) else { return };
        if !entry.pending.as_ref().is_none_or(|pending| pending.fits(want)) {
            return self.withdraw(now, name, out);
        }
        patience.get_or_insert_with(|| want.patience(now, self.settings.patience));
        let pending = entry.pending.get_or_insert_with(|| {
            let number = self.numbers.next();
            let request = RequestId { client, number };
            let owner = want.owner.as_explicit().cloned().map_or(StoreOwner::Private(request), StoreOwner::Shared);
            let kept = want.options.ends_with_process();
            PendingAcquire {
                number,
                owner,
                asker: id,
                names: want.names.clone(),
                kept,
                unsettled_until: None,
                executed_by: now,
                over: now,
            }
        });
        pending.asker = id;
        let lease = want.options.lease();
        let waiters =
            if allows_handoff(&want.owner, &want.options) { entry.handoff_waiters.saturating_sub(1) } else { 0 };
        let block = Block::size(waiters, lease);
        let not_after = self.settings.clock.latest(now) + self.settings.call_limit;
        let request = Acquire {
            names: want.names.clone(),
            owner: pending.owner.clone(),
            request: RequestId { client, number: pending.number },
            mode: Mode::Exclusive,
            lease,
            block,
            seen,
            clock: self.settings.clock.bounds(now),
            not_after,
            enlist: !want.once && want.options.wait_mode == WaitMode::Notified,
            kept: pending.kept,
            about: want.about.clone(),
        };
        entry.enlisted |= request.enlist;
        entry.phase = Phase::Acquiring;
        entry.hinted = false;
        let context = Context::new(now, CallKind::Acquire { name: name.clone(), number: pending.number, not_after });
        out.push(Output::To(id, TaskEffect::Call(Box::new(Sending { context, request: Request::Acquire(request) }))));
    }

    /// The largest fence seen of what the first in line at `name` wants.
    fn seen(&self, name: &Name) -> Fence {
        let Some(entry) = self.entries.get(name) else { return Fence::NONE };
        match entry.wait().asker().map(|(_, ticket)| &ticket.want.names) {
            Some(Names::Many(names)) => {
                names.iter().filter_map(|name| self.entries.get(name)).map(|entry| entry.seen).max().unwrap_or_default()
            }
            _ => entry.seen,
        }
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
        let Some(entry) = self.entries.get_mut(name) else { return };
        let entry = entry.wait_mut();
        let Some(pending) = entry.pending.as_mut().filter(|pending| pending.number == number) else { return };
        debug_assert!(entry.phase.is_acquiring(), "{:?}", entry.phase);
        match reply {
            Ok(Answered { at, result }) => {
                if std::mem::take(&mut entry.unanswered) {
                    entry.queue.end_patience();
                }
                if pending.unsettled_until.is_some_and(|unsettled_until| at > unsettled_until) && !pending.is_group() {
                    pending.unsettled_until = None;
                }
                entry.attempts = if matches!(result, Acquired::Busy(_)) { entry.attempts + 1 } else { 0 };
                let asker = pending.asker;
                if let Some(ticket) = entry.queue.get_mut(asker) {
                    ticket.patience = Some(Moment::NEVER);
                }
                match result {
                    Acquired::Granted(grants) => return self.granted(now, sent, name, &grants, out),
                    Acquired::Busy(busy) => self.refused(now, name, *busy, out),
                    Acquired::TooLate => self.ask_again(now, name, out),
                }
            }
            Err(error) => {
                if error.outcome() != Outcome::NotApplied {
                    let lease = entry
                        .queue
                        .get(pending.asker)
                        .map_or(crate::options::KEEP_DEFAULT, |ticket| ticket.want.options.term.lease());
                    pending.unsettled_until = pending.unsettled_until.max(Some(not_after));
                    // Where the store's clock stands is known to within one call, so `not_after` may be two calls away.
                    let executed_by = sent + self.jumped_meanwhile + self.settings.call_limit * 2;
                    pending.executed_by = pending.executed_by.max(executed_by);
                    pending.over = pending.over.max(lease::surely_over(executed_by, lease));
                    if let Names::Many(names) = pending.names.clone() {
                        self.note_enlisted(&names);
                    }
                }
                self.acquire_failed(now, name, &error, out);
            }
        }
        self.agenda.touch(name);
    }

    pub(super) fn refused(&mut self, now: Moment, name: &Name, busy: Busy, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.wait().pending.as_ref().is_some_and(|pending| pending.is_group()) {
            return self.group_refused(now, name, Some(busy), out);
        }
        entry.wait_mut().turns = 0;
        let hinted = entry.wait().hinted;
        entry.wait_mut().refused(busy.clone());
        self.refuse_tries(name, &busy, out);
        if hinted || self.entries.get(name).is_some_and(|entry| entry.wait().queue.is_empty()) {
            self.retry_acquire(name);
        } else {
            self.await_turn(now, name, busy.free_in, out);
        }
    }

    /// A subscription was confirmed, or failed: either way, ask again.
    pub(super) fn watched(&mut self, now: Moment, name: &Name, failed: Option<Error>, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if !matches!(entry.wait().phase, Phase::Subscribing) {
            return;
        }
        entry.wait_mut().phase = Phase::Idle;
        match failed {
            None => {
                entry.wait_mut().watched = true;
                self.retry_acquire(name);
            }
            Some(error) => self.acquire_failed(now, name, &error, out),
        }
        self.agenda.touch(name);
    }

    /// A call for the first in line failed: tell it, or try again after a pause.
    pub(super) fn acquire_failed(&mut self, now: Moment, name: &Name, error: &Error, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.wait_mut().attempts += 1;
        let asker = entry.wait().pending.as_ref().map(|pending| pending.asker);
        let asker = asker.or_else(|| entry.wait().head().map(|(id, _)| id));
        if error.is_retryable() {
            entry.wait_mut().begin_patience(now, asker, self.settings.patience);
        }
        let is_final = |(id, ticket): (TicketId, &Ticket)| {
            let is_over = ticket.patience.is_some_and(|over| now >= over);
            let acquire_answered = Some(id) == asker && (!error.is_retryable() || is_over);
            // Those behind it would hear of the silence only when their turn comes.
            let behind = entry.wait().unanswered && error.is_retryable() && is_over;
            (acquire_answered || behind || ticket.want.once).then_some(id)
        };
        let failed: SmallVec<[TicketId; 1]> = entry.wait().queue.iter().filter_map(is_final).collect();
        for id in failed {
            entry.wait_mut().dequeue(id);
            out.push(Output::To(id, TaskEffect::Failed(error.clone())));
            self.groups.remove(&id);
        }
        let Some(entry) = self.entries.get_mut(name) else { return };
        if let Some(pending) = &entry.wait().pending
            && pending.is_group()
            && !entry.wait().queue.contains(pending.asker)
        {
            return self.group_gone(now, name, out);
        }
        if entry.wait().queue.is_empty() {
            return self.retry_acquire(name);
        }
        self.sleep_after_failure(now, name, out);
    }

    /// Nothing came of a sending, and nothing will: the same again, or nothing if nobody wants it.
    pub(super) fn ask_again(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.wait().pending.as_ref().is_some_and(|pending| pending.is_group()) {
            self.group_refused(now, name, None, out);
        } else {
            self.retry_acquire(name);
        }
    }

    pub(super) fn granted(&mut self, now: Moment, sent: Moment, name: &Name, grants: &[Granted], out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(pending) = entry.wait_mut().pending.take() else { return };
        entry.wait_mut().phase = Phase::Idle;
        let Some(taker) = taker(entry, &pending, grants) else {
            return self.release_grant(now, &pending, grants, out);
        };
        let names = pending.names.clone();
        let own_term = match entry.wait().queue.get(taker) {
            Some(Ticket { want, .. }) if matches!(want.options.term, Term::Fixed(_)) => want.options.term.lease(),
            _ => Duration::MAX,
        };
        let is_over = |grant: &Granted| now >= lease::deadline(sent, grant.left.min(own_term));
        if grants.iter().any(is_over) {
            return self.release_grant(now, &pending, grants, out);
        }
        let Some(ticket) = self.entries.get_mut(name).and_then(|entry| entry.wait_mut().dequeue(taker)) else { return };
        self.groups.remove(&taker);
        let given = names.as_slice().iter().zip(grants).map(|(name, grant)| {
            let hold = HoldId(self.numbers.next());
            self.record_grant(now, sent, name, &pending, *grant, &ticket.want, hold)
        });
        let given: SmallVec<_> = given.collect();
        out.push(Output::To(taker, TaskEffect::Granted(given)));
        for name in names.as_slice() {
            self.answer_tries(now, name, out);
            self.agenda.touch(name);
        }
    }

    /// Makes a granted lease ours, for the task that took it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one grant")]
    pub(super) fn record_grant(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        pending: &PendingAcquire,
        grant: Granted,
        want: &AcquireRequest,
        hold: HoldId,
    ) -> super::Grant {
        let left = grant.left;
        let deadline = lease::deadline(sent, left);
        let mut held = Held {
            number: pending.number,
            holder: want.owner.clone(),
            block: grant.block,
            handoffs: 0,
            keep_nanos: nanos(want.options.term.lease()),
            granted: now,
            handoff_until: if allows_handoff(&want.owner, &want.options) { now + want.options.budget } else { now },
            deadline,
            asked_until: deadline,
            over: lease::surely_over(now, left).max(pending.over),
            unsettled_until: pending.unsettled_until.unwrap_or_default(),
            renew_due: lease::renew_due(sent, left),
            renewing: false,
            check_due: Moment::NEVER,
            kept: pending.kept,
            outlasts: false,
            at_least: if want.options.at_least.is_zero() { sent } else { now + want.options.at_least },
            about: want.about.clone(),
            holds: SmallVec::new(),
            releasing: None,
        };
        let end = hold_end(now, sent, &held, want);
        // The task that asked for it may have wanted it for longer than the one that takes it.
        held.outlasts = end < deadline;
        let mut given = held.enter(now, hold, end, want.options.term, How::Asked);
        given.entered = grant.holds > 1;
        self.guards += 1;
        let entry = self.entries.entry(name.clone()).or_default();
        if let Some(wait) = &mut entry.wait {
            wait.phase = Phase::Idle;
            wait.pending = None;
            wait.yield_until = Moment::default();
            wait.enlisted = false;
        }
        entry.seen = entry.seen.max(grant.block.first);
        entry.held = Some(Box::new(held));
        given
    }

    /// Gives back what nobody here can use any more.
    pub(super) fn release_grant(
        &mut self,
        now: Moment,
        pending: &PendingAcquire,
        grants: &[Granted],
        out: &mut Outputs,
    ) {
        let id = RequestId { client: self.settings.client, number: pending.number };
        for (name, grant) in pending.names.as_slice().iter().zip(grants) {
            let request = Release {
                fence: pending.unsettled_until.is_none().then_some(grant.block.first),
                last_used: Some(grant.block.first).filter(|used| *used < grant.block.last()),
                ..Release::hold(name.clone(), pending.owner.clone(), id)
            };
            let over = lease::surely_over(now, grant.left).max(pending.over);
            self.release_first(now, PendingRelease::new(pending.number, request, over, pending.unsettled_until), out);
        }
    }
}

/// Which task takes a grant: the one that asked, or if it has gone, the first in line that can use it.
fn taker(entry: &Entry, pending: &PendingAcquire, grants: &[Granted]) -> Option<TicketId> {
    if entry.wait().queue.contains(pending.asker) {
        return Some(pending.asker);
    }
    let (id, ticket) = entry.wait().head()?;
    let alike = ticket.want.names == pending.names && grants.len() == 1 && pending.fits(&ticket.want);
    let long_enough = match ticket.want.options.term {
        Term::Kept(_) => true,
        Term::Fixed(term) => grants[0].left >= term,
    };
    (alike && long_enough).then_some(id)
}
