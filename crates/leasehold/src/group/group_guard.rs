//! The guard of several locks that were acquired together.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_clock::fork::Process;
use leasehold_core::table::{Grant, Loss};
use leasehold_core::{Error, ErrorKind, Fence, Moment, Name, Names, Owner};

use super::group_queue;
use crate::guard::lost::{LossReport, LostSignal};
use crate::guard::{self, Guard};
use crate::runtime::handle::ShellHandle;

/// Locks of one or several stores that are held together. It is valid while all of them are, and lost when one of them is.
///
/// Dropping it releases all of them in the background; [`GroupGuard::release`] does so and returns the result.
///
/// # Guarantees
///
/// Those of [`Guard`] for each lock, as far as its store promises them. There is no fence for all of them together: pass to each
/// resource the fence of the lock that protects it.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock_all(["alice", "bob"])?.acquire().await?;
/// let fence = guard.fence("alice").expect("it is one of them");
/// assert!(guard.fences().any(|(name, of_name)| name.as_str() == "alice" && of_name == fence));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping the guard releases the locks"]
pub struct GroupGuard {
    guards: Vec<Guard>,
    /// Of several steps: when the first one was granted, and in which process.
    since: Option<(Moment, Process)>,
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

impl GroupGuard {
    /// The guard of what one step of a store granted.
    #[expect(clippy::needless_pass_by_value, reason = "a single guard takes the owner: lock::Hold")]
    pub(super) fn of_one_step(shell: &Arc<ShellHandle>, names: &Names, owner: Owner, grants: &[Grant]) -> Self {
        let guard = |(name, grant): (&Name, &Grant)| Guard::new(shell.clone(), name.clone(), owner.clone(), grant);
        Self { guards: names.as_slice().iter().zip(grants).map(guard).collect(), since: None }
    }

    /// Joins several groups into one.
    pub(super) fn join(groups: impl Iterator<Item = Self>) -> Self {
        let guards = groups.flat_map(|mut group| std::mem::take(&mut group.guards)).collect();
        Self { guards, since: None }
    }

    /// Marks it as acquired one after another, the first lock at that moment.
    pub(super) fn of_several_steps(mut self, since: Moment) -> Self {
        self.since = Some((since, Process::current()));
        self
    }

    /// Whether an owner already had one of them.
    pub(super) fn has_entered(&self) -> bool {
        self.guards.iter().any(Guard::has_entered)
    }

