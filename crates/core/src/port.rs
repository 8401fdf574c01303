//! The port: what a store does. Small, object-safe, and the same for every engine.
//!
//! A store decides atomically who holds a name. It never waits for a lock: waiting is the client's business, helped by hints.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use crate::capability::Capability;
use crate::error::Error;
use crate::fence::{Block, Fence};
use crate::identity::Identity;
use crate::lease::Lease;
use crate::name::{Name, Names};
use crate::owner::{ClientId, RequestId, StoreOwner};
use crate::time::{ClockBounds, StoreTime};

/// How a name is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// As one of at most `of` holders.
    Permit {
        /// How many may hold it at a time.
        of: u32,
    },
}

/// A holder's host, process and label, for people: kept beside the lock, and decides nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The holder's machine.
    pub host: Option<Arc<str>>,
    /// The holder's process.
    pub pid: Option<u32>,
    /// The holder's own word.
    pub label: Option<Arc<str>>,
}

/// A request to take one or several names, all or none.
///
/// Of a shared owner that holds all the names already it is a re-entry of each, with the fences that they have. Several names of which
/// the owner holds only some are refused ([`ErrorKind::AlreadyHeld`](crate::error::ErrorKind::AlreadyHeld)): it would wait for itself.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// What to take.
    pub names: Names,
    /// For whom.
    pub owner: StoreOwner,
    /// Sent again under the same id, it grants once and answers the same block.
    pub request: RequestId,
    /// How.
    pub mode: Mode,
    /// For how long.
    pub lease: Duration,
    /// How many fences to reserve; the store may give fewer, never none.
    pub block: u32,
    /// The largest fence of these names that this client has seen.
    pub seen: Fence,
    /// Where this client believes the store's clock to be. One that shows less than the floor was set back, and fences do not follow it.
    pub clock: ClockBounds,
    /// Not to be executed after this, by the store's own clock: it may have sat in a dead socket.
    pub not_after: StoreTime,
    /// The client goes on to wait: put it on the list of waiters where it is busy.
    pub enlist: bool,
    /// The asking process renews it as long as it lives, and nobody uses it after that: a store that can be *certain* that the
    /// process is gone may end it then. Never set for a lock that is to outlive its process.
    pub kept: bool,
    /// The client's host, process and label, for people.
    pub about: Arc<About>,
}

impl Acquire {
    /// Takes names exclusively, with one fence each and no time limit for the call: set the other fields as needed.
    pub fn new(names: Names, owner: StoreOwner, request: RequestId, lease: Duration) -> Self {
        Self {
            names,
            owner,
            request,
            mode: Mode::Exclusive,
            lease,
            block: 1,
            seen: Fence::NONE,
            clock: ClockBounds::default(),
            not_after: StoreTime::NEVER,
            enlist: false,
            kept: false,
            about: Arc::default(),
        }
    }
}

/// One name granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The fences of this grant; of a re-entry, those of the grant it re-enters.
    pub block: Block,
    /// How many holds the owner now has of it in the store.
    pub holds: u32,
    /// How much of the lease is left as the store answers. For a grant made by an earlier sending of the same request, less than
    /// the whole: so a deadline counted from the sending of *this* call is never too late.
    pub left: Duration,
}

/// The holder of a name, as far as the store knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The owner as the store keeps it.
    pub owner: StoreOwner,
    /// The fence of the grant, where known.
    pub fence: Option<Fence>,
    /// How many holds it has.
    pub holds: u32,
    /// Time left; none where the key has no expiry.
    pub left: Option<Duration>,
    /// The lease it asked for, where known.
    pub lease: Option<Duration>,
    /// Since when, where known.
    pub since: Option<StoreTime>,
    /// Its right was ended by [`Break::AtLeaseEnd`], and its lease has not run out yet.
    pub broken: bool,
    /// Its host, process and label, for people.
    pub about: Arc<About>,
}

/// The result of an acquire.
#[derive(Clone, Debug)]
pub enum Acquired {
    /// Taken: one entry a name, in the order of the request.
    Granted(SmallVec<[Granted; 1]>),
    /// Held by another; nothing was taken.
    Busy(Box<Busy>),
    /// It came after its `not_after`; nothing was taken, and this sending of it never will be.
    TooLate,
}

/// Held by another.
#[derive(Clone, Debug)]
pub struct Busy {
    /// The first name that was held.
    pub name: Name,
    /// By whom, where known (nobody while a released lock lingers).
    pub holder: Option<Holder>,
    /// When it would be free if nobody renews it; none where it has no expiry.
    pub free_in: Option<Duration>,
    /// How the client hears that it may be free.
    pub notification: Notification,
}

