//! One name in the table: who holds it here, who waits for it here, and what is being asked of the store.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::pending_release::PendingRelease;
use super::queue::Queue;
use super::types::{AcquireRequest, Grant, HoldId, How, TicketId};
use crate::fence::{Block, FENCE_UNIT_NANOS, Fence};
use crate::lease::{self, Lease};
use crate::name::{Name, Names};
use crate::options::{MAX_HANDOFFS, Options, Term};
use crate::owner::{ClientId, Owner, RequestId, StoreOwner};
use crate::port::{About, Busy, Holder, Notification, Release, Renew};
use crate::time::{Moment, StoreClock, StoreTime};

/// A name in use. It leaves the table when nobody holds it, nobody wants it and nothing is open with the store.
///
/// A lock that is just held needs little: what it takes to ask for it and to wait for it is there only while somebody does.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) held: Option<Box<Held>>,
    /// The timer that is set for this name.
    pub(crate) timer: Timer,
    /// The largest fence of this name that was seen since it is in the table.
    pub(crate) seen: Fence,
    /// None where the name is just held.
    pub(crate) wait: Option<Box<WaitState>>,
}

/// Who wants a name here, and what is open with the store about it.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) phase: Phase,
    pub(crate) pending: Option<PendingAcquire>,
    /// Releases that nobody waits for.
    pub(crate) releases: Vec<PendingRelease>,
    /// Who waits here, first come first served.
    pub(crate) queue: Queue,
    /// How many of the queue could take a lease that is passed on.
    pub(crate) handoff_waiters: u32,
    /// Others go first until then.
    pub(crate) yield_until: Moment,
    /// Turns in a row that this client had while others waited.
    pub(crate) turns: u32,
    pub(crate) watched: bool,
    /// The store may have this client on the name's list of waiters.
    pub(crate) enlisted: bool,
    /// A hint came while a call was under way.
    pub(crate) hinted: bool,
    /// A hint about what is held here is not followed before then.
    pub(crate) check_from: Moment,
    /// Refusals or failures in a row, for growing pauses.
    pub(crate) attempts: u32,
    /// Who held it when the store refused it last.
    pub(crate) busy: Option<Box<Busy>>,
    /// Calls failed, and none was answered since.
    pub(crate) unanswered: bool,
}

/// What stands where nobody wants a name.
static NOBODY: WaitState = WaitState::NOBODY;

impl WaitState {
    const NOBODY: Self = Self {
        phase: Phase::Idle,
        pending: None,
        releases: Vec::new(),
        queue: Queue::EMPTY,
        handoff_waiters: 0,
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

    pub(crate) fn enqueue(&mut self, id: TicketId, ticket: Ticket) {
        self.handoff_waiters += u32::from(ticket.takes_handoff());
        self.queue.insert(id, ticket);
    }

    pub(crate) fn dequeue(&mut self, id: TicketId) -> Option<Ticket> {
        let ticket = self.queue.remove(id)?;
        self.handoff_waiters -= u32::from(ticket.takes_handoff());
        Some(ticket)
    }

    /// The store refused it: what is known of it from now on.
    pub(crate) fn refused(&mut self, busy: Busy) {
        self.watched |= matches!(busy.notification, Notification::Coming | Notification::Sure);
        self.busy = Some(Box::new(busy));
    }

    /// The store does not answer the first in line, and never did: the patience of those behind it begins, though it is not their turn.
    pub(crate) fn begin_patience(&mut self, now: Moment, asker: Option<TicketId>, usual: Duration) {
        let heard = |id| self.queue.get(id).is_some_and(|ticket| ticket.patience == Some(Moment::NEVER));
        if asker.is_some_and(heard) {
            return;
        }
        self.unanswered = true;
        for (_, ticket) in self.queue.iter_mut().filter(|(id, _)| Some(*id) != asker) {
            ticket.patience.get_or_insert_with(|| ticket.want.patience(now, usual));
        }
    }

    pub(crate) fn head(&self) -> Option<(TicketId, &Ticket)> {
        self.queue.head()
    }

    /// For whom the store is asked: the first in line, but a group that asks goes on until it is settled.
    pub(crate) fn asker(&self) -> Option<(TicketId, &Ticket)> {
        let group = self.pending.as_ref().filter(|pending| pending.is_group());
        let asking = group.and_then(|pending| Some((pending.asker, self.queue.get(pending.asker)?)));
        asking.or_else(|| self.head())
    }

    /// Nothing is lost by forgetting it.
    fn is_over(&self, now: Moment) -> bool {
        self.phase.is_idle()
            && self.pending.is_none()
            && self.releases.is_empty()
            && self.queue.is_empty()
            && self.yield_until <= now
            && self.check_from <= now
            && self.turns == 0
            && !self.watched
            && !self.enlisted
    }
}

/// When a timer rings; never, where none is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timer(pub(crate) Moment);

impl Default for Timer {
    fn default() -> Self {
        Self(Moment::NEVER)
    }
}

/// What is going on between this name and the store, while nobody here holds it.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    /// An acquire is on its way.
    Acquiring,
    /// A subscription is on its way.
    Subscribing,
    /// The head of the queue sleeps until then, or until a hint.
    Sleeping(Moment),
    /// A group asks for this name together with others.
    Reserved(TicketId),
    /// Nobody wants what may have been granted: it is released first.
    Withdrawing(Box<PendingRelease>),
}

