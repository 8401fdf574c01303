//! A guard: the value that represents a lease in a program.

pub(crate) mod fence_gate;
pub(crate) mod lost;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::table::{Grant, HoldId, Input, Loss, TaskEffect};
use leasehold_core::{Error, ErrorKind, Fence, Name, Names, Owner, RequestId, options};
use smallvec::SmallVec;

use crate::client::event::Event;
use crate::guard::lost::{FailedRenewal, LossReport, LostCell, LostSignal};
use crate::runtime::acquire_call::AcquireCall;
use crate::runtime::handle::ShellHandle;
use crate::runtime::in_flight::{InFlight, unknown};
use crate::runtime::shell::Recipient;
use crate::runtime::timer::sleep_until;

/// A lock that is held. Locks that were acquired together have a [`GroupGuard`](crate::GroupGuard).
///
/// Dropping it releases the lock in the background; [`Guard::release`] does so and returns the result. A kept lock is renewed for as
/// long as its guard lives: one that is leaked with [`std::mem::forget`] is renewed until the process ends or the client is closed.
///
/// # Guarantees
///
/// While [`Guard::is_valid`] is true, no guard of another owner is valid anywhere, as far as the store keeps its promises (see
/// its docs, and `docs/safety.md` in the repository). No lock protects against a process that is paused between that check and its
/// work: pass [`Guard::fence`] to the resource, and let it refuse older ones.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    pub(crate) shell: Arc<ShellHandle>,
    owner: Owner,
    name: Name,
    pub(crate) hold: HoldId,
    fence: Fence,
    /// Its owner already had it.
    entered: bool,
    /// It was released, or left to its owner: dropping it does nothing.
    over: bool,
}

impl Guard {
    pub(crate) fn new(shell: Arc<ShellHandle>, name: Name, owner: Owner, grant: &Grant) -> Self {
        let Grant { hold, fence, entered, .. } = *grant;
        Self { shell, owner, name, hold, fence, entered, over: false }
    }

    /// The fence (fencing token) of this grant: larger than the fence of every earlier grant of the name.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The name of the lock.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The owner that holds it. With [`Lock::owned_by`](crate::Lock::owned_by) it re-enters.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// How many guards this client has on this lock, including this one. Zero if it is lost.
    pub fn holds(&self) -> u32 {
        if self.shell.is_forked() {
            return 0;
        }
        self.shell.state().table.holds(&self.name, self.hold)
    }

    /// The request under which the store counts this hold; none if it is lost. If this process is killed, another one can release
    /// exactly this hold with [`Detached::release_hold`](crate::Detached::release_hold).
    pub fn request(&self) -> Option<RequestId> {
        if self.shell.is_forked() {
            return None;
        }
        self.shell.state().table.request_of(&self.name, self.hold)
    }

    /// Whether it re-entered, in this client or through the store.
    pub(crate) fn has_entered(&self) -> bool {
        self.entered
    }

    /// The label of its store: [`Client::store_label`](crate::Client::store_label).
    pub fn store_label(&self) -> &str {
        self.shell.store.label()
    }

    /// Whether the holder may act now, by the clock.
    pub fn is_valid(&self) -> bool {
        self.time_left().is_some()
    }

    /// How long the holder may act without a renewal; none if it may not.
    pub fn time_left(&self) -> Option<Duration> {
        if self.shell.is_forked() {
            return None;
        }
        self.shell.state().table.time_left(leasehold_clock::now(), &self.name, self.hold)
    }

    /// Resolves when the lock is lost: when its time ended without a renewal, or the store no longer has it.
    ///
    /// # Guarantees
    ///
    /// As [`LostSignal::wait`].
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
    /// let guard = client.lock("reports")?.lease(Duration::from_millis(50)).acquire().await?;
    /// assert_eq!(guard.lost().await, leasehold::Loss::TimeEnded);
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Loss {
        match self.lost_signal().wait().await {
            Some(loss) => loss,
            // Otherwise only a release ends the signal, and a release consumes the guard.
            None => std::future::pending().await,
        }
    }