/// How a client that was refused hears that a lock may be free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notification {
    /// After it has subscribed; it missed a release before that, so it asks again.
    #[default]
    WhenWatched,
    /// Already: a subscription of before covers this name, from the very step that refused. It counts as subscribed.
    Coming,
    /// As [`Notification::Coming`], and the store itself looks each second whether the name was given back: it finds what a lost hint did not
    /// tell. Believed only where nothing that could lose hints stands between the store and the client.
    Sure,
    /// Not at all: its holder is of a kind that tells nobody.
    Never,
}

/// An answer, and the store's clock as it was given.
#[derive(Clone, Debug)]
pub struct Answered<T> {
    /// The store's clock.
    pub at: StoreTime,
    /// What it said.
    pub result: T,
}

/// One lease to be renewed, and for how long from now.
#[derive(Clone, Debug)]
pub struct Renew {
    /// Which.
    pub lease: Lease,
    /// The hold of this request, so that those of other processes with the same owner end by themselves; none for every hold.
    pub hold: Option<RequestId>,
    /// For how long, from its execution. A renewal never shortens a lease.
    pub term: Duration,
    /// As [`Acquire::kept`]. False takes that back for good: it is needed beyond the process.
    pub kept: bool,
}

/// The result of a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// It holds, with so much left.
    Kept {
        /// Time left as the store answered.
        left: Duration,
    },
    /// The store does not have this lease. It was not made again.
    Lost,
    /// An operator ended the holder's right ([`Break::AtLeaseEnd`]). The store keeps everybody else out until the lease ends, so the
    /// deadline that the holder had before this renewal still stands.
    Broken,
    /// Too few servers of it answered to tell.
    Unknown,
}

/// Which hold a release gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseScope {
    /// The hold that this request took. Giving it back twice gives it back once.
    Hold(RequestId),
    /// Any one hold, counted once by this id of the release's own: for a client that does not know the request.
    One(RequestId),
    /// Every hold.
    All,
}

/// A request to give a lock back.
#[derive(Clone, Debug)]
pub struct Release {
    /// The client that releases, for the list of waiters.
    pub client: ClientId,
    /// Which name.
    pub name: Name,
    /// Whose.
    pub owner: StoreOwner,
    /// The fence of the grant; none when the answer to the acquire never came.
    pub fence: Option<Fence>,
    /// Which hold.
    pub scope: ReleaseScope,
    /// The largest fence of the block that was used, if some were not; the store takes back those above it.
    pub last_used: Option<Fence>,
    /// Keep others out for this long.
    pub cooldown: Duration,
    /// The client has more that wait: put it at the end of the list of waiters in the same step.
    pub rejoin: bool,
}

impl Release {
    /// Gives back the hold of one request, with any fence.
    pub fn hold(name: Name, owner: StoreOwner, id: RequestId) -> Self {
        Self {
            client: id.client,
            name,
            owner,
            fence: None,
            scope: ReleaseScope::Hold(id),
            last_used: None,
            cooldown: Duration::ZERO,
            rejoin: false,
        }
    }
}

/// The result of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// Free, or lingering.
    Released {
        /// How many other clients wait for it, where the store knows.
        waiters: Option<u32>,
    },
    /// The owner has this many holds left.
    StillHeld(u32),
    /// There was nothing of this lease to give back.
    NotHeld,
}

/// How a lock is taken away from its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// End the holder's right: renewals answer lost, and others may come when its lease has run out.
    AtLeaseEnd,
    /// Delete it at once. Two may act for a moment; fences decide.
    Now,
}

/// A request to take a lock away from its holder. `Break::Now.into()` is one without conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BreakOptions {
    /// At once, or when its lease ends.
    pub how: Break,
    /// Act only while the lock is held under this fence. A lock that is free or lingers is left alone.
    pub fence: Option<Fence>,
    /// Also delete a value that is not recognisably a lock.
    pub foreign: bool,
    /// Forget the name's last fence, so that the next one starts at the store's clock. It may be smaller than earlier ones: this
    /// repairs a record whose fence is far ahead of the clock.
    pub reset_fence: bool,
}

impl BreakOptions {
    /// Acts only while the lock is held under `fence`.
    #[must_use]
    pub fn fence(self, fence: Fence) -> Self {
        Self { fence: Some(fence), ..self }
    }

    /// Also deletes a value that is not recognisably a lock.
    #[must_use]
    pub fn foreign(self) -> Self {
        Self { foreign: true, ..self }
    }