impl Phase {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// An acquire is on its way.
    pub(crate) fn is_acquiring(&self) -> bool {
        matches!(self, Self::Acquiring)
    }

    /// Reserved for this group.
    pub(crate) fn is_reserved_for(&self, group: TicketId) -> bool {
        matches!(self, Self::Reserved(id) if *id == group)
    }
}

/// Asking for a name until it is granted: all its sendings bear one request id, so that any of them may be the one that was granted.
#[derive(Debug)]
pub(crate) struct PendingAcquire {
    pub(crate) number: u64,
    pub(crate) owner: StoreOwner,
    pub(crate) asker: TicketId,
    pub(crate) names: Names,
    /// The store may end it with this process.
    pub(crate) kept: bool,
    /// A sending whose answer was lost may be executed until then, by the store's clock.
    pub(crate) unsettled_until: Option<StoreTime>,
    /// By our own clock no such sending is executed after this, unless the network held it up for longer than any call lasts.
    pub(crate) executed_by: Moment,
    /// And here, what it may have granted is over.
    pub(crate) over: Moment,
}

/// A task that waits for a name.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) want: AcquireRequest,
    /// Errors are final from then on, unless the store has answered once. None before it is this task's turn to ask, or the store does
    /// not answer the one before it.
    pub(crate) patience: Option<Moment>,
}

/// A lease that this client has of a name.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) number: u64,
    /// Who holds it here; where explicit, in the store too.
    pub(crate) holder: Owner,
    pub(crate) block: Block,
    /// How many fences of the block were used beyond the first.
    pub(crate) handoffs: u32,
    /// The lease that it is renewed for, in nanoseconds: half the room of a duration, in what every held lock needs. It follows the
    /// longest kept hold that lives, or without one the longest fixed one.
    pub(crate) keep_nanos: u64,
    pub(crate) granted: Moment,
    /// Passed on no later than this.
    pub(crate) handoff_until: Moment,
    pub(crate) deadline: Moment,
    /// What the deadline would be if every renewal that may have been executed were answered.
    pub(crate) asked_until: Moment,
    /// The store's own lease is surely over then.
    pub(crate) over: Moment,
    /// A sending of its request whose answer was lost may be executed until then, by the store's clock; long past, where there is none.
    pub(crate) unsettled_until: StoreTime,
    pub(crate) renew_due: Moment,
    pub(crate) renewing: bool,
    /// A hint came: the store is asked then whether it still has the lease, though nobody needs it for longer.
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
    /// It is on its way back.
    pub(crate) releasing: Option<Box<PendingRelease>>,
}

/// One guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    /// Its own end, though the lease go on.
    pub(crate) end: Moment,
    /// How long after the grant of its lease it began. Milliseconds in few bytes: there is one of these for every lock that is held.
    since_ms: u32,
    /// The lease that it asked for, in milliseconds, with [`Hold::KEPT`].
    lease: u32,
}

