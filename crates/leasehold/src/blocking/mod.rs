//! The blocking twin, for programs without async: the same locks, re-entrant by thread.
//!
//! It blocks the thread, so an async task that calls it gets an error. Where tokio lets a thread block (`spawn_blocking`,
//! `block_in_place`) it works.

mod group;

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use leasehold_core::port::BreakOptions;
use leasehold_core::table::Loss;
use leasehold_core::{Error, ErrorKind, Fence, Owner, WaitMode};

pub use group::{GroupGuard, GroupLock, lock_all};

use crate::client::status::Status;
use crate::guard::lost::LostSignal;
use crate::lock::only_if_held;
use crate::runtime::random;

thread_local! {
    /// The owner of this thread, in every client.
    static ME: Result<Owner, Error> = random::owner();
}

fn this_thread() -> Result<Owner, Error> {
    ME.with(Clone::clone)
}

/// A client whose calls block the thread. Everything else is as in [`crate::Client`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::blocking::Client::connect("memory:")?;
/// let outer = client.lock("invoices")?.acquire()?;
/// let inner = client.lock("invoices")?.acquire()?; // the same thread re-enters
/// assert_eq!(outer.fence(), inner.fence());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl Client {
    /// Connects to the store of a URL.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::connect`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Ok(Self { inner: block_on(crate::Client::connect(url))? })
    }

    /// Connects with settings: layers, a listener, defaults.
    ///
    /// # Errors
    ///
    /// As [`crate::ClientBuilder::connect`].
    pub fn connect_with(builder: crate::ClientBuilder) -> Result<Self, Error> {
        Ok(Self { inner: block_on(builder.connect())? })
    }

    /// The blocking twin of a client.
    pub fn of(client: crate::Client) -> Self {
        Self { inner: client }
    }

    /// The client behind it, for what does not wait.
    pub fn inner(&self) -> &crate::Client {
        &self.inner
    }

    /// A lock by name, acquired for the calling thread.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::lock`].
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock, Error> {
        Ok(Lock { inner: self.inner.lock(name)? })
    }

    /// Several locks that are acquired together, all or none, for the calling thread.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::lock_all`].
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<GroupLock, Error> {
        Ok(GroupLock { inner: self.inner.lock_all(names)? })
    }

    /// A lease that an explicit owner has without a guard.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::detached`].
    pub fn detached(&self, name: impl AsRef<str>, owner: &Owner) -> Result<Detached, Error> {
        Ok(Detached { inner: self.inner.detached(name, owner)? })
    }

    /// Who holds a lock.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::inspect`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        block_on(self.inner.inspect(name))
    }

    /// Every lock that is held or in its cooldown, and whose name begins with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::list`].
    pub fn list(&self, prefix: &str) -> Result<Vec<Status>, Error> {
        block_on(self.inner.list(prefix))
    }

    /// Takes a lock away from its holder: for operators.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::break_lock`].
    pub fn break_lock(&self, name: impl AsRef<str>, options: impl Into<BreakOptions>) -> Result<Status, Error> {
        block_on(self.inner.break_lock(name, options))
    }

    /// Releases everything that is held, and waits for that.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::close`].
    pub fn close(&self) -> Result<(), Error> {
        block_on(self.inner.close())
    }
}

/// A lock whose acquire blocks the thread. A thread that holds it acquires it again without waiting.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    inner: crate::Lock,
}

/// The result of an attempt.
pub type Attempt<G = Guard> = crate::Attempt<G>;