    /// Forgets the name's last fence as well.
    #[must_use]
    pub fn reset_fence(self) -> Self {
        Self { reset_fence: true, ..self }
    }
}

impl From<Break> for BreakOptions {
    fn from(how: Break) -> Self {
        Self { how, fence: None, foreign: false, reset_fence: false }
    }
}

/// The result of a request to break a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// What the store knew of the name just before.
    pub was: Inspected,
    /// Why nothing was changed; none where the request was carried out.
    pub refused: Option<BreakRefusal>,
}

/// Why a lock was not broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BreakRefusal {
    /// It is held under another fence than [`BreakOptions::fence`], or nobody holds it and it lingers.
    OtherFence,
    /// The value at the name is not recognisably a lock, and [`BreakOptions::foreign`] is not set.
    Foreign,
}

/// What a store knows of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// The name.
    pub name: Name,
    /// Its holders, one row each; empty when it is free.
    pub holders: Vec<Holder>,
    /// Nobody holds it, and nobody may come yet.
    pub cooldown: Option<Cooldown>,
    /// Clients that wait, where the store knows.
    pub waiters: Option<u32>,
}

/// A lock that was given back and keeps others out for a while longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cooldown {
    /// For how long.
    pub left: Duration,
    /// The last holder, with no holds and nothing left of its lease, if known.
    pub last: Option<Holder>,
}

/// News that a lock may be free, or no longer its holder's. Never proof: after it, ask the store. A client that holds the lock
/// renews it at once, and so learns of a break; it does so at most ten times a second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// This name may be free.
    Name(Name),
    /// Hints may have been missed: everyone should ask again.
    All,
    /// An operator may have taken this name away from the client, which holds it: renew it now, and the answer tells.
    Held(Name),
}

/// Where a store puts its hints. It must not call back into the store.
pub type HintSink = Arc<dyn Fn(Hint) + Send + Sync>;

/// A call to a store under way: finished already, or to be awaited. A finished one costs no allocation.
///
/// Dropping it leaves the outcome unknown, unless the store says otherwise.
pub enum Call<T> {
    /// Finished.
    Done(Option<T>),
    /// Under way.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Call<T> {
    /// A finished call.
    pub fn done(value: T) -> Self {
        Self::Done(Some(value))
    }

    /// A call that is still under way.
    pub fn pending(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Pending(Box::pin(future))
    }
}

impl<T: Unpin> Future for Call<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Self::Done(value) => Poll::Ready(value.take().expect("a call is not polled after its end")),
            Self::Pending(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Call::Done",
            Self::Pending(_) => "Call::Pending",
        })
    }
}

/// The answer of a store, or why there is none.
pub type Reply<T> = Result<Answered<T>, Error>;

/// One engine endpoint that keeps lock state and decides atomically.
///
/// # Contract
///
/// - Every method is one atomic step at the store, or no step. A call that failed says in its error whether it was applied, not
///   applied, or unknown; a time-out is unknown. Calls have a time limit of the store's own, and always end.
/// - The returned call is independent of the handle: it may be moved to another task and finished there.
/// - A store never grants a name that a valid lease holds, never re-creates a lease by renewing it, and never touches another
///   lease when releasing.
///
/// # Wrappers
///
/// A layer implements this trait around another store. There are no default methods to forget: it names each method that it only
/// forwards in [`forward_store!`](crate::forward_store), and writes the others.
pub trait Store: Send + Sync + 'static {
    /// A name for people, without credentials.
    fn label(&self) -> &Arc<str>;

    /// What this store can do and promise.
    fn capability(&self) -> Capability;

    /// Which server this is, independent of its URL. The server is asked if only it knows; the answer holds for as long as the connection
    /// that it came over.
    fn identity(&self) -> Call<Result<Identity, Error>>;

    /// The store's clock.
    fn clock(&self) -> Call<Reply<()>>;

    /// Takes names, all or none.
    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>>;

    /// Renews leases: one result each, in order. Never makes one again.
    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>>;

    /// Gives a hold back. Idempotent; never touches another lease.
    fn release(&self, request: Release) -> Call<Reply<Released>>;

    /// Subscribes `client` to hints about `name`; ends when the subscription is confirmed. Again is harmless.
    ///
    /// A subscription tells no time: an engine would have to guess it, and a guess that runs ahead is taken for a clock that was set back.
    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>>;

    /// Where the client is to hear of names that it holds, with [`Hint::Held`]. Called once, before anything is acquired. A store that
    /// cannot tell does nothing, and the next renewal finds out. A layer hands it on.
    fn watch_held(&self, client: ClientId, sink: HintSink);

    /// Ends a subscription and leaves the list of waiters. Best effort: nobody waits for it.
    ///
    /// It must not put a hint anywhere before it returns: it is called in the middle of a client's step.
    fn unwatch(&self, client: ClientId, name: Name) -> Call<()>;

    /// Who holds a name.
    fn inspect(&self, name: Name) -> Call<Reply<Inspected>>;

    /// Held and lingering names that begin with `prefix`, in order, after `after`, at most `limit`.
    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>>;

    /// Takes a lock away from its holder; answers who it was.
    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>>;

    /// Ends connections and subscriptions of `client`.
    fn close(&self, client: ClientId) -> Call<()>;
}

