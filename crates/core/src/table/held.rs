//! A lease that this client has of a name: its holds, its times and its fences.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::pending_release::PendingRelease;
use super::types::{AcquireRequest, Grant, HoldId, How};
use super::wait_state::PendingAcquire;
use crate::fence::{Block, FENCE_UNIT_NANOS, Fence};
use crate::lease::{self, Lease};
use crate::name::Name;
use crate::options::{MAX_HANDOFFS, Term};
use crate::owner::{ClientId, Owner, RequestId};
use crate::port::{About, Granted, Holder, Release, Renew};
use crate::time::{Moment, StoreClock, StoreTime};

/// A lease that this client has of a name.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) number: u64,
    /// Who holds it here; an explicit owner holds it in the store too.
    pub(crate) holder: Owner,
    pub(crate) block: Block,
    /// How many fences of the block were used beyond the first.
    pub(crate) handoffs: u32,
    /// The lease that it is renewed for: of the longest kept hold that lives, or without one of the longest fixed hold.
    keep_ms: u32,
    pub(crate) granted: Moment,
    /// Handed off no later than this.
    pub(crate) handoff_until: Moment,
    pub(crate) deadline: Moment,
    /// The deadline if every renewal that may have been executed were answered.
    pub(crate) asked_until: Moment,
    /// The store's own lease is surely over then.
    pub(crate) over: Moment,
    /// A sending of its request whose answer was lost may be executed until then, by the store's clock; long past if there is none.
    pub(crate) unsettled_until: StoreTime,
    pub(crate) renew_due: Moment,
    pub(crate) renewing: bool,
    /// A hint came: the store is asked then whether it still has the lease, even if nobody needs it for longer.
    pub(crate) check_due: Moment,
    /// The store may end it with this process.
    pub(crate) kept: bool,
    /// The store may keep it beyond the end of the guards that are left, because another guard needed it for longer. It is given back
    /// when they end.
    pub(crate) outlasts: bool,
    /// Others are to be kept out until then.
    pub(crate) at_least: Moment,
    pub(crate) about: Arc<About>,
    pub(crate) holds: SmallVec<[Hold; 1]>,
}

/// One guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    /// Its own end, which may come before the end of the lease.
    pub(crate) end: Moment,
    /// How long after the grant of its lease it began. Milliseconds in few bytes: there is one of these for every lock that is held.
    since_ms: u32,
    /// The lease that it asked for, in milliseconds, with [`Hold::KEPT`].
    lease_ms: u32,
}

impl Hold {
    /// Renewed as long as it lives, up to its end.
    const KEPT: u32 = 1 << 31;

    pub(crate) fn is_kept(self) -> bool {
        self.lease_ms & Self::KEPT != 0
    }
}

impl Held {
    /// The lease that `grant` gives to `request`, before its first hold.
    pub(crate) fn granted(
        now: Moment,
        sent: Moment,
        pending: &PendingAcquire,
        grant: Granted,
        request: &AcquireRequest,
    ) -> Self {
        let options = &request.options;
        let left = grant.left;
        let deadline = lease::deadline(sent, left);
        Self {
            number: pending.number(),
            holder: request.owner.clone(),
            block: grant.block,
            handoffs: 0,
            keep_ms: 0,
            granted: now,
            handoff_until: if request.allows_handoff() { now + options.budget } else { now },
            deadline,
            asked_until: deadline,
            over: lease::surely_over(now, left).max(pending.over),
            unsettled_until: pending.unsettled_until.unwrap_or_default(),
            renew_due: lease::renew_due(sent, left),
            renewing: false,
            check_due: Moment::NEVER,
            kept: pending.call.kept,
            outlasts: false,
            at_least: if options.at_least.is_zero() { sent } else { now + options.at_least },
            about: request.about.clone(),
            holds: SmallVec::new(),
        }
    }

    /// When a hold of this request ends by itself. `sent`: when the call was sent that the lease counts from.
    pub(crate) fn hold_end(&self, now: Moment, sent: Moment, request: &AcquireRequest) -> Moment {
        match (request.options.term, request.options.max_hold) {
            (Term::Kept(_), None) => Moment::NEVER,
            (Term::Kept(_), Some(max_hold)) => now + max_hold,
            (Term::Fixed(term), _) => lease::deadline(sent, term).min(self.deadline),
        }
    }

    /// Adds a guard's hold with its own end.
    pub(crate) fn enter(&mut self, now: Moment, id: HoldId, end: Moment, term: Term, how: How) -> Grant {
        let since_ms = u32::try_from(now.since(self.granted).as_millis()).unwrap_or(u32::MAX);
        let whole_ms = term.lease().as_nanos().div_ceil(1_000_000);
        let lease_ms = u32::try_from(whole_ms).unwrap_or(u32::MAX).min(!Hold::KEPT);
        let kept = if let Term::Kept(_) = term { Hold::KEPT } else { 0 };
        self.holds.push(Hold { id, end, since_ms, lease_ms: lease_ms | kept });
        self.keep_for_holds();
        let holds = u32::try_from(self.holds.len()).unwrap_or(u32::MAX);
        Grant { hold: id, fence: self.fence(), holds, how, entered: how == How::Reentered }
    }

    /// Takes a hold off. The store may now have the lease for longer than the holds that are left.
    pub(crate) fn remove(&mut self, at: usize) -> Hold {
        let hold = self.holds.remove(at);
        self.outlasts |= !self.holds.is_empty() && hold.end > self.needed_until();
        self.keep_for_holds();
        hold
    }

