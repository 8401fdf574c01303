//! A guard: the value that stands for a lease in a program.

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
use crate::runtime::acquire_call::{AcquireCall, Alarm};
use crate::runtime::background::Remains;
use crate::runtime::handle::Handle;
use crate::runtime::in_flight::{Completed, InFlight, unknown};
use crate::runtime::shell::{Effects, Recipient, Shell};

/// Stands for a lock that is held, or for several that were taken together.
///
/// Dropping it gives the lock back in the background; [`Guard::release`] does so and gives the result. A kept lock is renewed as
/// long as its guard lives: one that is leaked with [`std::mem::forget`] is renewed until the process ends or the client is closed.
///
/// # Guarantees
///
/// While [`Guard::is_valid`] says so, no guard of another owner is valid anywhere, as far as the store keeps what it promises (see
/// its docs, and `docs/safety.md` in the repository). A process that is paused between that check and its work is beyond any lock: hand
/// [`Guard::fence`] to the resource and let it refuse older ones.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    shell: Handle,
    owner: Owner,
    pieces: SmallVec<[Piece; 1]>,
    /// Its owner had it, or one of several, already.
    entered: bool,
}

struct Piece {
    name: Name,
    hold: HoldId,
    fence: Fence,
}

impl Guard {
    pub(crate) fn new(shell: Handle, names: &Names, owner: Owner, grants: &[Grant]) -> Self {
        let piece = |(name, grant): (&Name, &Grant)| Piece { name: name.clone(), hold: grant.hold, fence: grant.fence };
        let pieces = names.as_slice().iter().zip(grants).map(piece).collect();
        let entered = grants.iter().any(|grant| grant.entered);
        Self { shell, owner, pieces, entered }
    }

    /// The fence of this grant: larger than that of every earlier grant of the name. Of several names, that of the first in order.
    pub fn fence(&self) -> Fence {
        self.pieces[0].fence
    }

    /// Every name with its fence, in the order of names.
    pub fn fences(&self) -> impl Iterator<Item = (&Name, Fence)> {
        self.pieces.iter().map(|piece| (&piece.name, piece.fence))
    }

    /// The name; of several, the first in order.
    pub fn name(&self) -> &Name {
        &self.pieces[0].name
    }

    /// Who holds it. Given to [`Lock::owned_by`](crate::Lock::owned_by), it re-enters.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// How many guards this client has on this lock, this one included; zero when it is lost.
    pub fn holds(&self) -> u32 {
        if self.shell.is_forked() {
            return 0;
        }
        let piece = &self.pieces[0];
        self.shell.state().table.holds(&piece.name, piece.hold)
    }

    /// The requests under which the store counts what is held, in the order of names; none when one of them is lost. With
    /// [`Lock::release_hold`](crate::Lock::release_hold), another process gives back exactly that, should this one be killed.
    pub fn requests(&self) -> Option<Vec<RequestId>> {
        if self.shell.is_forked() {
            return None;
        }
        let state = self.shell.state();
        self.pieces.iter().map(|piece| state.table.request_of(&piece.name, piece.hold)).collect()
    }

    /// Whether it re-entered, in this client or through the store.
    pub(crate) fn has_entered(&self) -> bool {
        self.entered
    }

    pub(crate) fn store(&self) -> &Arc<str> {
        self.shell.store.label()
    }

    /// Whether the holder may act, by the clock, now.
    pub fn is_valid(&self) -> bool {
        self.time_left().is_some()
    }

