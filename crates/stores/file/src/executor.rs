//! Runs a write on the caller's thread, or on a worker thread while another process keeps the file busy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use leasehold_core::port::Call;
use leasehold_core::{Error, ErrorKind, StoreTime};
use tokio::sync::oneshot;

use crate::database::{Clock, Database, Session, Written};
use crate::error::Fault;
use crate::unforked::Unforked;

/// How long the caller's own thread waits for a busy file.
pub(crate) const CALLER_PATIENCE: Duration = Duration::from_millis(10);
/// How long a call waits for a busy file on the worker thread.
pub(crate) const WORKER_PATIENCE: Duration = Duration::from_millis(1_500);

/// Attempts to lock a database that another thread uses, before the work goes to the worker.
const TRIES_MAX: usize = 200;

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Executor {
    database: Mutex<Unforked<Database>>,
    clock: Arc<Clock>,
    /// Number of jobs that wait for a busy file, and the channel to the worker.
    waiting: AtomicUsize,
    worker: Mutex<Option<mpsc::Sender<Job>>>,
}

impl Executor {
    pub(crate) fn new(database: Database) -> Self {
        let clock = database.clock();
        let database = Mutex::new(Unforked::new(database));
        Self { database, clock, waiting: AtomicUsize::new(0), worker: Mutex::default() }
    }

    /// After a panic the connection is still usable: every write starts from a clean transaction.
    pub(crate) fn database(&self) -> MutexGuard<'_, Unforked<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's clock. Never waits.
    pub(crate) fn now(&self) -> StoreTime {
        self.clock.now()
    }

    /// One atomic step, done when this returns unless the file stays busy. `then` maps the result after the write.
    pub(crate) fn write<T: 'static, R: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
        then: impl FnOnce(Result<Written<T>, Error>) -> R + Send + 'static,
        failed: impl FnOnce(Error) -> R + Send + 'static,
    ) -> Call<R> {
        self.work(move |database, patience| database.write(patience, &work), then, failed)
    }

    /// Does the work at once, or hands it to the worker if the file is busy or other jobs wait already.
    pub(crate) fn work<T: 'static, R: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&mut Database, Duration) -> Result<T, Fault> + Send + 'static,
        then: impl FnOnce(Result<T, Error>) -> R + Send + 'static,
        failed: impl FnOnce(Error) -> R + Send + 'static,
    ) -> Call<R> {
        if let Some(mut database) = self.try_database() {
            let done = work(&mut database, CALLER_PATIENCE);
            drop(database);
            if !matches!(done, Err(Fault::Busy)) {
                return Call::done(then(done.map_err(Fault::into_error)));
            }
        }
        let limit = leasehold_clock::now() + WORKER_PATIENCE;
        let (sender, receiver) = oneshot::channel();
        let executor = self.clone();
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.send_to_worker(Box::new(move || {
            let done = work(&mut executor.database(), limit.since(leasehold_clock::now()));
            executor.waiting.fetch_sub(1, Ordering::AcqRel);
            // The caller may be gone.
            let _ = sender.send(then(done.map_err(Fault::into_error)));
        }));
        Call::pending(async move { receiver.await.unwrap_or_else(|_| failed(no_worker())) })
    }

    /// The database, if it is available within a moment and no job waits.
    fn try_database(&self) -> Option<MutexGuard<'_, Unforked<Database>>> {
        for _ in 0..TRIES_MAX {
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

    fn send_to_worker(&self, job: Job) {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match worker.as_ref() {
            Some(way) => way.send(job).map_err(|refused| refused.0).err(),
            None => Some(job),
        };
        let Some(job) = refused else { return };
        let (way, jobs) = mpsc::channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        if std::thread::Builder::new().name("leasehold-file".into()).spawn(work).is_ok() {
            // The new worker has the receiver, so this cannot fail.
            let _ = way.send(job);
            *worker = Some(way);
        } else {
            // No thread could be started: the work is done here after all, slowly.
            drop(worker);
            job();
        }
    }
}

fn no_worker() -> Error {
    let what = "the worker thread of the file has ended";
    Error::new(ErrorKind::Internal, "write", what).with_outcome(leasehold_core::Outcome::Unknown)
}
