//! Locks of several clients, taken together: all or none, without a deadlock, and with one guard.
//!
//! What to do next is decided in [`leasehold_core::multi`]; here it is done. Nothing here waits for a lock while it holds another.

mod acquisition;
mod group_guard;
mod group_queue;
mod parts;

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Owner};

pub use group_guard::{LostMember, MultiGuard};

use crate::lock::{Attempt, Lock, Patience, end_of_wait};

/// Locks of any stores that are taken together, all or none.
///
/// Each keeps the options it was made with: how long it is leased, its label, its owner. Names of one client with the same options are
/// taken in one step of the store; the others one after another. While it waits for one of them it holds no other, and no place in line
/// for another. An owner that already holds one of them gets an error and does not wait.
///
/// Where all names are of one client, [`Client::lock_all`](crate::Client::lock_all) does, and its guard can do more.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let accounts = leasehold::Client::connect("memory:accounts").await?;
/// let printer = leasehold::Client::connect("memory:printer").await?;
/// let both = leasehold::lock_all([accounts.lock("alice"), printer.lock("cheques")]);
/// let guard = both.acquire().await?; // both, or none
/// guard.protect(async { /* the work */ }).await?; // cancelled if either is lost
/// for (store, name, fence) in guard.fences() {
///     println!("{name} on {store}: fence {fence}");
/// }
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub fn lock_all(locks: impl IntoIterator<Item = Lock>) -> MultiLock {
    MultiLock { locks: locks.into_iter().collect(), owner: None }
}

/// Locks of any stores that are taken together. Made by [`lock_all`].
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct MultiLock {
    locks: Vec<Lock>,
    owner: Option<Owner>,
}

impl MultiLock {
    /// Takes those locks for this owner that have none of their own ([`Lock::owned_by`]).
    ///
    /// It does not re-enter: where it holds one of them already, that is an error.
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Waits until all the locks are ours.
    ///
    /// # Guarantees
    ///
    /// Those of [`Lock::acquire`] for each of them: when this returns, all are valid. Whoever waits holds nothing and is in line for one
    /// lock at most: so whatever others take together in whatever order, nobody waits in a circle.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::acquire`] for each of them; then none is held. [`ErrorKind::BadArgument`] where no lock is given, or one is given
    /// twice: by the server that keeps it, not by its URL. [`ErrorKind::AlreadyHeld`] where the owner holds one of them.
    /// [`ErrorKind::Unfit`] where two locks of one name are given and their servers do not tell who they are. [`ErrorKind::Lost`] where
    /// leases are so short that they end before all are had. A store that is unreachable is waited for for 10 s each time that its turn
    /// comes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaks nothing: what is held by then is given back in the background.
    ///
    /// # Fairness
    ///
    /// None is promised, as nobody has a place in line for all of them. But in one process those who came later stand aside for a
    /// while for one who came earlier, wants some of the same and was refused; between processes, chance decides.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        match self.attempt(Patience::Forever).await? {
            Attempt::Granted(guard) => Ok(guard),
            Attempt::Busy(_) => Err(Error::new(ErrorKind::Internal, "acquire", "refused without a limit on waiting")),
        }
    }

    /// Asks each store once, and does not wait. Where one of the locks is busy, that one's holder is told, and none is held.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::acquire`]; an unreachable store at once.
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Attempt<MultiGuard>, Error> {
        self.attempt(Patience::Once).await
    }

    /// Waits until all the locks are ours, at most this long. Where the time is over, the holder of the one that was waited for is told.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::acquire`]. When the time is over and a store did not answer, its last error.
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::acquire`].
    ///
    /// # Fairness
    ///
    /// As [`MultiLock::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Attempt<MultiGuard>, Error> {
        self.attempt(Patience::Until(end_of_wait(limit)?)).await
    }

    async fn attempt(&self, patience: Patience) -> Result<Attempt<MultiGuard>, Error> {
        let parts = parts::parts(&self.locks, self.owner.as_ref())?;
        Box::pin(acquisition::take(parts, patience)).await
    }
}
