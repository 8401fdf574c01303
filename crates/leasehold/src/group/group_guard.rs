//! The guard of several locks that were taken together.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_clock::fork::Process;
use leasehold_core::table::Loss;
use leasehold_core::{Error, Fence, Moment, Name};

use super::group_queue;
use crate::guard::Guard;
use crate::guard::lost::LostSignal;

/// Stands for locks of several stores that are held together. It is valid while all of them are, and lost when one of them is.
///
/// Dropping it gives all of them back in the background; [`MultiGuard::release`] does so and gives the result.
///
/// # Guarantees
///
/// Those of [`Guard`] for each of them, as far as its store promises them: a lock over several stores is as good as each is for its own
/// names. There is no fence for all of them together: hand to each resource the fence of the lock that protects it.
#[must_use = "dropping the guard releases the locks"]
pub struct MultiGuard {
    guards: Vec<Guard>,
    since: Moment,
    process: Process,
}

/// Which of several locks was lost, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LostMember {
    /// The label of its store.
    pub store: Arc<str>,
    /// Its name.
    pub name: Name,
    /// Why.
    pub loss: Loss,
}

impl MultiGuard {
    /// `since`: when the first of them was taken.
    pub(super) fn new(guards: Vec<Guard>, since: Moment) -> Self {
        Self { guards, since, process: Process::current() }
    }

    /// Every lock by the label of its store and its name, with its fence: the stores in the order in which they were given.
    pub fn fences(&self) -> impl Iterator<Item = (&str, &Name, Fence)> {
        self.guards.iter().flat_map(|guard| guard.fences().map(|(name, fence)| (&**guard.store(), name, fence)))
    }

    /// The fence of one of them, by the label of its store ([`Client::store_label`](crate::Client::store_label)) and its name.
    pub fn fence(&self, store: &str, name: &str) -> Option<Fence> {
        let is_it = |(of, called, _): &(&str, &Name, Fence)| *of == store && called.as_str() == name;
        self.fences().find(is_it).map(|(.., fence)| fence)
    }

    /// One guard for each step that was taken, for what concerns that one alone: who owns it, lengthening it.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether the holder may act, by the clock, now: whether all of them are valid.
    pub fn is_valid(&self) -> bool {
        self.time_left().is_some()
    }

    /// How long the holder may act if nothing is renewed: the shortest of them. None when it may not.
    pub fn time_left(&self) -> Option<Duration> {
        self.guards.iter().map(Guard::time_left).min().flatten()
    }

    /// Resolves when one of them is lost, and says which one and why.
    ///
    /// # Guarantees
    ///
    /// As [`LostSignal::wait`], by the store of the one that is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LostMember {
        let Some((at, loss)) = self.lost_signal().wait_for_one().await else { return std::future::pending().await };
        match self.place_of(at) {
            Some((store, name)) => LostMember { store, name, loss },
            None => std::future::pending().await,
        }
    }

    /// The store and the name of one of them, by its number.
    fn place_of(&self, at: usize) -> Option<(Arc<str>, Name)> {
        let mut all = self.guards.iter().flat_map(|guard| guard.fences().map(|(name, _)| (guard.store(), name)));
        all.nth(at).map(|(store, name)| (store.clone(), name.clone()))
    }

    /// The lost signal as a value of its own, for other tasks. It does not say which of them was lost.
    pub fn lost_signal(&self) -> LostSignal {
        let cells = self.guards.iter().flat_map(|guard| guard.lost_signal().cells.to_vec());
        LostSignal { cells: cells.collect() }
    }

    /// Runs a future under the locks, and drops it when one of them is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when one was lost before the future was done, also when that is noticed only as it
    /// ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the future that it runs; the guard stays as it is.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        let signal = self.lost_signal();
        let mut lost = pin!(signal.wait());
        let mut work = pin!(work);
        let done = poll_fn(|task| {
            if lost.as_mut().poll(task).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(task).map(Some)
        });
        match done.await {
            Some(output) if self.is_valid() => Ok(output),
            _ => {
                let first = self.guards.iter().find(|guard| !guard.is_valid()).unwrap_or(&self.guards[0]);
                Err(first.lost_error("protect"))
            }
        }
    }

    /// Makes every lease last for `term` from now, if it would not anyway: [`Guard::extend`] on each.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::extend`], of each that failed ([`Error::failures`]); the others are lengthened.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::extend`].
    pub async fn extend(&self, term: Duration) -> Result<(), Error> {
        together("extend", self.guards.iter().map(|guard| guard.extend(term)).collect()).await
    }

    /// Gives all of them back, at the same time, and says how that went: all are given back, also when one fails.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::release`], of each that failed: where there is more than one, [`Error::failures`] has them all.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    pub async fn release(mut self) -> Result<(), Error> {
        give_back(std::mem::take(&mut self.guards)).await
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        // In a forked child the mutex of the hall may be locked for ever.
        if self.process.is_current() {
            group_queue::held(leasehold_clock::now().since(self.since));
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}

/// Gives guards back at the same time: one that is slow holds up no other.
pub(super) async fn give_back(guards: Vec<Guard>) -> Result<(), Error> {
    together("release", guards.into_iter().map(Guard::release).collect()).await
}

/// Does several things at the same time, to the end of each.
async fn together<F: Future<Output = Result<(), Error>>>(operation: &'static str, all: Vec<F>) -> Result<(), Error> {
    let mut under_way: Vec<Option<Pin<Box<F>>>> = all.into_iter().map(|one| Some(Box::pin(one))).collect();
    let mut failures = Vec::new();
    poll_fn(|task| {
        for one in &mut under_way {
            if let Some(Poll::Ready(done)) = one.as_mut().map(|one| one.as_mut().poll(task)) {
                *one = None;
                failures.extend(done.err());
            }
        }
        if under_way.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    Error::of_several(operation, failures).map_or(Ok(()), Err)
}