    /// How long the holder may act if nothing is renewed; none when it may not. Of several names, the shortest.
    pub fn time_left(&self) -> Option<Duration> {
        if self.shell.is_forked() {
            return None;
        }
        let state = self.shell.state();
        let now = leasehold_clock::now();
        let mut shortest = Duration::MAX;
        for piece in &self.pieces {
            shortest = shortest.min(state.table.time_left(now, &piece.name, piece.hold)?);
        }
        Some(shortest)
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
    pub async fn lost(&self) -> Loss {
        match self.lost_signal().wait().await {
            Some(loss) => loss,
            // Only a release ends the signal otherwise, and a release takes the guard.
            None => std::future::pending().await,
        }
    }

    /// The lost signal as a value of its own, for other tasks.
    pub fn lost_signal(&self) -> LostSignal {
        if self.shell.is_forked() {
            // The mutex may have been held at the fork by a thread that is not here.
            return LostSignal { cells: self.pieces.iter().map(|_| Arc::new(LostCell::lost(None))).collect() };
        }
        let mut state = self.shell.state();
        let cell = |piece: &Piece| match state.table.is_held(&piece.name, piece.hold) {
            true => state.lost.entry(piece.hold).or_default().clone(),
            false => Arc::new(LostCell::lost(state.table.loss(piece.hold))),
        };
        LostSignal { cells: self.pieces.iter().map(cell).collect() }
    }

    /// How the lock was lost: why, when, after how long, and which renewals had failed before. None while it is not known to be lost; of
    /// several names, of the first in order that is.
    pub fn loss_report(&self) -> Option<LossReport> {
        self.lost_signal().report()
    }

    /// The names that are known to be lost, in order: of several, often not all.
    pub fn lost_names(&self) -> impl Iterator<Item = &Name> {
        let cells = self.lost_signal().cells;
        let pieces = self.pieces.iter().enumerate();
        pieces.filter(move |(at, _)| cells[*at].is_lost()).map(|(_, piece)| &piece.name)
    }

    /// Runs a future under the lock, and drops it when the lock is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the lock was lost before the future was done, also when that is noticed only as it ends.
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
    /// let guard = client.lock("reports").acquire().await?;
    /// let written = guard.protect(async { write_reports().await }).await?; // was the lock lost?
    /// written.expect("a disk with room"); // did the work go well?
    /// # async fn write_reports() -> std::io::Result<()> { Ok(()) }
    /// # Ok(()) }
    /// ```
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
            _ => Err(self.lost_error("protect")),
        }
    }

    /// Makes the lease last for `term` from now, if it would not anyway. For fixed leases; a kept lock renews itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when it is gone; it is never made again. [`ErrorKind::BadArgument`] for a term out of the store's bounds.
    /// A store that did not answer: the lease then ends when it would have, or later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the lease was lengthened; the guard goes by the shorter time.
    pub async fn extend(&self, term: Duration) -> Result<(), Error> {
        self.shell.check_process("extend")?;
        let store = &self.shell.store;
        let unfit = |error: Error| error.during("extend").on_store(store.label());
        options::check_lease("lease", term, &store.capability()).map_err(unfit)?;
        for piece in &self.pieces {
            let (name, hold) = (piece.name.clone(), piece.hold);
            let names = Names::One(name.clone());
            let (asking, told) = AcquireCall::new(&self.shell, &names, |id| Input::Extend(id, hold, name, term));
            asking.run(told, None).await?;
        }
        Ok(())
    }

    /// Gives the lock back, and says how that went. Of several names all are given back, also when one fails; each failure is told by
    /// [`Error::failures`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when it was lost before: others may have held it meanwhile. When the store did not answer, its error;
    /// the release is then tried again in the background until it is answered or the lease is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    pub async fn release(mut self) -> Result<(), Error> {
        self.shell.check_process("release")?;
        let shell = self.shell.clone();
        let mut pieces = std::mem::take(&mut self.pieces);
        let mut failures = Vec::new();
        while let Some(piece) = pieces.pop() {
            // Were this future dropped, the rest would be released by the guard.
            self.pieces = std::mem::take(&mut pieces);
            let one = Releasing::start(&shell, piece).run().await;
            pieces = std::mem::take(&mut self.pieces);
            failures.extend(one.err());
        }
        Error::of_several("release", failures).map_or(Ok(()), Err)
    }

    /// Leaves a fixed lease to its explicit owner: it is neither given back nor renewed, and this client knows nothing more of it.
    /// Whoever gives the same owner can re-enter it, or go on with it by [`Lock::renew`](crate::Lock::renew) and
    /// [`Lock::release`](crate::Lock::release), also in another process, until it ends. Of several names, all or none.
    ///
    /// # Errors
    ///
    /// The guard comes back with each of them, as it was. [`ErrorKind::BadArgument`] when the lock is kept, its owner was generated,
    /// this client has other guards on it, or the lease was lengthened for another guard or by a call whose answer was lost: the store
    /// might keep it beyond the end of this guard. [`ErrorKind::Lost`] when it was lost. [`ErrorKind::Unfit`] on a store where a lock ends with
    /// its process.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is done drops the guard. It is done at once, unless an earlier sending of the acquire was not
    /// answered: then when that can no longer be executed.
    pub async fn leave(mut self) -> Result<(), (Self, Error)> {
        let held = self.held_for();
        let wait = match self.entrust() {
            Ok(wait) => wait,
            Err(error) => return Err((self, error)),
        };
        if !wait.is_zero() {
            let mut alarm = Alarm::new(&self.shell, leasehold_clock::now() + wait);
            poll_fn(|task| alarm.poll(task)).await;
            match self.entrust() {
                Ok(wait) if wait.is_zero() => {}
                Ok(_) => return Err((self, unknown("leave", "an acquire that was not answered is still open"))),
                Err(error) => return Err((self, error)),
            }
        }
        for piece in std::mem::take(&mut self.pieces) {
            self.shell.tell(|| Event::Left { name: &piece.name, hold: piece.hold.number(), held: held + wait });
        }
        Ok(())
    }

    /// How long it has been held, or had been when it was lost. Of several names, the longest.
    pub fn held_for(&self) -> Duration {
        if self.shell.is_forked() {
            return Duration::ZERO;
        }
        let state = self.shell.state();
        let now = leasehold_clock::now();
        let held = self.pieces.iter().map(|piece| state.table.held_for(now, &piece.name, piece.hold));
        held.max().unwrap_or_default()
    }

    /// Answers how long to wait, where it is too early.
    fn entrust(&self) -> Result<Duration, Error> {
        self.shell.check_process("leave")?;
        let labelled = |error: Error| error.on_store(self.shell.store.label()).on_lock(self.name());
        if !self.shell.store.capability().outlives_process {
            let what = "on this store a lock ends with the process that took it";
            return Err(labelled(Error::new(ErrorKind::Unfit, "leave", what)));
        }
        let holds: SmallVec<[_; 1]> = self.pieces.iter().map(|piece| (piece.hold, &piece.name)).collect();
        self.shell.step_entrust(&holds).map_err(labelled)
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
        if self.pieces.is_empty() || self.shell.is_forked() {
            return;
        }
        for piece in &self.pieces {
            let (ok, held) = self.shell.drop_hold(piece.hold, &piece.name);
            self.shell.tell(|| Event::Released { name: &piece.name, hold: piece.hold.number(), ok, held });
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fences: Vec<_> = self.fences().collect();
        f.debug_struct("Guard").field("fences", &fences).field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// One hold on its way back. Dropped, it goes on in the background.
struct Releasing {
    shell: Arc<Shell>,
    piece: Piece,
    flight: Option<InFlight>,
    given: Option<Result<leasehold_core::port::Released, Error>>,
    held: Duration,
}

impl Releasing {
    fn start(shell: &Arc<Shell>, piece: Piece) -> Self {
        let mail = shell.step_release(piece.hold, &piece.name);
        let mut releasing = Self { shell: shell.clone(), piece, flight: None, given: None, held: mail.held };
        releasing.take_in(mail);
        releasing
    }

    fn take_in(&mut self, mail: Effects) {
        if mail.given.is_some() {
            self.given = mail.given;
        }
        if let Some(TaskEffect::Call(sending)) = mail.told {
            self.flight = Some(self.shell.start(*sending));
        }
    }

    async fn run(mut self) -> Result<(), Error> {
        while self.flight.is_some() {
            let landed = poll_fn(|task| match &mut self.flight {
                Some(flight) => flight.poll(task),
                None => Poll::Pending,
            });
            let Completed { context, answer, panic } = landed.await;
            self.flight = None;
            let mail = self.shell.step(Input::Answer(context, answer), Recipient::Hold(self.piece.hold));
            self.take_in(mail);
            if let Some(panic) = panic {
                self.tell(false);
                // The table has its answer, and sends the release again; the panic of a layer goes on to the caller.
                std::panic::resume_unwind(panic);
            }
        }
        let given = self.given.take().unwrap_or_else(|| Err(unknown("release", "the release was not answered")));
        let labelled = |error: Error| error.on_store(self.shell.store.label()).on_lock(&self.piece.name);
        let result = given.map(drop).map_err(labelled);
        self.tell(result.is_ok());
        result
    }

    fn tell(&self, ok: bool) {
        let (name, hold) = (&self.piece.name, self.piece.hold.number());
        self.shell.tell(|| Event::Released { name, hold, ok, held: self.held });
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take()
            && !self.shell.is_forked()
        {
            let remains = Remains::Released(self.piece.name.clone(), self.held);
            self.shell.adopt(flight, Recipient::Hold(self.piece.hold), remains);
        }
    }
}