    /// The lost signal as a value of its own, for other tasks.
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal { cells: [self.lost_cell()].into() }
    }

    pub(crate) fn lost_cell(&self) -> Arc<LostCell> {
        if self.shell.is_forked() {
            // The mutex may have been held at the fork by a thread that is not here.
            return Arc::new(LostCell::lost(None));
        }
        let mut state = self.shell.state();
        match state.table.is_held(&self.name, self.hold) {
            true => state.lost.entry(self.hold).or_default().clone(),
            false => Arc::new(LostCell::lost(state.table.loss(self.hold))),
        }
    }

    /// How the lock was lost: why, when, after how long, and which renewals failed before. None while it is not known to be lost.
    pub fn loss_report(&self) -> Option<LossReport> {
        self.lost_signal().report()
    }

    /// Runs a future under the lock, and drops it when the lock is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lock was lost before the future was done, also when that is noticed only as it ends.
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
    /// let guard = client.lock("reports")?.acquire().await?;
    /// let written = guard.protect(async { write_reports().await }).await?; // was the lock lost?
    /// written.expect("a disk with room"); // did the work go well?
    /// # async fn write_reports() -> std::io::Result<()> { Ok(()) }
    /// # Ok(()) }
    /// ```
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        match until_lost(&self.lost_signal(), work).await {
            Some(output) if self.is_valid() => Ok(output),
            _ => Err(self.lost_error("protect")),
        }
    }

    /// Makes the lease last for `term` from now, if it would end before that. For fixed leases: a kept lock is renewed anyway.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if it is gone: a lease is never recreated. [`ErrorKind::BadArgument`] for a term outside the store's bounds.
    /// A store that did not answer: the lease then ends when it would have ended, or later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the lease was extended; the guard counts the shorter time.
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
    /// # use std::time::Duration;
    /// let guard = client.lock("reports")?.lease(Duration::from_secs(10)).acquire().await?;
    /// guard.extend(Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, term: Duration) -> Result<(), Error> {
        self.shell.check_process("extend")?;
        let store = &self.shell.store;
        let unfit = |error: Error| error.during("extend").on_store(store.label());
        options::check_lease("lease", term, &store.capability()).map_err(unfit)?;
        let names = Names::One(self.name.clone());
        let (hold, name) = (self.hold, self.name.clone());
        let call = AcquireCall::new(&self.shell, &names, None, |id| Input::Extend(id, hold, name, term));
        call.run(None).await.map(drop)
    }

    /// Releases the lock, and returns the result.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if it was lost before: others may have held it in the meantime. If the store did not answer, its error; the
    /// release is then retried in the background until it is answered or the lease is over.
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
    /// let guard = client.lock("reports")?.acquire().await?;
    /// guard.release().await?;
    /// assert!(!client.lock("reports")?.try_acquire().await?.is_busy());
    /// # Ok(()) }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        self.shell.check_process("release")?;
        self.over = true;
        ReleaseCall { guard: &self, in_flight: None, held: Duration::ZERO }.run().await
    }

    /// Detaches a fixed lease from this guard and leaves it to its explicit owner: it is neither released nor renewed, and this client
    /// knows nothing more of it. Until it ends, the same owner can re-enter it, or renew and release it without a guard
    /// ([`Client::detached`](crate::Client::detached)), also in another process.
    ///
    /// # Errors
    ///
    /// The guard is returned with each of them, as it was. [`ErrorKind::BadArgument`] if the lock is kept, its owner was generated,
    /// this client has other guards on it, or the lease was extended for another guard or by a call whose answer was lost: the store
    /// might keep it beyond the end of this guard. [`ErrorKind::Lost`] if it was lost. [`ErrorKind::Unfit`] on a store where a lock
    /// ends with its process.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is done drops the guard. It is done at once, unless an earlier sending of the acquire was not
    /// answered: then it waits until that can no longer be executed.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::time::Duration;
    /// let client = leasehold::Client::connect("redis://localhost").await?;
    /// let owner = leasehold::Owner::explicit("deploy-17")?;
    /// let guard = client.lock("deploy")?.owned_by(&owner).lease(Duration::from_secs(60)).acquire().await?;
    /// guard.leave().await.map_err(|(_, error)| error)?;
    /// # Ok(()) }
    /// ```
    pub async fn leave(mut self) -> Result<(), (Self, Error)> {
        match leave_all(std::slice::from_mut(&mut self)).await {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// How long it has been held, or had been when it was lost.
    pub fn held_for(&self) -> Duration {
        if self.shell.is_forked() {
            return Duration::ZERO;
        }
        self.shell.state().table.held_for(leasehold_clock::now(), &self.name, self.hold)
    }

    pub(crate) fn lost_error(&self, operation: &'static str) -> Error {
        let report = self.loss_report();
        let last = report.as_ref().and_then(|report| report.renewals.last());
        let why = report.as_ref().map_or(Loss::TimeEnded, |report| report.loss);
        let error = match last {
            None => Error::new(ErrorKind::Lost, operation, format!("the lock was lost: {why}")),
            Some(FailedRenewal { error, .. }) => {
                let what = format!("the lock was lost: {why}, and the last renewal had failed");
                Error::new(ErrorKind::Lost, operation, what).with_source(error.clone())
            }
        };
        error
            .with_hint("another may hold it by now; check the fence at the resource")
            .on_store(self.shell.store.label())
            .on_lock(self.name())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.over || self.shell.is_forked() {
            return;
        }
        let (ok, held) = self.shell.drop_hold(self.hold, &self.name);
        self.shell.emit(|| Event::Released { name: &self.name, hold: self.hold.number(), ok, held });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, fence, owner, .. } = self;
        let mut guard = f.debug_struct("Guard");
        guard.field("name", name).field("fence", fence).field("owner", owner).finish_non_exhaustive()
    }
}