macro_rules! option {
    ($(#[$doc:meta])* $name:ident: $type:ty) => {
        $(#[$doc])*
        pub fn $name(self, value: $type) -> Self {
            Self { inner: self.inner.$name(value) }
        }
    };
}

use option;

impl Lock {
    option!(/** As [`crate::Lock::keep`]. */ keep: Duration);
    option!(/** As [`crate::Lock::lease`]. */ lease: Duration);
    option!(/** As [`crate::Lock::max_hold`]. */ max_hold: Duration);
    option!(/** As [`crate::Lock::at_least`]. */ at_least: Duration);
    option!(/** As [`crate::Lock::wait_mode`]. */ wait_mode: WaitMode);
    option!(/** As [`crate::Lock::budget`]. */ budget: Duration);
    option!(/** As [`crate::Lock::label`]. */ label: &str);

    /// Acquires the lock for this owner instead of the thread.
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { inner: self.inner.owned_by(owner) }
    }

    /// Acquires the lock, and waits for it if it is busy.
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::acquire`].
    ///
    /// # Fairness
    ///
    /// As [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        let lock = self.mine()?;
        block_on(lock.acquire()).map(Guard::new)
    }

    /// Tries once, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Attempt, Error> {
        let lock = self.mine()?;
        block_on(lock.try_acquire()).map(|attempt| attempt.map(Guard::new))
    }

    /// Acquires the lock, and waits for it at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::acquire_within`].
    pub fn acquire_within(&self, limit: Duration) -> Result<Attempt, Error> {
        let lock = self.mine()?;
        block_on(lock.acquire_within(limit)).map(|attempt| attempt.map(Guard::new))
    }

    /// Acquires the lock, runs some work under it, and releases it.
    ///
    /// A thread cannot be interrupted: long work calls [`crate::Guard::is_valid`] between its steps.
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::run`].
    pub fn run<T, E: From<Error>>(&self, work: impl FnOnce(&Guard) -> Result<T, E>) -> Result<T, E> {
        let guard = self.acquire()?;
        let done = work(&guard);
        let held = if guard.is_valid() { Ok(()) } else { Err(guard.lost_error("run")) };
        let released = guard.release();
        let done = done?;
        only_if_held(held.and(released))?;
        Ok(done)
    }

    fn mine(&self) -> Result<crate::Lock, Error> {
        let lock = self.inner.clone();
        if lock.owner.is_some() { Ok(lock) } else { this_thread().map(|owner| lock.owned_by(&owner)) }
    }
}

/// A lease that an explicit owner has without a guard: [`crate::Detached`], whose calls block.
#[derive(Clone, Debug)]
pub struct Detached {
    inner: crate::Detached,
}

impl Detached {
    /// Makes the lease last for `term` from now.
    ///
    /// # Errors
    ///
    /// As [`crate::Detached::renew`].
    pub fn renew(&self, fence: Option<Fence>, term: Duration) -> Result<Duration, Error> {
        block_on(self.inner.renew(fence, term))
    }

    /// Releases one hold of the owner, and returns how many it has left.
    ///
    /// # Errors
    ///
    /// As [`crate::Detached::release`].
    pub fn release(&self, fence: Option<Fence>) -> Result<u32, Error> {
        block_on(self.inner.release(fence))
    }

    /// Releases every hold of the owner.
    ///
    /// # Errors
    ///
    /// As [`crate::Detached::release_all`].
    pub fn release_all(&self, fence: Option<Fence>) -> Result<(), Error> {
        block_on(self.inner.release_all(fence))
    }
}

/// A guard that stays in its thread, because re-entrance goes by the thread. It has every method of [`crate::Guard`]; use
/// [`Guard::release`], [`Guard::extend`] and [`wait_lost`] in place of those that are async.
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<leasehold::blocking::Guard>();
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    inner: crate::Guard,
    not_send: PhantomData<*const ()>,
}

impl Guard {
    fn new(inner: crate::Guard) -> Self {
        Self { inner, not_send: PhantomData }
    }

    /// Releases the lock, and returns the result.
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        block_on(self.inner.release())
    }

    /// Leaves a fixed lease to its explicit owner.
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::leave`].
    pub fn leave(self) -> Result<(), (Self, Error)> {
        if let Err(error) = may_block() {
            return Err((self, error));
        }
        wait_for(self.inner.leave()).map_err(|(inner, error)| (Self::new(inner), error))
    }

    /// Makes a fixed lease last for `term` from now.
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::extend`].
    pub fn extend(&self, term: Duration) -> Result<(), Error> {
        block_on(self.inner.extend(term))
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.inner
    }
}

/// Blocks until the lock of a signal is lost, and returns why; or until it is released, and returns none. For a thread that watches
/// another thread's guard: get [`crate::Guard::lost_signal`] there and send it over.
///
/// # Errors
///
/// If it is called from async code.
pub fn wait_lost(signal: &LostSignal) -> Result<Option<Loss>, Error> {
    block_on(async { Ok(signal.wait().await) })
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    may_block()?;
    wait_for(future)
}

fn may_block() -> Result<(), Error> {
    if is_async_task() {
        let what = "the blocking client was called from async code, which would block the runtime";
        return Err(Error::new(ErrorKind::BadArgument, "blocking", what).with_hint("use leasehold::Client there"));
    }
    Ok(())
}

/// Runs a future on this thread. Timers and background work are on the keeper's runtime, so none is needed here.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut task = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Whether this thread runs an async task of tokio's at the moment. Threads where tokio allows blocking have a runtime too, but no
/// budget that runs out; there is no other difference to test for.
fn is_async_task() -> bool {
    /// More than the budget of a task.
    const MORE_THAN_A_BUDGET: u32 = 1_024;
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let mut task = Context::from_waker(Waker::noop());
    (0..MORE_THAN_A_BUDGET).any(|_| pin!(tokio::task::coop::consume_budget()).poll(&mut task).is_pending())
}
