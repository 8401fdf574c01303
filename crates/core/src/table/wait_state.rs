//! What it takes to ask the store for a name and to wait for it: there only while somebody here does.

use std::time::Duration;

use super::pending_release::PendingRelease;
use super::queue::{Queue, Ticket};
use super::types::{AcquireRequest, TicketId};
use crate::fence::Fence;
use crate::name::Names;
use crate::options::Term;
use crate::owner::RequestId;
use crate::port::{Acquire, Busy, Granted, Mode, Notification};
use crate::time::{ClockBounds, Moment, StoreTime};

/// Who wants a name here, and what is open with the store about it.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) pending: Option<PendingAcquire>,
    /// Releases that nobody waits for.
    pub(crate) releases: Vec<PendingRelease>,
    /// Tasks that wait here, first come, first served.
    pub(crate) queue: Queue,
    /// Other clients go first until then.
    pub(crate) yield_until: Moment,
    /// Turns in a row that this client had while others waited.
    pub(crate) turns: u32,
    pub(crate) watched: bool,
    /// The store may have this client on the name's list of waiters.
    pub(crate) enlisted: bool,
    /// A hint came while a call was under way.
    pub(crate) hinted: bool,
    /// A hint about a lease that is held here is not followed before then.
    pub(crate) check_from: Moment,
    /// Refusals or failures in a row, for growing pauses.
    pub(crate) attempts: u32,
    /// Who held the name when the store refused it last.
    pub(crate) busy: Option<Box<Busy>>,
    /// Calls failed, and none was answered since.
    pub(crate) unanswered: bool,
}

/// An acquire that is sent until it is answered: all sendings have one request id, so any of them may be the one that was granted.
#[derive(Debug, Clone)]
pub(crate) struct PendingAcquire {
    /// The request as it was sent last.
    pub(crate) call: Acquire,
    /// The task for which it was sent last.
    pub(crate) asker: TicketId,
    /// A sending whose answer was lost may be executed until then, by the store's clock.
    pub(crate) unsettled_until: Option<StoreTime>,
    /// By the client's own clock no such sending is executed after this, unless the network held it up for longer than any call lasts.
    pub(crate) executed_by: Moment,
    /// By then, a lease that such a sending was granted is over.
    pub(crate) over: Moment,
}

impl WaitState {
    /// The state of a name that nobody wants.
    pub(crate) const NOBODY: Self = Self {
        pending: None,
        releases: Vec::new(),
        queue: Queue::EMPTY,
        yield_until: Moment::from_nanos(0),
        turns: 0,
        watched: false,
        enlisted: false,
        hinted: false,
        check_from: Moment::from_nanos(0),
        attempts: 0,
        busy: None,
        unanswered: false,
    };

    /// The task for which the store is asked: the first in line, but a group that asks goes on until its call is settled.
    pub(crate) fn asker(&self) -> Option<(TicketId, &Ticket)> {
        let group = self.pending.as_ref().filter(|pending| pending.is_group());
        let asking = group.and_then(|pending| Some((pending.asker, self.queue.get(pending.asker)?)));
        asking.or_else(|| self.queue.head())
    }

    /// The task that takes a grant: the one that asked or, if it has gone, the first in line that can use it.
    pub(crate) fn taker(&self, pending: &PendingAcquire, grants: &[Granted]) -> Option<(TicketId, &Ticket)> {
        if let Some(ticket) = self.queue.get(pending.asker) {
            return Some((pending.asker, ticket));
        }
        let (id, ticket) = self.queue.head()?;
        let alike = ticket.request.names == pending.call.names && grants.len() == 1 && pending.fits(&ticket.request);
        let long_enough = match ticket.request.options.term {
            Term::Kept(_) => true,
            Term::Fixed(term) => grants[0].left >= term,
        };
        (alike && long_enough).then_some((id, ticket))
    }

    /// A group asks, and its task has gone.
    pub(crate) fn is_group_gone(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_group() && !self.queue.contains(pending.asker))
    }

    /// The store refused the name: its answer is remembered.
    pub(crate) fn refused(&mut self, busy: Busy) {
        self.watched |= matches!(busy.notification, Notification::Coming | Notification::Sure);
        self.busy = Some(Box::new(busy));
    }

    /// The store does not answer the first in line, and never did: the patience of the tasks behind it begins before it is their turn.
    pub(crate) fn begin_patience(&mut self, now: Moment, asker: Option<TicketId>, usual: Duration) {
        let answered = |id| self.queue.get(id).is_some_and(|ticket| ticket.patience == Some(Moment::NEVER));
        if asker.is_some_and(answered) {
            return;
        }
        self.unanswered = true;
        for (_, ticket) in self.queue.iter_mut().filter(|(id, _)| Some(*id) != asker) {
            ticket.patience.get_or_insert_with(|| ticket.request.patience(now, usual));
        }
    }

    /// Nobody waits, nothing is open with the store, and it is not another client's turn.
    pub(crate) fn is_unused(&self, now: Moment) -> bool {
        self.pending.is_none() && self.releases.is_empty() && self.queue.is_empty() && self.yield_until <= now
    }

    /// Nothing is lost by forgetting it.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.pending.is_none()
            && self.releases.is_empty()
            && self.queue.is_empty()
            && self.yield_until <= now
            && self.check_from <= now
            && self.turns == 0
            && !self.watched
            && !self.enlisted
    }
}

impl PendingAcquire {
    /// Begins to ask for the lock of this task. Fields that change with each sending are filled in then.
    pub(crate) fn new(now: Moment, id: RequestId, asker: TicketId, request: &AcquireRequest) -> Self {
        let call = Acquire {
            names: request.names.clone(),
            owner: request.owner.in_store(id),
            request: id,
            mode: Mode::Exclusive,
            lease: request.options.lease(),
            block: 1,
            seen: Fence::NONE,
            clock: ClockBounds::default(),
            not_after: StoreTime::NEVER,
            enlist: false,
            kept: request.options.ends_with_process(),
            // `Acquire::new` would allocate one.
            about: request.about.clone(),
        };
        Self { call, asker, unsettled_until: None, executed_by: now, over: now }
    }

    pub(crate) fn number(&self) -> u64 {
        self.call.request.number
    }

    /// Whether several names are asked for together.
    pub(crate) fn is_group(&self) -> bool {
        matches!(self.call.names, Names::Many(_))
    }

    /// Whether a grant of it can be taken by this request.
    pub(crate) fn fits(&self, request: &AcquireRequest) -> bool {
        self.call.names == request.names
            && self.call.owner == request.owner.in_store(self.call.request)
            && self.call.kept == request.options.ends_with_process()
    }
}