impl Hold {
    /// Renewed as long as it lives, up to its end.
    const KEPT: u32 = 1 << 31;

    pub(crate) fn is_kept(self) -> bool {
        self.lease & Self::KEPT != 0
    }

    fn lease(self) -> Duration {
        Duration::from_millis(u64::from(self.lease & !Self::KEPT))
    }
}

/// Milliseconds, rounded up, no more than fit beside a flag.
fn whole_ms(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).min(!Hold::KEPT)
}

impl Entry {
    /// Who wants the name and what is open about it. Where nobody does and nothing is, that reads as such.
    pub(crate) fn wait(&self) -> &WaitState {
        self.wait.as_deref().unwrap_or(&NOBODY)
    }

    /// The same to change it; it is made where it is not there.
    pub(crate) fn wait_mut(&mut self) -> &mut WaitState {
        self.wait.get_or_insert_with(|| Box::new(WaitState::NOBODY))
    }

    /// Whether something is going on with the store for this task, which is the first in line.
    pub(crate) fn is_asker(&self, id: TicketId) -> bool {
        self.wait().head().is_some_and(|(head, _)| head == id) && !matches!(self.wait().phase, Phase::Idle)
    }

    /// What the store may still have is over so much later.
    pub(crate) fn last_longer(&mut self, span: Duration) {
        if let Some(held) = &mut self.held {
            held.over = held.over + span;
            held.releasing.iter_mut().for_each(|release| release.last_longer(span));
        }
        let Some(wait) = &mut self.wait else { return };
        if let Some(pending) = &mut wait.pending {
            pending.over = pending.over + span;
            pending.executed_by = pending.executed_by + span;
        }
        if let Phase::Withdrawing(release) = &mut wait.phase {
            release.last_longer(span);
        }
        wait.releases.iter_mut().for_each(|release| release.last_longer(span));
    }

    /// A new turn begins for those who want the name, if anybody does.
    pub(crate) fn reset_turns(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.attempts = 0;
            wait.turns = 0;
        }
    }

    /// Somebody here wants it, or something is open with the store about it. Else it is just held.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wait.is_some()
    }

    /// Forgets what it took to get a name that is now just held.
    pub(crate) fn tidy(&mut self, now: Moment) {
        if self.wait.as_ref().is_some_and(|wait| wait.is_over(now)) {
            self.wait = None;
        }
    }

    /// Nobody holds it, nobody wants it, nothing is open with the store.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_none()
            && self.wait().phase.is_idle()
            && self.wait().queue.is_empty()
            && self.wait().releases.is_empty()
    }

    /// Nobody holds it and nothing is going on with the store, but somebody waits, or may have been granted it.
    pub(crate) fn is_undecided(&self) -> bool {
        let Some(wait) = &self.wait else { return false };
        self.held.is_none() && wait.phase.is_idle() && (!wait.queue.is_empty() || wait.pending.is_some())
    }

    /// Nobody holds it and nothing is under way to the store, though tasks may sleep in line.
    pub(crate) fn only_waits(&self) -> bool {
        self.held.is_none()
            && self.wait().releases.is_empty()
            && matches!(self.wait().phase, Phase::Idle | Phase::Sleeping(_))
    }

    /// Whether a task has nothing to do but to wait behind others: another task here holds it validly, or asks for it.
    pub(crate) fn must_queue(&self, now: Moment, id: TicketId, want: &AcquireRequest) -> bool {
        if self.wait().head().is_none_or(|(head, _)| head > id) && matches!(self.wait().phase, Phase::Sleeping(_)) {
            return false;
        }
        match self.held.as_deref() {
            Some(held) if held.releasing.is_none() => now < held.deadline && held.holder != want.owner && !want.once,
            Some(_) => true,
            None => !self.wait().phase.is_idle(),
        }
    }

    /// A lease that is held by a guard and not on its way back.
    pub(crate) fn live(&mut self) -> Option<&mut Held> {
        self.held.as_deref_mut().filter(|held| held.releasing.is_none())
    }

    /// Whether the first in line here can have the lease without the store.
    pub(crate) fn can_hand_off(&self, now: Moment) -> bool {
        let (Some(held), Some((_, next))) = (self.held.as_deref(), self.wait().head()) else { return false };
        next.takes_handoff()
            && next.want.options.term.lease() <= held.keep()
            && now < held.handoff_until
            && now >= held.at_least
            && now < held.deadline
            && held.has_fence_for_handoff(now)
    }

    /// Hands the lease to the first in line with the next fence of the block.
    pub(crate) fn hand_off(&mut self, now: Moment, hold: HoldId) -> Option<(TicketId, Grant)> {
        let id = self.wait().head()?.0;
        let ticket = self.wait_mut().dequeue(id)?;
        let held = self.held.as_deref_mut()?;
        held.handoffs += 1;
        let end = hold_end(now, now, held, &ticket.want);
        let term = ticket.want.options.term;
        // It may be limited to less than what the store has it for.
        held.outlasts |= end < held.deadline;
        held.holder = ticket.want.owner;
        held.about = ticket.want.about;
        Some((id, held.enter(now, hold, end, term, How::HandedOff)))
    }

    /// Where a live guard's hold stands among the holds of the lease.
    pub(crate) fn position(&self, hold: HoldId) -> Option<usize> {
        let held = self.held.as_deref().filter(|held| held.releasing.is_none())?;
        held.holds.iter().position(|h| h.id == hold)
    }

    /// When this name next needs attention by itself.
    pub(crate) fn due(&self) -> Moment {
        let held = self.held.as_deref().map_or(Moment::NEVER, Held::due);
        let withdrawal = match &self.wait().phase {
            Phase::Withdrawing(release) => release.due(),
            _ => Moment::NEVER,
        };
        let leaving = if self.is_idle() { self.wait().yield_until } else { Moment::NEVER };
        let pausing = self.wait().releases.iter().filter(|release| release.is_pausing());
        let releases = pausing.map(PendingRelease::due).min().unwrap_or(Moment::NEVER);
        held.min(withdrawal).min(leaving).min(releases)
    }
}

