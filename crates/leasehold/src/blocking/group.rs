//! Locks of several stores, taken together by a thread.

use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::{Error, Owner};

use super::{Lock, block_on};
use crate::lock::Attempt;

/// Locks of any stores that are taken together, all or none, for the calling thread: the blocking twin of [`crate::lock_all`].
///
/// A thread that already holds one of them gets an error; it would wait for itself.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// use leasehold::blocking::{Client, lock_all};
///
/// let accounts = Client::connect("memory:accounts")?;
/// let printer = Client::connect("memory:printer")?;
/// let guard = lock_all([accounts.lock("alice"), printer.lock("cheques")]).acquire()?; // both, or none
/// assert!(guard.is_valid());
/// guard.release()?;
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
    /// Takes those locks for this owner, and not for the thread, that have none of their own ([`Lock::owned_by`]).
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Waits until all the locks are ours.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiLock::acquire`].
    pub fn acquire(&self) -> Result<MultiGuard, Error> {
        block_on(self.mine()?.acquire()).map(MultiGuard::new)
    }

    /// Asks each store once, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiLock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Attempt<MultiGuard>, Error> {
        block_on(self.mine()?.try_acquire()).map(attempt)
    }

    /// Waits until all the locks are ours, at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiLock::acquire_within`].
    pub fn acquire_within(&self, limit: Duration) -> Result<Attempt<MultiGuard>, Error> {
        block_on(self.mine()?.acquire_within(limit)).map(attempt)
    }

    fn mine(&self) -> Result<crate::MultiLock, Error> {
        let locks = self.locks.iter().map(|lock| match &self.owner {
            // Given to all at once: so that none of them is taken for the thread.
            Some(owner) if lock.by_thread => Ok(lock.inner.clone().owned_by(owner)),
            _ => lock.mine(),
        });
        Ok(crate::lock_all(locks.collect::<Result<Vec<_>, _>>()?))
    }
}

fn attempt(attempt: Attempt<crate::MultiGuard>) -> Attempt<MultiGuard> {
    match attempt {
        Attempt::Granted(guard) => Attempt::Granted(MultiGuard::new(guard)),
        Attempt::Busy(holder) => Attempt::Busy(holder),
    }
}

/// The guard of several locks, which stays in its thread. It has all that [`crate::MultiGuard`] has; what waits there blocks here, by
/// [`MultiGuard::release`], [`MultiGuard::extend`] and [`super::wait_lost`].
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<leasehold::blocking::MultiGuard>();
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct MultiGuard {
    inner: crate::MultiGuard,
    not_send: PhantomData<*const ()>,
}

impl MultiGuard {
    fn new(inner: crate::MultiGuard) -> Self {
        Self { inner, not_send: PhantomData }
    }

    /// Gives all the locks back, and says how that went.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiGuard::release`].
    pub fn release(self) -> Result<(), Error> {
        block_on(self.inner.release())
    }

    /// Makes fixed leases last for `term` from now.
    ///
    /// # Errors
    ///
    /// As [`crate::MultiGuard::extend`].
    pub fn extend(&self, term: Duration) -> Result<(), Error> {
        block_on(self.inner.extend(term))
    }
}

impl Deref for MultiGuard {
    type Target = crate::MultiGuard;

    fn deref(&self) -> &crate::MultiGuard {
        &self.inner
    }
}

#[cfg(all(test, not(shuttle), feature = "memory"))]
mod tests {
    use leasehold_core::ErrorKind;

    use super::super::Client;
    use super::*;

    #[test]
    fn a_thread_takes_locks_of_several_stores_together_and_keeps_other_threads_out() {
        let one = Client::connect("memory:multi-one").unwrap();
        let two = Client::connect("memory:multi-two").unwrap();
        let both = lock_all([one.lock("a"), two.lock("a")]);
        let guard = both.acquire().unwrap();
        assert_eq!(guard.fences().count(), 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(both.try_acquire().unwrap().is_busy());
                assert!(both.acquire_within(Duration::from_millis(20)).unwrap().is_busy());
                two.lock("a").try_acquire().unwrap().is_busy()
            });
            assert!(other.join().unwrap());
        });
        guard.release().unwrap();
        let again = both.try_acquire().unwrap().granted().expect("both are free");
        drop(again);
        assert!(!one.lock("a").acquire_within(Duration::from_secs(60)).unwrap().is_busy());
    }

    #[test]
    fn a_thread_that_holds_one_of_them_does_not_wait_for_itself() {
        let one = Client::connect("memory:multi-three").unwrap();
        let two = Client::connect("memory:multi-four").unwrap();
        let held = one.lock("a").acquire().unwrap();
        let error = lock_all([one.lock("a"), two.lock("a")]).acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld);
        assert!(!two.lock("a").try_acquire().unwrap().is_busy(), "none is held");
        held.release().unwrap();
    }
}
