//! The threads on which the store's sockets and timers live, whatever runtime a caller has.
//!
//! A caller's runtime may be blocked, have no timers, or not be driven for a while, and a caller's future may be polled
//! once and never again. Shared work must depend on neither. A process that can have no more threads or files must not
//! panic here: creating the store fails instead.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::AbortHandle;

use crate::error;

/// Which of our threads a connection lives on.
///
/// The callers' thread delivers hints and so may run user code, which may block. The keeper's thread must not wait for
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Thread {
    Callers,
    Keepers,
}

impl Thread {
    /// Starts the thread, once per process. A store is created only if this succeeds.
    ///
    /// # Errors
    ///
    /// The process can have no more threads or files.
    pub(crate) fn start(self) -> Result<(), Error> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, name) = self.slot();
        if slot.get().is_none() {
            let _ = slot.set(start_thread(name).map_err(error::no_thread)?);
        }
        Ok(())
    }

    /// Sockets and timers that are created until this is dropped live on this thread.
    pub(crate) fn enter(self) -> Option<EnterGuard<'static>> {
        self.handle().map(Handle::enter)
    }

    /// Polls a caller's future so that the sockets and timers it creates live on this thread.
    pub(crate) async fn polls<T>(self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|task| {
            let _context = self.enter();
            future.as_mut().poll(task)
        })
        .await
    }

    /// Runs work to its end on this thread, whether or not the caller keeps waiting.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let failed = || Error::new(ErrorKind::Internal, "call", "the thread of the connection failed");
        self.handle().ok_or_else(failed)?.spawn(work).await.map_err(|_| failed())?
    }

    /// Runs work on this thread until it ends or is aborted.
    pub(crate) fn spawn(self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        self.handle().map(|handle| handle.spawn(work).abort_handle())
    }

    /// Runs work on this thread that no caller waits for.
    pub(crate) fn spawn_detached(self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(work);
    }

    fn handle(self) -> Option<&'static Handle> {
        self.slot().0.get()
    }

    fn slot(self) -> (&'static OnceLock<Handle>, &'static str) {
        static CALLERS: OnceLock<Handle> = OnceLock::new();
        static KEEPERS: OnceLock<Handle> = OnceLock::new();
        match self {
            Self::Callers => (&CALLERS, "leasehold-redis"),
            Self::Keepers => (&KEEPERS, "leasehold-rkeep"),
        }
    }
}

/// A thread with a runtime that runs for as long as the process does. A runtime that makes its own threads panics where
/// there are none.
fn start_thread(name: &str) -> io::Result<Handle> {
    leasehold_clock::room_for_runtime()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (give, given) = std::sync::mpsc::channel::<Runtime>();
    let run_to_end = move || given.recv().map_or((), |runtime| runtime.block_on(std::future::pending()));
    match std::thread::Builder::new().name(name.to_owned()).spawn(run_to_end) {
        Ok(_) => {
            // The thread waits for just this.
            let _ = give.send(runtime);
            Ok(handle)
        }
        Err(error) => {
            // A runtime that is dropped in an async task panics: so it was not given to a thread that may not start.
            runtime.shutdown_background();
            Err(error)
        }
    }
}