impl Ticket {
    /// A lease can be passed to it in memory: kept, under an owner of this client's making.
    pub(crate) fn takes_handoff(&self) -> bool {
        let group = self.want.names.as_slice().len() > 1;
        !group && allows_handoff(&self.want.owner, &self.want.options)
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Only kept leases of generated owners are passed on, and none that must stay taken for a while.
pub(crate) fn allows_handoff(owner: &Owner, options: &Options) -> bool {
    owner.is_generated()
        && matches!(options.term, Term::Kept(_))
        && !options.budget.is_zero()
        && options.at_least.is_zero()
}

/// When a guard's hold ends by itself, though the lease go on.
pub(crate) fn hold_end(now: Moment, sent: Moment, held: &Held, want: &AcquireRequest) -> Moment {
    match (want.options.term, want.options.max_hold) {
        (Term::Kept(_), None) => Moment::NEVER,
        (Term::Kept(_), Some(max_hold)) => now + max_hold,
        (Term::Fixed(term), _) => lease::deadline(sent, term).min(held.deadline),
    }
}

impl PendingAcquire {
    /// Whether several names are asked for together.
    pub(crate) fn is_group(&self) -> bool {
        matches!(self.names, Names::Many(_))
    }

    /// Whether what this series may be granted can be taken by this ticket.
    pub(crate) fn fits(&self, want: &AcquireRequest) -> bool {
        let owner = match (&self.owner, want.owner.as_explicit()) {
            (StoreOwner::Private(_), None) => true,
            (StoreOwner::Shared(mine), Some(id)) => mine == id,
            _ => false,
        };
        owner && self.names == want.names && self.kept == want.options.ends_with_process()
    }
}

impl Held {
    /// The lease that it is renewed for.
    pub(crate) fn keep(&self) -> Duration {
        Duration::from_nanos(self.keep_nanos)
    }

    /// Other processes may hold it too, under the same owner.
    pub(crate) fn is_shared(&self) -> bool {
        !self.holder.is_generated()
    }

    /// A sending of its request was not answered.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled_until > StoreTime::default()
    }

    /// Adapts the lease that it is renewed for to the holds that live.
    fn keep_for_holds(&mut self) {
        let any_kept = self.holds.iter().any(|hold| hold.is_kept());
        let counts = self.holds.iter().filter(|hold| hold.is_kept() == any_kept);
        if let Some(longest) = counts.map(|hold| hold.lease()).max() {
            self.keep_nanos = nanos(longest);
        }
    }

    /// Takes a hold off. The store may now have the lease for longer than the holds that are left.
    pub(crate) fn remove(&mut self, at: usize) -> Hold {
        let hold = self.holds.remove(at);
        self.outlasts |= !self.holds.is_empty() && hold.end > self.needed_until();
        self.keep_for_holds();
        hold
    }

    /// A request to keep it for `term` from now.
    pub(crate) fn renewal(&self, client: ClientId, name: &Name, term: Duration) -> Renew {
        let lease = Lease { name: name.clone(), owner: self.owner(client), fence: self.block.first };
        Renew { lease, hold: Some(RequestId { client, number: self.number }), term, kept: self.kept }
    }

    /// The owner as the store keeps it.
    pub(crate) fn owner(&self, client: ClientId) -> StoreOwner {
        match self.holder.as_explicit() {
            Some(id) => StoreOwner::Shared(id.clone()),
            None => StoreOwner::Private(RequestId { client, number: self.number }),
        }
    }

    /// The fence in use.
    pub(crate) fn fence(&self) -> Fence {
        self.block.first.plus(u64::from(self.handoffs))
    }

    /// How long a guard has held it.
    pub(crate) fn held_for(&self, now: Moment, hold: &Hold) -> Duration {
        now.since(self.granted).saturating_sub(Duration::from_millis(u64::from(hold.since_ms)))
    }

    /// Until when somebody here needs it.
    pub(crate) fn needed_until(&self) -> Moment {
        self.holds.iter().map(|hold| hold.end).max().unwrap_or_default()
    }

    /// Somebody here needs it for longer than the store has it.
    pub(crate) fn is_needed_longer(&self) -> bool {
        self.needed_until() > self.deadline
    }

    /// When it is renewed: somebody needs it for longer, or wants to know whether the store still has it. A check waits for the answer to
    /// the renewal under way, which may have left before whatever the hint tells of.
    pub(crate) fn next_renewal(&self) -> Moment {
        let renew = if self.is_needed_longer() { self.renew_due } else { Moment::NEVER };
        if self.renewing { renew } else { renew.min(self.check_due) }
    }

    fn due(&self) -> Moment {
        if let Some(release) = &self.releasing {
            return release.due();
        }
        let ends = self.holds.iter().map(|hold| hold.end).min().unwrap_or(Moment::NEVER);
        self.next_renewal().min(ends).min(self.deadline)
    }

    /// Adds a guard's hold with its own end.
    pub(crate) fn enter(&mut self, now: Moment, id: HoldId, end: Moment, term: Term, how: How) -> Grant {
        let kept = if let Term::Kept(_) = term { Hold::KEPT } else { 0 };
        let since_ms = u32::try_from(now.since(self.granted).as_millis()).unwrap_or(u32::MAX);
        self.holds.push(Hold { id, end, since_ms, lease: whole_ms(term.lease()) | kept });
        self.keep_for_holds();
        let holds = u32::try_from(self.holds.len()).unwrap_or(u32::MAX);
        Grant { hold: id, fence: self.fence(), holds, how, entered: how == How::Reentered }
    }

    /// Whether the next fence of the block may be handed out: the clock has gone on by as many units as fences were used.
    pub(crate) fn has_fence_for_handoff(&self, now: Moment) -> bool {
        let next = u64::from(self.handoffs) + 1;
        let paced = now >= self.granted + Duration::from_nanos(next * FENCE_UNIT_NANOS);
        self.handoffs + 1 < self.block.len && self.handoffs < MAX_HANDOFFS && paced
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
            ..Release::hold(name.clone(), self.owner(client), id)
        };
        PendingRelease::new(self.number, request, self.over, self.is_unsettled().then_some(self.unsettled_until))
    }

    pub(crate) fn describe(&self, client: ClientId, now: Moment, clock: &StoreClock) -> Holder {
        Holder {
            owner: self.owner(client),
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
