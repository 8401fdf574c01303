//! One attempt to acquire: the call to the store, and what its answer means for those who wait.
//!
//! A pending acquire is sent until it is answered; all its sendings bear one request id. Nothing here decides what comes next for a name:
//! see `progress.rs`.

use std::time::Duration;

use smallvec::SmallVec;

use super::Table;
use super::entry::{Ask, Entry, Held, PendingAcquire, Ticket, can_pass, hold_end, nanos};
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
    pub(super) fn ask(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let seen = self.seen(name);
        let Some(entry) = self.entries.get_mut(name) else { return };
        let entry = entry.wait_mut();
        let Some(id) = entry.asker().map(|(id, _)| id) else { return };
        let Some(Ticket { want, patience }) = entry.queue.get_mut(id) else { return };
        if !entry.series.as_ref().is_none_or(|series| series.fits(want)) {
            return self.withdraw(now, name, out);
        }
        patience.get_or_insert_with(|| want.patience(now, self.settings.patience));
        let series = entry.series.get_or_insert_with(|| {
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
                taint: None,
                executed: now,
                over: now,
            }
        });
        series.asker = id;
        let lease = want.options.lease();
        let waiters = if can_pass(&want.owner, &want.options) { entry.passable.saturating_sub(1) } else { 0 };
        let block = Block::size(waiters, lease);
        let not_after = self.settings.clock.latest(now) + self.settings.call_limit;
        let request = Acquire {
            names: want.names.clone(),
            owner: series.owner.clone(),
            request: RequestId { client, number: series.number },
            mode: Mode::Exclusive,
            lease,
            block,
            seen,
            clock: self.settings.clock.bounds(now),
            not_after,
            enlist: !want.once && want.options.wait_mode == WaitMode::Notified,
            kept: series.kept,
            about: want.about.clone(),
        };
        entry.enlisted |= request.enlist;
        entry.ask = Ask::Calling;
        entry.hinted = false;
        let context = Context::new(now, CallKind::Ask { name: name.clone(), number: series.number, not_after });
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
    pub(super) fn asked(
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
        let Some(series) = entry.series.as_mut().filter(|series| series.number == number) else { return };
        debug_assert!(entry.ask.is_calling(), "{:?}", entry.ask);
        match reply {
            Ok(Answered { at, result }) => {
                if std::mem::take(&mut entry.silent) {
                    entry.queue.end_patience();
                }
                if series.taint.is_some_and(|taint| at > taint) && !series.is_group() {
                    series.taint = None;
                }
                entry.attempts = if matches!(result, Acquired::Busy(_)) { entry.attempts + 1 } else { 0 };
                let asker = series.asker;
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
                        .get(series.asker)
                        .map_or(crate::options::KEEP_DEFAULT, |ticket| ticket.want.options.term.lease());
                    series.taint = series.taint.max(Some(not_after));
                    // Where the store's clock stands is known to within one call, so `not_after` may be two calls away.
                    let executed = sent + self.jumped_meanwhile + self.settings.call_limit * 2;
                    series.executed = series.executed.max(executed);
                    series.over = series.over.max(lease::surely_over(executed, lease));
                    if let Names::Many(names) = series.names.clone() {
                        self.listed(&names);
                    }
                }
                self.ask_failed(now, name, &error, out);
            }
        }
        self.agenda.touch(name);
    }

    pub(super) fn refused(&mut self, now: Moment, name: &Name, busy: Busy, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.wait().series.as_ref().is_some_and(|series| series.is_group()) {
            return self.group_refused(now, name, Some(busy), out);
        }
        entry.wait_mut().turns = 0;
        let hinted = entry.wait().hinted;
        entry.wait_mut().refused(busy.clone());
        self.refuse_tries(name, &busy, out);
        if hinted || self.entries.get(name).is_some_and(|entry| entry.wait().queue.is_empty()) {
            self.reask(name);
        } else {
            self.await_turn(now, name, busy.free_in, out);
        }
    }

    /// A subscription was confirmed, or failed: either way, ask again.
    pub(super) fn watched(&mut self, now: Moment, name: &Name, failed: Option<Error>, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if !matches!(entry.wait().ask, Ask::Watching) {
            return;
        }
        entry.wait_mut().ask = Ask::Idle;
        match failed {
            None => {
                entry.wait_mut().watched = true;
                self.reask(name);
            }
            Some(error) => self.ask_failed(now, name, &error, out),
        }
        self.agenda.touch(name);
    }

    /// A call for the first in line failed: tell it, or try again after a pause.
    pub(super) fn ask_failed(&mut self, now: Moment, name: &Name, error: &Error, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.wait_mut().attempts += 1;
        let asker = entry.wait().series.as_ref().map(|series| series.asker);
        let asker = asker.or_else(|| entry.wait().head().map(|(id, _)| id));
        if error.is_retryable() {
            entry.wait_mut().begin_patience(now, asker, self.settings.patience);
        }
        let is_final = |(id, ticket): (TicketId, &Ticket)| {
            let is_over = ticket.patience.is_some_and(|over| now >= over);
            let asked = Some(id) == asker && (!error.is_retryable() || is_over);
            // Those behind it would hear of the silence only when their turn comes.
            let behind = entry.wait().silent && error.is_retryable() && is_over;
            (asked || behind || ticket.want.once).then_some(id)
        };
        let failed: SmallVec<[TicketId; 1]> = entry.wait().queue.iter().filter_map(is_final).collect();
        for id in failed {
            entry.wait_mut().dequeue(id);
            out.push(Output::To(id, TaskEffect::Failed(error.clone())));
            self.groups.remove(&id);
        }
        let Some(entry) = self.entries.get_mut(name) else { return };
        if let Some(series) = &entry.wait().series
            && series.is_group()
            && !entry.wait().queue.contains(series.asker)
        {
            return self.group_gone(now, name, out);
        }
        if entry.wait().queue.is_empty() {
            return self.reask(name);
        }
        self.sleep_after_failure(now, name, out);
    }

    /// Nothing came of a sending, and nothing will: the same again, or nothing if nobody wants it.
    pub(super) fn ask_again(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.wait().series.as_ref().is_some_and(|series| series.is_group()) {
            self.group_refused(now, name, None, out);
        } else {
            self.reask(name);
        }
    }

    pub(super) fn granted(&mut self, now: Moment, sent: Moment, name: &Name, grants: &[Granted], out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(series) = entry.wait_mut().series.take() else { return };
        entry.wait_mut().ask = Ask::Idle;
        let Some(taker) = taker(entry, &series, grants) else {
            return self.discard(now, &series, grants, out);
        };
        let names = series.names.clone();
        let own_term = match entry.wait().queue.get(taker) {
            Some(Ticket { want, .. }) if matches!(want.options.term, Term::Fixed(_)) => want.options.term.lease(),
            _ => Duration::MAX,
        };
        let is_over = |grant: &Granted| now >= lease::deadline(sent, grant.left.min(own_term));
        if grants.iter().any(is_over) {
            return self.discard(now, &series, grants, out);
        }
        let Some(ticket) = self.entries.get_mut(name).and_then(|entry| entry.wait_mut().dequeue(taker)) else { return };
        self.groups.remove(&taker);
        let given = names.as_slice().iter().zip(grants).map(|(name, grant)| {
            let hold = HoldId(self.numbers.next());
            self.install(now, sent, name, &series, *grant, &ticket.want, hold)
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
    pub(super) fn install(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        series: &PendingAcquire,
        grant: Granted,
        want: &AcquireRequest,
        hold: HoldId,
    ) -> super::Grant {
        let left = grant.left;
        let deadline = lease::deadline(sent, left);
        let mut held = Held {
            number: series.number,
            holder: want.owner.clone(),
            block: grant.block,
            passes: 0,
            keep_nanos: nanos(want.options.term.lease()),
            granted: now,
            budget_end: if can_pass(&want.owner, &want.options) { now + want.options.budget } else { now },
            deadline,
            asked_until: deadline,
            over: lease::surely_over(now, left).max(series.over),
            taint: series.taint.unwrap_or_default(),
            renew_due: lease::renew_due(sent, left),
            renewing: false,
            check_due: Moment::NEVER,
            kept: series.kept,
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
            wait.ask = Ask::Idle;
            wait.series = None;
            wait.give_way = Moment::default();
            wait.enlisted = false;
        }
        entry.seen = entry.seen.max(grant.block.first);
        entry.held = Some(Box::new(held));
        given
    }

    /// Gives back what nobody here can use any more.
    pub(super) fn discard(&mut self, now: Moment, series: &PendingAcquire, grants: &[Granted], out: &mut Outputs) {
        let id = RequestId { client: self.settings.client, number: series.number };
        for (name, grant) in series.names.as_slice().iter().zip(grants) {
            let request = Release {
                fence: series.taint.is_none().then_some(grant.block.first),
                last_used: Some(grant.block.first).filter(|used| *used < grant.block.last()),
                ..Release::hold(name.clone(), series.owner.clone(), id)
            };
            let over = lease::surely_over(now, grant.left).max(series.over);
            self.release_first(now, PendingRelease::new(series.number, request, over, series.taint), out);
        }
    }
}

/// Which task takes a grant: the one that asked, or if it has gone, the first in line that can use it.
fn taker(entry: &Entry, series: &PendingAcquire, grants: &[Granted]) -> Option<TicketId> {
    if entry.wait().queue.contains(series.asker) {
        return Some(series.asker);
    }
    let (id, ticket) = entry.wait().head()?;
    let alike = ticket.want.names == series.names && grants.len() == 1 && series.fits(&ticket.want);
    let long_enough = match ticket.want.options.term {
        Term::Kept(_) => true,
        Term::Fixed(term) => grants[0].left >= term,
    };
    (alike && long_enough).then_some(id)
}
