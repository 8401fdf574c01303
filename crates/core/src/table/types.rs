//! What goes into the table and what comes out of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::error::Error;
use crate::fence::Fence;
use crate::name::{Name, Names};
use crate::options::{Options, Term};
use crate::owner::{ClientId, Owner};
use crate::port::{About, Acquire, Acquired, Busy, Release, Released, Renew, Renewed, Reply};
use crate::time::{Moment, StoreClock, StoreTime};

/// One task that wants a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TicketId(pub(crate) u64);

/// One guard: a hold on a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HoldId(pub(crate) u64);

impl HoldId {
    /// The number behind it, for people and for matching events.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Numbers for requests, tickets and holds, each given out once.
#[derive(Debug, Default)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// The configuration of a table.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this client is.
    pub client: ClientId,
    /// Whether the store sends hints.
    pub hints: bool,
    /// Whether nothing that could lose hints stands between the store and this client: then it believes [`Notification::Sure`](crate::port::Notification).
    pub unlayered: bool,
    /// An acquire is not executed later than this after its sending.
    pub call_limit: Duration,
    /// How long a waiting acquire goes on trying while the store has not answered it once.
    pub patience: Duration,
    /// The estimate of the store's clock.
    pub clock: StoreClock,
    /// Seed for jitter and hashing.
    pub seed: u64,
}

/// A request of a task for a lock.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// One name, or several together.
    pub names: Names,
    /// The owner that takes it.
    pub owner: Owner,
    /// The options of the lock.
    pub options: Arc<Options>,
    /// The label, host and process, for `inspect` and `list`.
    pub about: Arc<About>,
    /// Ask once; do not wait.
    pub once: bool,
    /// When to give up while the store does not answer; without it, when the usual patience ends.
    pub until: Option<Moment>,
}

impl AcquireRequest {
    /// Only kept leases of generated owners are handed off, and none that must stay taken for a while.
    pub(crate) fn allows_handoff(&self) -> bool {
        let options = &self.options;
        self.owner.is_generated()
            && matches!(options.term, Term::Kept(_))
            && !options.budget.is_zero()
            && options.at_least.is_zero()
    }

    /// Until when it goes on trying while the store has not answered it once.
    pub(crate) fn patience(&self, now: Moment, usual: Duration) -> Moment {
        self.until.unwrap_or(now + usual)
    }
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A task wants a lock.
    Acquire(TicketId, AcquireRequest),
    /// A task no longer wants it.
    Cancel(TicketId, Name),
    /// The sleep of a task ended.
    Woke(TicketId, Name),
    /// A guard gives its hold back.
    Release(HoldId, Name),
    /// A guard wants its lease to last for this long from now.
    Extend(TicketId, HoldId, Name, Duration),
    /// A call to the store ended.
    Answer(Context, Answer),
    /// A call was never sent: the task that was to send it has gone.
    Unsent(Context),
    /// A name may be free.
    Hint(Name),
    /// Any name may be free.
    HintAll,
    /// A name that is held here may have been taken away.
    HintHeld(Name),
    /// A timer is due.
    Tick,
    /// The wall clock jumped ahead of the client's own clock by this much: the client's clock may have stood still.
    Jumped(Duration),
    /// The client closes: no more locks, and all are given back.
    Close,
}

/// How a call ended.
#[derive(Debug)]
pub enum Answer {
    /// Of an acquire.
    Acquire(Reply<Acquired>),
    /// Of a release.
    Release(Reply<Released>),
    /// Of a renewal.
    Renew(Reply<Vec<Renewed>>),
    /// Of a subscription.
    Watch(Result<(), Error>),
}

/// A call to the store, and the context of its answer.
#[derive(Debug)]
pub struct Sending {
    /// To be handed back with the answer.
    pub context: Context,
    /// What to ask of the store.
    pub request: Request,
}

/// A request to the store.
#[derive(Clone, Debug)]
pub enum Request {
    /// Take.
    Acquire(Acquire),
    /// Give back.
    Release(Release),
    /// Keep.
    Renew(Vec<Renew>),
    /// Subscribe.
    Watch(Name),
}

/// What the table needs again when a call is answered.
#[derive(Debug)]
pub struct Context {
    /// Just before it was sent, in the table's time.
    pub(crate) sent: Moment,
    /// What the client's clock had missed by then.
    pub(crate) missed: Duration,
    pub(crate) what: CallKind,
}

impl Sending {
    pub(crate) fn new(now: Moment, what: CallKind, request: Request) -> Box<Self> {
        Box::new(Self { context: Context { sent: now, missed: Duration::ZERO, what }, request })
    }
}

