//! Sockets and timers live on threads of this store's own, whatever runtime a caller has, or none.
//!
//! A caller's runtime may be blocked, have no timers, or be driven by nobody for a while; and a future of a caller's may be polled once
//! and then never again. Nothing that others wait for may depend on either. Nor may a process that can have no more threads or files
//! panic here: a store is refused before anything runs on a thread that is not there.

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
/// On the callers' thread hints are told, and with them code of the user's may run, which may block; the keeper's must not wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Thread {
    Callers,
    Keepers,
}

impl Thread {
    /// Starts it, once a process. A store is made only where this succeeds.
    ///
    /// # Errors
    ///
    /// The process can have no more threads or files.
    pub(crate) fn start(self) -> Result<(), Error> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, name) = self.place();
        if place.get().is_none() {
            let _ = place.set(begin(name).map_err(error::no_thread)?);
        }
        Ok(())
    }

    /// Sockets and timers that are made until this is dropped are ours.
    pub(crate) fn enter(self) -> Option<EnterGuard<'static>> {
        self.handle().map(Handle::enter)
    }

    /// Polls a future of the caller's so that the sockets and timers it makes are ours.
    pub(crate) async fn polls<T>(self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|task| {
            let _context = self.enter();
            future.as_mut().poll(task)
        })
        .await
    }

    /// Runs work to its end here, whether or not the caller goes on waiting for it.
    pub(crate) async fn runs<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let failed = || Error::new(ErrorKind::Internal, "call", "the thread of the connection failed");
        self.handle().ok_or_else(failed)?.spawn(work).await.map_err(|_| failed())?
    }

    /// Runs work here until it ends or is ended.
    pub(crate) fn spawn(self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        self.handle().map(|handle| handle.spawn(work).abort_handle())
    }

    /// Runs work here that nobody waits for.
    pub(crate) fn behind(self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(work);
    }

    fn handle(self) -> Option<&'static Handle> {
        self.place().0.get()
    }

    fn place(self) -> (&'static OnceLock<Handle>, &'static str) {
        static CALLERS: OnceLock<Handle> = OnceLock::new();
        static KEEPERS: OnceLock<Handle> = OnceLock::new();
        match self {
            Self::Callers => (&CALLERS, "leasehold-redis"),
            Self::Keepers => (&KEEPERS, "leasehold-rkeep"),
        }
    }
}

/// A thread with a runtime that runs for as long as the process does. A runtime that makes its own threads panics where there are none.
fn begin(name: &str) -> io::Result<Handle> {
    leasehold_clock::room_for_runtime()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (give, given) = std::sync::mpsc::channel::<Runtime>();
    let runs = move || given.recv().map_or((), |runtime| runtime.block_on(std::future::pending()));
    match std::thread::Builder::new().name(name.to_owned()).spawn(runs) {
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
