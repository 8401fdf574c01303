//! The desk: where a caller's write is done at once, and by a thread of its own where another process keeps the file busy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use leasehold_core::port::Call;
use leasehold_core::{Error, ErrorKind, StoreTime};
use tokio::sync::oneshot;

use crate::database::{Clock, Database, Done, Session};
use crate::error::Fault;
use crate::unforked::Unforked;

/// How long a caller's own thread waits for a busy file.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(10);
/// How long a call waits for it in all, beside the caller's thread.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);

/// How many times a database that another thread uses is tried before the work is handed over.
const TRIES: usize = 200;

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Executor {
    database: Mutex<Unforked<Database>>,
    clock: Arc<Clock>,
    /// Jobs that wait for a busy file, and the way to the thread that does them.
    waiting: AtomicUsize,
    clerk: Mutex<Option<mpsc::Sender<Job>>>,
}

impl Executor {
    pub(crate) fn new(database: Database) -> Self {
        let clock = database.clock();
        let database = Mutex::new(Unforked::new(database));
        Self { database, clock, waiting: AtomicUsize::new(0), clerk: Mutex::default() }
    }

    /// Between two writes the connection is whole, whatever panicked.
    pub(crate) fn database(&self) -> MutexGuard<'_, Unforked<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's clock. It never waits.
    pub(crate) fn now(&self) -> StoreTime {
        self.clock.now()
    }

    /// One atomic step: done when this returns, unless the file is busy for long. `then` makes the answer of it, after the write.
    pub(crate) fn write<T: 'static, R: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
        then: impl FnOnce(Result<Done<T>, Error>) -> R + Send + 'static,
        failed: impl FnOnce(Error) -> R + Send + 'static,
    ) -> Call<R> {
        self.work(move |database, patience| database.write(patience, &work), then, failed)
    }

    /// Does the work at once, or has it done where the file is busy or others wait already.
    pub(crate) fn work<T: 'static, R: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&mut Database, Duration) -> Result<T, Fault> + Send + 'static,
        then: impl FnOnce(Result<T, Error>) -> R + Send + 'static,
        failed: impl FnOnce(Error) -> R + Send + 'static,
    ) -> Call<R> {
        if let Some(mut database) = self.at_hand() {
            let done = work(&mut database, AT_ONCE);
            drop(database);
            if !matches!(done, Err(Fault::Busy)) {
                return Call::done(then(done.map_err(Fault::into_error)));
            }
        }
        let limit = leasehold_clock::now() + PATIENCE;
        let (sender, receiver) = oneshot::channel();
        let desk = self.clone();
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.hand_over(Box::new(move || {
            let done = work(&mut desk.database(), limit.since(leasehold_clock::now()));
            desk.waiting.fetch_sub(1, Ordering::AcqRel);
            // Whoever asked may be gone.
            let _ = sender.send(then(done.map_err(Fault::into_error)));
        }));
        Call::pending(async move { receiver.await.unwrap_or_else(|_| failed(no_clerk())) })
    }

    /// The database, where it can be had in a moment and nobody waits already.
    fn at_hand(&self) -> Option<MutexGuard<'_, Unforked<Database>>> {
        for _ in 0..TRIES {
            if self.waiting.load(Ordering::Acquire) > 0 {
                return None;
            }
            match self.database.try_lock() {
                Ok(database) => return Some(database),
                Err(TryLockError::Poisoned(database)) => return Some(database.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    fn hand_over(&self, job: Job) {
        let mut clerk = self.clerk.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match clerk.as_ref() {
            Some(way) => way.send(job).map_err(|refused| refused.0).err(),
            None => Some(job),
        };
        let Some(job) = refused else { return };
        let (way, jobs) = mpsc::channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        if std::thread::Builder::new().name("leasehold-file".into()).spawn(work).is_ok() {
            // A thread that has just started takes it.
            let _ = way.send(job);
            *clerk = Some(way);
        } else {
            // No thread to be had: done here after all, slowly.
            drop(clerk);
            job();
        }
    }
}

fn no_clerk() -> Error {
    let what = "the thread that waits for the file has ended";
    Error::new(ErrorKind::Internal, "write", what).with_outcome(leasehold_core::Outcome::Unknown)
}