    /// The guard of each lock: the stores in the order in which they were given, and the names of each store in order.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The guard of one lock by its name. If several stores have a lock of that name, the first.
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)
    }

    /// The guard of one lock by the label of its store ([`Client::store_label`](crate::Client::store_label)) and its name.
    pub fn get_on(&self, store: &str, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.store_label() == store && guard.name().as_str() == name)
    }

    /// The fence of one lock by its name: [`GroupGuard::get`].
    pub fn fence(&self, name: &str) -> Option<Fence> {
        self.get(name).map(Guard::fence)
    }

    /// Every name with its fence, in the order of [`GroupGuard::guards`].
    pub fn fences(&self) -> impl Iterator<Item = (&Name, Fence)> {
        self.guards.iter().map(|guard| (guard.name(), guard.fence()))
    }

    /// Whether the holder may act now, by the clock: whether all locks are valid.
    pub fn is_valid(&self) -> bool {
        self.time_left().is_some()
    }

    /// How long the holder may act without a renewal: the shortest of them. None if it may not.
    pub fn time_left(&self) -> Option<Duration> {
        self.guards.iter().map(Guard::time_left).min().flatten()
    }

    /// How long they have been held, or had been when they were lost: the longest of them.
    pub fn held_for(&self) -> Duration {
        self.guards.iter().map(Guard::held_for).max().unwrap_or_default()
    }

    /// Resolves when one of them is lost, and returns which one and why.
    ///
    /// # Guarantees
    ///
    /// As [`LostSignal::wait`], by the store of the lost one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # use std::time::Duration;
    /// let guard = client.lock_all(["alice", "bob"])?.lease(Duration::from_millis(50)).acquire().await?;
    /// let lost = guard.lost().await;
    /// println!("{} on {}: {}", lost.name, lost.store, lost.loss);
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> LostMember {
        let Some((at, loss)) = self.lost_signal().wait_for_one().await else { return std::future::pending().await };
        let guard = &self.guards[at];
        LostMember { store: guard.shell.store.label().clone(), name: guard.name().clone(), loss }
    }

    /// The lost signal as a value of its own, for other tasks. It does not say which of them was lost.
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal { cells: self.guards.iter().map(Guard::lost_cell).collect() }
    }

    /// How the first lost one in order was lost: why, when, after how long, and which renewals failed before.
    pub fn loss_report(&self) -> Option<LossReport> {
        self.lost_signal().report()
    }

    /// The names that are known to be lost: often only some of them.
    pub fn lost_names(&self) -> impl Iterator<Item = &Name> {
        self.guards.iter().filter(|guard| guard.lost_cell().is_lost()).map(Guard::name)
    }

    /// Runs a future under the locks, and drops it when one of them is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when one was lost before the future was done, also when that is noticed only as it ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the future that it runs; the guard stays as it is.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock_all(["alice", "bob"])?.acquire().await?;
    /// guard.protect(async { /* the work */ }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        match guard::until_lost(&self.lost_signal(), work).await {
            Some(output) if self.is_valid() => Ok(output),
            _ => {
                let first = self.guards.iter().find(|guard| !guard.is_valid()).unwrap_or(&self.guards[0]);
                Err(first.lost_error("protect"))
            }
        }
    }

    /// Makes every lease last for `term` from now, if it would end before that: [`Guard::extend`] on each.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::extend`], of each that failed ([`Error::failures`]); the others are extended.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::extend`].
    ///
    /// # Panics
    ///
    /// If a [`Layer`](crate::Layer) panics during a call: the panic goes on to the caller.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock_all(["alice", "bob"])?.lease(Duration::from_secs(10)).acquire().await?;
    /// guard.extend(Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, term: Duration) -> Result<(), Error> {
        let clients = self.by_client().map(|guards| in_turn(guards.iter().map(move |guard| guard.extend(term))));
        together("extend", clients.collect()).await
    }

    /// Releases all of them, several stores at the same time, and returns the result. All are released, also if one fails.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::release`], of each that failed: if there is more than one, [`Error::failures`] has them all.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    ///
    /// # Panics
    ///
    /// If a [`Layer`](crate::Layer) panics during a call: the panic goes on to the caller.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// client.lock_all(["alice", "bob"])?.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        let sizes: Vec<usize> = self.by_client().map(<[Guard]>::len).collect();
        let mut guards = std::mem::take(&mut self.guards).into_iter();
        let clients = sizes.into_iter().map(|size| guards.by_ref().take(size).collect::<Vec<_>>());
        // The last first. Were this future dropped, the rest would be released by their guards.
        together("release", clients.map(|guards| in_turn(guards.into_iter().rev().map(Guard::release))).collect()).await
    }

    /// Leaves fixed leases to their explicit owner, all or none: [`Guard::leave`].
    ///
    /// # Errors
    ///
    /// The guard is returned with each of them, as it was. Those of [`Guard::leave`]; [`ErrorKind::BadArgument`] for locks of several
    /// clients, which cannot be left in one step.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::leave`].
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::time::Duration;
    /// let client = leasehold::Client::connect("redis://localhost").await?;
    /// let owner = leasehold::Owner::explicit("deploy-17")?;
    /// let group = client.lock_all(["blue", "green"])?.owned_by(&owner).lease(Duration::from_secs(60));
    /// group.acquire().await?.leave().await.map_err(|(_, error)| error)?;
    /// # Ok(()) }
    /// ```
    pub async fn leave(mut self) -> Result<(), (Self, Error)> {
        if self.by_client().count() > 1 {
            let what = "locks of several clients cannot be left to their owner in one step";
            return Err((self, Error::new(ErrorKind::BadArgument, "leave", what)));
        }
        match guard::leave_all(&mut self.guards).await {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// The guards of each client in turn.
    fn by_client(&self) -> impl Iterator<Item = &[Guard]> {
        self.guards.chunk_by(|one, other| Arc::ptr_eq(&one.shell, &other.shell))
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // In a forked child the mutex of the queue may be locked for ever.
        if let Some((since, process)) = &self.since
            && process.is_current()
        {
            group_queue::held(leasehold_clock::now().since(*since));
        }
    }
}

impl fmt::Debug for GroupGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}

/// Runs several futures one after another, and returns the errors.
async fn in_turn<F: Future<Output = Result<(), Error>>>(all: impl Iterator<Item = F>) -> Vec<Error> {
    let mut failures = Vec::new();
    for one in all {
        failures.extend(one.await.err());
    }
    failures
}

/// Runs several futures at the same time, to the end of each: a slow one holds up no other.
async fn together<F: Future<Output = Vec<Error>>>(operation: &'static str, all: Vec<F>) -> Result<(), Error> {
    let mut under_way: Vec<Option<Pin<Box<F>>>> = all.into_iter().map(|one| Some(Box::pin(one))).collect();
    let mut failures = Vec::new();
    poll_fn(|task| {
        for one in &mut under_way {
            if let Some(Poll::Ready(failed)) = one.as_mut().map(|one| one.as_mut().poll(task)) {
                *one = None;
                failures.extend(failed);
            }
        }
        if under_way.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    Error::of_several(operation, failures).map_or(Ok(()), Err)
}
