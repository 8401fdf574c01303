//! Several locks, of one store or of several, acquired together: all or none, without a deadlock, and with one guard.
//!
//! Locks of one client are acquired in one step of its store. Over several stores, [`leasehold_core::multi`] decides what comes next,
//! and `acquisition.rs` does it. Nothing here waits for a lock while it holds another.

mod acquisition;
mod group_guard;
mod group_queue;
mod parts;

use std::time::Duration;

use leasehold_core::{Error, Owner, WaitMode};

pub use group_guard::{GroupGuard, LostMember};

use crate::lock::{Attempt, Lock, Patience, only_if_held, refused};

/// Locks of any stores that are acquired together, all or none.
///
/// Each lock keeps its options: its lease, its label, its owner. Names of one client with the same options are acquired in one step of
/// the store, the others one after another. While the group waits for one lock it holds no other, and no place in line for another.
/// An owner that already holds one of them gets an error and does not wait.
///
/// If all names are of one client, use [`Client::lock_all`](crate::Client::lock_all).
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let accounts = leasehold::Client::connect("memory:accounts").await?;
/// let printer = leasehold::Client::connect("memory:printer").await?;
/// let both = leasehold::lock_all([accounts.lock("alice")?, printer.lock("cheques")?]);
/// let guard = both.acquire().await?; // both, or none
/// guard.protect(async { /* the work */ }).await?; // cancelled if either is lost
/// for lock in guard.guards() {
///     println!("{} on {}: fence {}", lock.name(), lock.store_label(), lock.fence());
/// }
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub fn lock_all<L: Into<GroupLock>>(locks: impl IntoIterator<Item = L>) -> GroupLock {
    let owned = |group: GroupLock| {
        let GroupLock { locks, owner, .. } = group;
        locks.into_iter().map(move |lock| match &owner {
            Some(owner) if lock.owner.is_none() => lock.owned_by(owner),
            _ => lock,
        })
    };
    GroupLock { locks: locks.into_iter().map(Into::into).flat_map(owned).collect(), owner: None, in_one_step: false }
}

/// Locks that are acquired together, all or none. Made by [`Client::lock_all`](crate::Client::lock_all) for one store, and by
/// [`lock_all`] for several.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct GroupLock {
    pub(crate) locks: Vec<Lock>,
    pub(crate) owner: Option<Owner>,
    /// All names are in one lock, and its store acquires them in one step.
    in_one_step: bool,
}

impl From<Lock> for GroupLock {
    fn from(lock: Lock) -> Self {
        Self { locks: vec![lock], owner: None, in_one_step: true }
    }
}

impl GroupLock {
    /// Keeps every lock, with this lease: [`Lock::keep`].
    pub fn keep(self, lease: Duration) -> Self {
        self.each(|lock| lock.keep(lease))
    }