impl Context {
    /// Just before the call was sent, by the client's clock.
    pub fn sent(&self) -> Moment {
        self.sent - self.missed
    }
}

#[derive(Debug)]
pub(crate) enum CallKind {
    Acquire {
        name: Name,
        number: u64,
        not_after: StoreTime,
    },
    Watch {
        name: Name,
    },
    Release {
        name: Name,
        number: u64,
        hold: Option<HoldId>,
    },
    Renew(Vec<(Name, u64)>),
    Extend {
        name: Name,
        number: u64,
        ticket: TicketId,
        then: AfterRenewal,
        /// Until when the lease was asked for before.
        before: Moment,
    },
}

#[derive(Debug)]
pub(crate) enum AfterRenewal {
    Enter(Box<AcquireRequest>),
    Extend(HoldId, Duration),
}

impl AfterRenewal {
    /// How long the lease is to last.
    pub(crate) fn term(&self) -> Duration {
        match self {
            Self::Enter(request) => request.options.term.lease(),
            Self::Extend(_, term) => *term,
        }
    }
}

/// An effect for the shell to carry out.
#[derive(Debug)]
pub enum Output {
    /// For the task behind a ticket.
    To(TicketId, TaskEffect),
    /// The release of a hold ended.
    Released(HoldId, Result<Released, Error>),
    /// A hold is lost: its guard must learn it at once.
    Lost(HoldId, Name, Arc<LossReport>),
    /// A lease was not renewed. It lasts for this much longer.
    RenewalFailed(Name, FailedRenewal, Duration),
    /// A renewal is sent again, as its answer is late. The lease lasts for this much longer.
    RenewalLate(Name, Duration),
    /// Call the store on behalf of a guard that is being released.
    ForHold(HoldId, Box<Sending>),
    /// Call the store; nobody waits for it.
    Background(Box<Sending>),
    /// End the subscription to a name and leave its list of waiters.
    Unwatch(Name),
}

/// An effect on one task.
#[derive(Debug)]
pub enum TaskEffect {
    /// It has the lock: one grant a name, in order.
    Granted(SmallVec<[Grant; 1]>),
    /// It asked once, and another holds it.
    Busy(Box<Busy>),
    /// It cannot have it.
    Failed(Error),
    /// Call the store, and bring the answer back.
    Call(Box<Sending>),
    /// Sleep until then, or until the next effect.
    Sleep(Moment),
    /// The lease was lengthened.
    Extended,
}

/// One name granted to one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The hold, for releasing it.
    pub hold: HoldId,
    /// The fence of this grant.
    pub fence: Fence,
    /// How many holds this client now has of it.
    pub holds: u32,
    /// The way it came.
    pub how: How,
    /// The owner had it already: in this client, or in another if the store counts its holds.
    pub entered: bool,
}

/// How a grant came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// From the store.
    Asked,
    /// From another task of this client, in memory.
    HandedOff,
    /// The owner had it already.
    Reentered,
}

/// Why a hold was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Its time ended: it was not renewed in time, was fixed, or reached `max_hold`.
    TimeEnded,
    /// The store no longer has it.
    Gone,
    /// An operator took it away. Nobody else can have it before the deadline that it had.
    Broken,
    /// The client was closed.
    Closed,
}

impl Loss {
    /// How grave it is for a holder that went on: if several locks are lost at once, the gravest loss is reported. Another may hold a
    /// lock that the store no longer has; a lock that was broken or ended in time was free for nobody else before its deadline.
    pub fn gravity(self) -> u8 {
        match self {
            Self::Gone => 3,
            Self::Broken => 2,
            Self::TimeEnded => 1,
            Self::Closed => 0,
        }
    }
}

impl fmt::Display for Loss {
    /// For people, to follow "the lock was lost: ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeEnded => "its time ended",
            Self::Gone => "the store no longer had it",
            Self::Broken => "an operator took it away",
            Self::Closed => "the client was closed",
        })
    }
}

/// How a hold was lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LossReport {
    /// Why.
    pub loss: Loss,
    /// When, by the client's clock.
    pub at: Moment,
    /// How long its guard had held it.
    pub held: Duration,
    /// How long nobody else can have the lock yet, after [`Loss::Broken`]; else zero.
    pub left: Duration,
    /// The last renewals that failed, the newest last; none if the last one succeeded.
    pub renewals: Arc<[FailedRenewal]>,
}

/// A renewal that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedRenewal {
    /// When that was known, by the client's clock.
    pub at: Moment,
    /// How long after its sending.
    pub took: Duration,
    /// Why.
    pub error: Arc<Error>,
}

/// The effects of a step.
pub type Outputs = SmallVec<[Output; 2]>;