/// Forwards methods of [`Store`] to another store: for layers, inside their `impl Store`.
///
/// ```
/// use std::sync::Arc;
/// use leasehold_core::port::{Call, Release, Released, Reply, Store};
///
/// struct Logged(Arc<dyn Store>);
///
/// impl Store for Logged {
///     leasehold_core::forward_store!(self => self.0;
///         label, capability, identity, clock, acquire, renew, watch, watch_held, unwatch, inspect, list, break_lock, close);
///
///     fn release(&self, request: Release) -> Call<Reply<Released>> {
///         println!("releases {}", request.name);
///         self.0.release(request)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_store {
    ($self:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward_store!(@$method $self $inner);)+
    };
    (@fn $self:ident $inner:expr; $method:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?) => {
        fn $method(&$self $(, $argument: $type)*) $(-> $answer)? {
            $inner.$method($($argument),*)
        }
    };
    (@label $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner; label() -> &::std::sync::Arc<str>);
    };
    (@capability $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner; capability() -> $crate::Capability);
    };
    (@identity $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            identity() -> $crate::port::Call<::std::result::Result<$crate::Identity, $crate::Error>>);
    };
    (@clock $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner; clock() -> $crate::port::Call<$crate::port::Reply<()>>);
    };
    (@acquire $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            acquire(request: $crate::port::Acquire) -> $crate::port::Call<$crate::port::Reply<$crate::port::Acquired>>);
    };
    (@renew $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            renew(leases: ::std::vec::Vec<$crate::port::Renew>) -> $crate::port::Call<$crate::port::Reply<::std::vec::Vec<$crate::port::Renewed>>>);
    };
    (@release $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            release(request: $crate::port::Release) -> $crate::port::Call<$crate::port::Reply<$crate::port::Released>>);
    };
    (@watch $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            watch(client: $crate::ClientId, name: $crate::Name, sink: $crate::port::HintSink) -> $crate::port::Call<::std::result::Result<(), $crate::Error>>);
    };
    (@watch_held $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner; watch_held(client: $crate::ClientId, sink: $crate::port::HintSink));
    };
    (@unwatch $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            unwatch(client: $crate::ClientId, name: $crate::Name) -> $crate::port::Call<()>);
    };
    (@inspect $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            inspect(name: $crate::Name) -> $crate::port::Call<$crate::port::Reply<$crate::port::Inspected>>);
    };
    (@list $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            list(prefix: ::std::string::String, after: ::std::option::Option<$crate::Name>, limit: usize) -> $crate::port::Call<$crate::port::Reply<::std::vec::Vec<$crate::port::Inspected>>>);
    };
    (@break_lock $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner;
            break_lock(name: $crate::Name, options: $crate::port::BreakOptions) -> $crate::port::Call<$crate::port::Reply<$crate::port::Broken>>);
    };
    (@close $self:ident $inner:expr) => {
        $crate::forward_store!(@fn $self $inner; close(client: $crate::ClientId) -> $crate::port::Call<()>);
    };
}

pub use crate::forward_store;

#[cfg(test)]
mod tests {
    use super::{Arc, Store};

    /// A program may have a `Result` of its own.
    #[expect(dead_code, reason = "stands where the other one is in scope elsewhere")]
    type Result<T> = std::result::Result<T, ()>;

    struct Forwarding(Arc<dyn Store>);

    impl Store for Forwarding {
        forward_store!(self => self.0;
            label, capability, identity, clock, acquire, renew, release, watch, watch_held, unwatch, inspect, list, break_lock, close);
    }

    #[test]
    fn every_method_can_be_forwarded_beside_another_result() {
        fn is_store<S: Store>() {}
        is_store::<Forwarding>();
    }
}