    /// Adapts the lease that it is renewed for to the holds that live. A kept hold counts before any fixed one, as its flag is the
    /// highest bit.
    fn keep_for_holds(&mut self) {
        if let Some(longest) = self.holds.iter().map(|hold| hold.lease_ms).max() {
            self.keep_ms = longest & !Hold::KEPT;
        }
    }

    /// The lease that it is renewed for.
    pub(crate) fn keep(&self) -> Duration {
        Duration::from_millis(u64::from(self.keep_ms))
    }

    /// Other processes may hold it too, under the same owner.
    pub(crate) fn is_shared(&self) -> bool {
        !self.holder.is_generated()
    }

    /// A sending of its request was not answered.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled_until > StoreTime::default()
    }

    /// Lets a hold last until `end`, if it has not ended already. A kept one lasts as long as it may anyway.
    pub(crate) fn extend(&mut self, hold: HoldId, end: Moment, now: Moment) -> Option<()> {
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

    /// A renewal is sent at `now` and executed within `call_limit`: even if its answer is lost, the store may keep the lease for `term`.
    pub(crate) fn may_last(&mut self, now: Moment, call_limit: Duration, term: Duration) {
        self.over = self.over.max(lease::surely_over(now + call_limit, term));
        self.asked_until = self.asked_until.max(lease::deadline(now, term));
    }

    /// A renewal was not executed, and never will be.
    pub(crate) fn was_not_asked(&mut self, sent: Moment, term: Duration, before: Moment) {
        if self.asked_until == lease::deadline(sent, term) {
            self.asked_until = before;
        }
    }

    /// The store said how much is left of a renewal sent at `sent`. Answers may come out of order; a lease is never shortened.
    pub(crate) fn prolong(&mut self, now: Moment, sent: Moment, left: Duration) {
        self.deadline = self.deadline.max(lease::deadline(sent, left));
        self.over = self.over.max(lease::surely_over(now, left));
        self.renew_due = self.renew_due.max(lease::renew_due(sent, left.min(self.keep())));
    }

    /// How soon it must be renewed to be kept: its usual lease, or what is left of it if that is less.
    pub(crate) fn short_of(&self, now: Moment) -> Duration {
        self.keep().min(self.deadline.since(now))
    }

    /// Until when somebody here needs it.
    pub(crate) fn needed_until(&self) -> Moment {
        self.holds.iter().map(|hold| hold.end).max().unwrap_or_default()
    }

    /// Somebody here needs it for longer than the store has it.
    pub(crate) fn is_needed_longer(&self) -> bool {
        self.needed_until() > self.deadline
    }

    /// When it is renewed: somebody needs it for longer, or wants to know whether the store still has it. A check waits for the answer
    /// to the renewal under way, which may have left before the event that the hint is about.
    pub(crate) fn next_renewal(&self) -> Moment {
        let renew = if self.is_needed_longer() { self.renew_due } else { Moment::NEVER };
        if self.renewing { renew } else { renew.min(self.check_due) }
    }

    /// When it next needs attention by itself.
    pub(crate) fn due(&self) -> Moment {
        let ends = self.holds.iter().map(|hold| hold.end).min().unwrap_or(Moment::NEVER);
        self.next_renewal().min(ends).min(self.deadline)
    }

    /// A request to keep it for `term` from now.
    pub(crate) fn renewal(&self, client: ClientId, name: &Name, term: Duration) -> Renew {
        let id = RequestId { client, number: self.number };
        let lease = Lease { name: name.clone(), owner: self.holder.in_store(id), fence: self.block.first };
        Renew { lease, hold: Some(id), term, kept: self.kept }
    }

    /// The fence in use.
    pub(crate) fn fence(&self) -> Fence {
        self.block.first.plus(u64::from(self.handoffs))
    }

    /// Whether the next fence of the block may be handed out: the clock has gone on by as many units as fences were used.
    pub(crate) fn has_fence_for_handoff(&self, now: Moment) -> bool {
        let next = u64::from(self.handoffs) + 1;
        let paced = now >= self.granted + Duration::from_nanos(next * FENCE_UNIT_NANOS);
        self.handoffs + 1 < self.block.len && self.handoffs < MAX_HANDOFFS && paced
    }

    /// How long a guard has held it.
    pub(crate) fn held_for(&self, now: Moment, hold: &Hold) -> Duration {
        now.since(self.granted).saturating_sub(Duration::from_millis(u64::from(hold.since_ms)))
    }

    /// A release of it, to be sent until it is certain.
    pub(crate) fn pending_release(&self, client: ClientId, name: &Name, now: Moment, rejoin: bool) -> PendingRelease {
        let id = RequestId { client, number: self.number };
        let request = Release {
            // A late sending of the same request may have taken it again, under another fence.
            fence: (!self.is_unsettled()).then_some(self.block.first),
            last_used: Some(self.fence()).filter(|used| *used < self.block.last()),
            cooldown: self.at_least.since(now),
            rejoin,
            ..Release::hold(name.clone(), self.holder.in_store(id), id)
        };
        PendingRelease::new(self.number, request, self.over, self.is_unsettled().then_some(self.unsettled_until))
    }

    /// Its holder, as a store would describe it.
    pub(crate) fn describe(&self, client: ClientId, now: Moment, clock: &StoreClock) -> Holder {
        Holder {
            owner: self.holder.in_store(RequestId { client, number: self.number }),
            fence: Some(self.fence()),
            holds: u32::try_from(self.holds.len()).unwrap_or(u32::MAX),
            left: Some(self.deadline.since(now)),
            lease: Some(self.keep()),
            since: Some(clock.latest(now) - now.since(self.granted)),
            broken: false,
            about: self.about.clone(),
        }
    }
}
