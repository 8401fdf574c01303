//! Locks of several stores, acquired together by a thread.

use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::{Error, Owner, WaitMode};

use super::{Lock, block_on, may_block, option, this_thread, wait_for};
use crate::lock::{Attempt, only_if_held};

/// Locks of any stores that are acquired together, all or none, for the calling thread: the blocking twin of [`crate::lock_all`].
///
/// A thread that already holds one of them gets an error, because it would wait for itself.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// use leasehold::blocking::{Client, lock_all};
///
/// let accounts = Client::connect("memory:accounts")?;
/// let printer = Client::connect("memory:printer")?;
/// let guard = lock_all([accounts.lock("alice")?, printer.lock("cheques")?]).acquire()?; // both, or none
/// assert!(guard.is_valid());
/// guard.release()?;
/// # Ok(()) }
/// ```
pub fn lock_all<L: Into<GroupLock>>(locks: impl IntoIterator<Item = L>) -> GroupLock {
    GroupLock { inner: crate::lock_all(locks.into_iter().map(|lock| lock.into().inner)) }
}

/// Locks that are acquired together, all or none. Made by [`Client::lock_all`](super::Client::lock_all) and [`lock_all`].
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct GroupLock {
    pub(super) inner: crate::GroupLock,
}

impl From<Lock> for GroupLock {
    fn from(lock: Lock) -> Self {
        Self { inner: lock.inner.into() }
    }
}

impl GroupLock {
    option!(/** As [`crate::GroupLock::keep`]. */ keep: Duration);
    option!(/** As [`crate::GroupLock::lease`]. */ lease: Duration);
    option!(/** As [`crate::GroupLock::max_hold`]. */ max_hold: Duration);
    option!(/** As [`crate::GroupLock::at_least`]. */ at_least: Duration);
    option!(/** As [`crate::GroupLock::wait_mode`]. */ wait_mode: WaitMode);
    option!(/** As [`crate::GroupLock::budget`]. */ budget: Duration);
    option!(/** As [`crate::GroupLock::label`]. */ label: &str);
    option!(/** Acquires for this owner, instead of the thread, the locks that have none of their own ([`Lock::owned_by`]). */ owned_by: &Owner);

    /// Acquires all the locks, and waits for those that are busy.
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::acquire`].
    ///
    /// # Fairness
    ///
    /// As [`crate::GroupLock::acquire`].
    pub fn acquire(&self) -> Result<GroupGuard, Error> {
        block_on(self.mine()?.acquire()).map(GroupGuard::new)
    }

    /// Tries each store once, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Attempt<GroupGuard>, Error> {
        block_on(self.mine()?.try_acquire()).map(|attempt| attempt.map(GroupGuard::new))
    }

    /// Acquires all the locks, and waits at most this long.
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::acquire_within`].
    pub fn acquire_within(&self, limit: Duration) -> Result<Attempt<GroupGuard>, Error> {
        block_on(self.mine()?.acquire_within(limit)).map(|attempt| attempt.map(GroupGuard::new))
    }

    /// Acquires all the locks, runs some work under them, and releases them: [`Lock::run`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::run`].
    pub fn run<T, E: From<Error>>(&self, work: impl FnOnce(&GroupGuard) -> Result<T, E>) -> Result<T, E> {
        let guard = self.acquire()?;
        let done = work(&guard);
        let held = guard.guards().iter().find(|guard| !guard.is_valid()).map(|lost| lost.lost_error("run"));
        let released = guard.release();
        let done = done?;
        only_if_held(held.map_or(Ok(()), Err).and(released))?;
        Ok(done)
    }

    fn mine(&self) -> Result<crate::GroupLock, Error> {
        let (group, thread) = (self.inner.clone(), this_thread()?);
        if group.owner.is_some() {
            return Ok(group);
        }
        Ok(group.each(|lock| if lock.owner.is_some() { lock } else { lock.owned_by(&thread) }))
    }
}

/// The guard of several locks, which stays in its thread. It has every method of [`crate::GroupGuard`]; use [`GroupGuard::release`],
/// [`GroupGuard::extend`] and [`super::wait_lost`] in place of those that are async.
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<leasehold::blocking::GroupGuard>();
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct GroupGuard {
    inner: crate::GroupGuard,
    not_send: PhantomData<*const ()>,
}

impl GroupGuard {
    fn new(inner: crate::GroupGuard) -> Self {
        Self { inner, not_send: PhantomData }
    }

    /// Releases all the locks, and returns the result.
    ///
    /// # Errors
    ///
    /// As [`crate::GroupGuard::release`].
    pub fn release(self) -> Result<(), Error> {
        block_on(self.inner.release())
    }

    /// Leaves fixed leases to their explicit owner.
    ///
    /// # Errors
    ///
    /// As [`crate::GroupGuard::leave`].
    pub fn leave(self) -> Result<(), (Self, Error)> {
        if let Err(error) = may_block() {
            return Err((self, error));
        }
        wait_for(self.inner.leave()).map_err(|(inner, error)| (Self::new(inner), error))
    }

    /// Makes fixed leases last for `term` from now.
    ///
    /// # Errors
    ///
    /// As [`crate::GroupGuard::extend`].
    pub fn extend(&self, term: Duration) -> Result<(), Error> {
        block_on(self.inner.extend(term))
    }
}

impl Deref for GroupGuard {
    type Target = crate::GroupGuard;

    fn deref(&self) -> &crate::GroupGuard {
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
        let both = lock_all([one.lock("a").expect("a name"), two.lock("a").expect("a name")]);
        let guard = both.acquire().unwrap();
        assert_eq!(guard.fences().count(), 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(both.try_acquire().unwrap().is_busy());
                assert!(both.acquire_within(Duration::from_millis(20)).unwrap().is_busy());
                two.lock("a").expect("a name").try_acquire().unwrap().is_busy()
            });
            assert!(other.join().unwrap());
        });
        guard.release().unwrap();
        let again = both.try_acquire().unwrap().granted().expect("both are free");
        drop(again);
        assert!(!one.lock("a").expect("a name").acquire_within(Duration::from_secs(60)).unwrap().is_busy());
    }

    #[test]
    fn a_thread_that_holds_one_of_them_does_not_wait_for_itself() {
        let one = Client::connect("memory:multi-three").unwrap();
        let two = Client::connect("memory:multi-four").unwrap();
        let held = one.lock("a").expect("a name").acquire().unwrap();
        let error = lock_all([one.lock("a").expect("a name"), two.lock("a").expect("a name")]).acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld);
        assert!(!two.lock("a").expect("a name").try_acquire().unwrap().is_busy(), "none is held");
        held.release().unwrap();
    }
}
