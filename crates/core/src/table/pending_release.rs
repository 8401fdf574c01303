//! A release that is sent until it is certain.
//!
//! It is certain when the store has answered it and no sending of the acquire can be executed after that, or when the lease is over
//! anyway. A release goes on in one of three places: with the lease, while a guard waits for the answer; with the name, where an
//! acquire was given up and nobody may ask before that is settled; or beside it, where nobody waits for it.

use std::time::Duration;

use super::types::{CallKind, HoldId, Output, Outputs, Request, Sending};
use crate::backoff::{self, Rng};
use crate::error::Outcome;
use crate::port::Release;
use crate::time::{Moment, StoreTime};

/// A margin after the last moment at which a late sending can be executed.
const SETTLE_MARGIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct PendingRelease {
    /// Tells the answers of releases apart.
    pub(crate) number: u64,
    pub(crate) request: Release,
    /// The store's own lease is surely over then.
    pub(crate) over: Moment,
    /// A sending of the acquire whose answer was lost may be executed until then, by the store's clock.
    pub(crate) unsettled_until: Option<StoreTime>,
    /// By the client's own clock no such sending is executed after this, even if the store's clock was set back; never, if that is not
    /// known.
    pub(crate) executed_by: Moment,
    /// When to send it; never, while it is under way.
    pub(crate) again: Moment,
    attempts: u32,
    was_sent: bool,
    /// An earlier sending may have been executed.
    pub(crate) maybe_executed: bool,
}

impl PendingRelease {
    pub(crate) fn new(number: u64, request: Release, over: Moment, unsettled_until: Option<StoreTime>) -> Self {
        Self {
            number,
            request,
            over,
            unsettled_until,
            executed_by: Moment::NEVER,
            again: Moment::default(),
            attempts: 0,
            was_sent: false,
            maybe_executed: false,
        }
    }

    /// The call to send now. The answer goes to `hold`, if a guard waits for it.
    pub(crate) fn send(&mut self, now: Moment, hold: Option<HoldId>) -> Box<Sending> {
        (self.again, self.was_sent) = (Moment::NEVER, true);
        let what = CallKind::Release { name: self.request.name.clone(), number: self.number, hold };
        Sending::new(now, what, Request::Release(self.request.clone()))
    }

    /// Sends it if that is due. Returns whether it is over instead.
    pub(crate) fn tick(&mut self, now: Moment, closed: bool, out: &mut Outputs) -> bool {
        if self.is_over(now, closed) {
            return true;
        }
        if now >= self.again {
            out.push(Output::Background(self.send(now, None)));
        }
        false
    }

    /// The store answered what was sent at `sent`: by its own clock, at `at`. Returns whether that settles it. Else a late sending of
    /// the acquire may still be granted, and the next release is about that grant.
    pub(crate) fn is_settled(&mut self, now: Moment, sent: Moment, at: StoreTime) -> bool {
        let Some(until) = self.unsettled_until.filter(|until| at <= *until && sent <= self.executed_by) else {
            return true;
        };
        self.request.fence = None;
        self.request.last_used = None;
        self.request.cooldown = Duration::ZERO;
        self.request.rejoin = false;
        self.again = now + until.since(at).min(self.executed_by.since(now)) + SETTLE_MARGIN;
        false
    }

    /// It was not answered, or not sent: it is sent again after a pause.
    pub(crate) fn failed(&mut self, now: Moment, outcome: Outcome, rng: &mut Rng) {
        self.maybe_executed |= outcome != Outcome::NotApplied;
        self.again = now + backoff::retry_pause(rng, self.attempts);
        self.attempts += 1;
    }

    /// Nothing of it can be left in the store. A shared owner's lease may be kept by others, and this hold with it: only a client that
    /// closes gives that up, and not before it has tried.
    fn is_over(&self, now: Moment, closed: bool) -> bool {
        now >= self.over && (!self.request.owner.is_shared() || closed && self.was_sent)
    }

    /// It is not under way: it waits to be sent.
    pub(crate) fn is_pausing(&self) -> bool {
        self.again != Moment::NEVER
    }

    /// When it needs attention: no later than the end of the lease, even if the store's clock was set back.
    pub(crate) fn due(&self) -> Moment {
        if self.request.owner.is_shared() { self.again } else { self.again.min(self.over) }
    }

    /// What the store may still have is over later, by `span`.
    pub(crate) fn last_longer(&mut self, span: Duration) {
        self.over = self.over + span;
        self.executed_by = self.executed_by + span;
    }
}