/// The output of a future, unless a lock is lost first.
pub(crate) async fn until_lost<F: Future>(signal: &LostSignal, work: F) -> Option<F::Output> {
    let mut lost = pin!(signal.wait());
    let mut work = pin!(work);
    poll_fn(|task| {
        if lost.as_mut().poll(task).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(task).map(Some)
    })
    .await
}

/// Leaves locks of one client to their owner, all or none.
pub(crate) async fn leave_all(guards: &mut [Guard]) -> Result<(), Error> {
    let held = guards.iter().map(Guard::held_for).max().unwrap_or_default();
    let wait = detach(guards)?;
    if !wait.is_zero() {
        sleep_until(&guards[0].shell, leasehold_clock::now() + wait).await;
        if !detach(guards)?.is_zero() {
            return Err(unknown("leave", "an acquire that was not answered is still open"));
        }
    }
    for guard in guards {
        guard.over = true;
        let (name, hold) = (&guard.name, guard.hold.number());
        guard.shell.emit(|| Event::Detached { name, hold, held: held + wait });
    }
    Ok(())
}

/// Returns how long to wait if it is too early, else zero.
fn detach(guards: &[Guard]) -> Result<Duration, Error> {
    let first = &guards[0];
    let shell = &first.shell;
    shell.check_process("leave")?;
    let labelled = |error: Error| error.on_store(shell.store.label()).on_lock(&first.name);
    if !shell.store.capability().outlives_process {
        let what = "on this store a lock ends with the process that took it";
        return Err(labelled(Error::new(ErrorKind::Unfit, "leave", what)));
    }
    let holds: SmallVec<[_; 1]> = guards.iter().map(|guard| (guard.hold, &guard.name)).collect();
    shell.step_detach(&holds).map_err(labelled)
}

/// The release of one guard. Dropped, it goes on in the background.
struct ReleaseCall<'a> {
    guard: &'a Guard,
    in_flight: Option<InFlight>,
    /// How long it was held, if there is a listener.
    held: Duration,
}

impl ReleaseCall<'_> {
    async fn run(mut self) -> Result<(), Error> {
        let Guard { shell, name, hold, .. } = self.guard;
        let mut effects = shell.step_release(*hold, name);
        self.held = effects.held;
        let (mut released, mut panic) = (None, None);
        loop {
            released = effects.released.or(released);
            if let Some(TaskEffect::Call(sending)) = effects.effect {
                self.in_flight = Some(InFlight::start(shell, &shell.store, *sending));
            }
            if let Some(panic) = panic {
                shell.emit(|| Event::Released { name, hold: hold.number(), ok: false, held: self.held });
                // The table has its answer, and sends the release again; the panic of a layer goes on to the caller.
                std::panic::resume_unwind(panic);
            }
            let Some(in_flight) = &mut self.in_flight else { break };
            let completed = poll_fn(|task| in_flight.poll(task)).await;
            self.in_flight = None;
            effects = shell.step(Input::Answer(completed.context, completed.answer), Recipient::Hold(*hold));
            panic = completed.panic;
        }
        let released = released.unwrap_or_else(|| Err(unknown("release", "the release was not answered")));
        let result = released.map(drop).map_err(|error| error.on_store(shell.store.label()).on_lock(name));
        shell.emit(|| Event::Released { name, hold: hold.number(), ok: result.is_ok(), held: self.held });
        result
    }
}

impl Drop for ReleaseCall<'_> {
    fn drop(&mut self) {
        let Guard { shell, name, hold, .. } = self.guard;
        if let Some(in_flight) = self.in_flight.take()
            && !shell.is_forked()
        {
            let (name, hold, held) = (name.clone(), *hold, self.held);
            shell.adopt(in_flight, Recipient::Hold(hold), move |shell, effects| {
                shell.give_up(effects.effect, None);
                let ok = matches!(effects.released, Some(Ok(_)));
                shell.emit(|| Event::Released { name: &name, hold: hold.number(), ok, held });
            });
        }
    }
}