    /// Acquires every lock for this long, and never renews it: [`Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        self.each(|lock| lock.lease(lease))
    }

    /// Kept locks are lost after this long: [`Lock::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Self {
        self.each(|lock| lock.max_hold(limit))
    }

    /// Keeps others out for at least this long from the grant: [`Lock::at_least`].
    pub fn at_least(self, span: Duration) -> Self {
        self.each(|lock| lock.at_least(span))
    }

    /// How to wait: [`Lock::wait_mode`].
    pub fn wait_mode(self, mode: WaitMode) -> Self {
        self.each(|lock| lock.wait_mode(mode))
    }

    /// For how long locks may be handed from task to task before other processes get their turn: [`Lock::budget`].
    pub fn budget(self, budget: Duration) -> Self {
        self.each(|lock| lock.budget(budget))
    }

    /// Human-readable label, shown by `inspect` and `list`: [`Lock::label`].
    pub fn label(self, label: impl AsRef<str>) -> Self {
        self.each(|lock| lock.label(&label))
    }

    /// Acquires for this owner the locks that have none of their own ([`Lock::owned_by`]).
    ///
    /// Over several stores it does not re-enter: if it already holds one of them, that is an error.
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        if self.in_one_step {
            return self.each(|lock| lock.owned_by(owner));
        }
        self.owner = Some(owner.clone());
        self
    }

    pub(crate) fn each(mut self, change: impl Fn(Lock) -> Lock) -> Self {
        self.locks = self.locks.into_iter().map(change).collect();
        self
    }

    /// Acquires all the locks, and waits for those that are busy.
    ///
    /// # Guarantees
    ///
    /// Those of [`Lock::acquire`] for each of them: when this returns, all are valid. A waiting group holds nothing, and is in line
    /// for one lock at most: no two groups wait for each other, in whatever order they name their locks.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::acquire`] for each of them; then none is held. [`BadArgument`](crate::ErrorKind::BadArgument) if no lock is
    /// given, or if over several stores one is given twice: by the server that keeps it, not by its URL.
    /// [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld) if the owner holds one of them. [`Unfit`](crate::ErrorKind::Unfit) if two
    /// locks of one name are given and their servers do not tell who they are. [`Lost`](crate::ErrorKind::Lost) if leases are so short
    /// that they end before all locks are acquired. An unreachable store is retried for 10 s each time its turn comes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaks nothing: locks that are held by then are released in the background.
    ///
    /// # Panics
    ///
    /// If a [`Layer`](crate::Layer) panics during a call: the panic goes on to the caller, and a lock that is granted all the same is
    /// released.
    ///
    /// # Fairness
    ///
    /// Over one store, as [`Lock::acquire`] for the name that is waited for. Over several stores, no order is promised. In one process,
    /// later groups stand aside for a while for an earlier one that wants some of the same locks and was refused; between processes,
    /// chance decides.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock_all(["alice", "bob"])?.acquire().await?;
    /// assert!(guard.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<GroupGuard, Error> {
        self.attempt(Patience::FOREVER).await?.granted().ok_or_else(refused)
    }

    /// Tries each store once, and does not wait. If one of the locks is busy, none is held, and the holder of that one is returned.
    ///
    /// # Guarantees
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`GroupLock::acquire`]. An unreachable store is an error at once.
    ///
    /// # Cancel safety
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Fairness
    ///
    /// It does not wait for its turn: it may get locks that others wait for.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let _alice = client.lock("alice")?.acquire().await?;
    /// assert!(client.lock_all(["alice", "bob"])?.try_acquire().await?.is_busy());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Attempt<GroupGuard>, Error> {
        self.attempt(Patience::ONCE).await
    }

    /// Acquires all the locks, and waits at most this long. If the time runs out, the holder of the lock that was waited for is
    /// returned.
    ///
    /// # Guarantees
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`GroupLock::acquire`]. If a store did not answer by the end of the wait, its last error.
    ///
    /// # Cancel safety
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Fairness
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let attempt = client.lock_all(["alice", "bob"])?.acquire_within(Duration::from_secs(2)).await?;
    /// assert!(!attempt.is_busy());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Attempt<GroupGuard>, Error> {
        self.attempt(Patience::within(limit)?).await
    }

    /// Acquires all the locks, runs some work under them, and releases them: [`Lock::run`].
    ///
    /// # Guarantees
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Errors
    ///
    /// Those of [`GroupLock::acquire`], before the work, and those of the work. [`Lost`](crate::ErrorKind::Lost) if one of the locks was
    /// lost before the work was done, also when that is noticed only at the release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work, and releases the locks in the background.
    ///
    /// # Fairness
    ///
    /// As [`GroupLock::acquire`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let accounts = client.lock_all(["alice", "bob"])?;
    /// accounts.run(async |guard| Ok::<_, leasehold::Error>(guard.fence("alice"))).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E: From<Error>>(&self, work: impl AsyncFnOnce(&GroupGuard) -> Result<T, E>) -> Result<T, E> {
        let guard = self.acquire().await?;
        let done = guard.protect(work(&guard)).await;
        let released = guard.release().await;
        let done = done??;
        only_if_held(released)?;
        Ok(done)
    }

    async fn attempt(&self, patience: Patience) -> Result<Attempt<GroupGuard>, Error> {
        if let (true, [lock]) = (self.in_one_step, self.locks.as_slice()) {
            return lock.attempt(patience, GroupGuard::of_one_step).await;
        }
        let parts = parts::parts(&self.locks, self.owner.as_ref())?;
        Box::pin(acquisition::acquire(parts, patience)).await
    }
}
