//! Sockets and timers live on threads of this store's own, whatever runtime a caller has, or none.
//!
//! A caller's runtime may be blocked, have no timers, or be driven by nobody for a while; and a future of a caller's may be polled once
//! and then never again. Nothing that others wait for may depend on either.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::task::AbortHandle;

/// Which of our threads a connection lives on.
///
/// On the callers' thread hints are told, and with them code of the user's may run, which may block; the keeper's must not wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Thread {
    Callers,
    Keepers,
}

impl Thread {
    /// Sockets and timers that are made until this is dropped are ours.
    pub(crate) fn enter(self) -> EnterGuard<'static> {
        self.runtime().enter()
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
        let panicked = |_| Error::new(ErrorKind::Internal, "call", "the thread of the connection failed");
        self.runtime().spawn(work).await.map_err(panicked)?
    }

    /// Runs work here until it ends or is ended.
    pub(crate) fn spawn(self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime().spawn(work).abort_handle()
    }

    /// Runs work here that nobody waits for.
    pub(crate) fn behind(self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(work);
    }

    /// Made when it is first needed, once a process.
    fn runtime(self) -> &'static Runtime {
        static CALLERS: OnceLock<Runtime> = OnceLock::new();
        static KEEPERS: OnceLock<Runtime> = OnceLock::new();
        let (place, name) = match self {
            Self::Callers => (&CALLERS, "leasehold-redis"),
            Self::Keepers => (&KEEPERS, "leasehold-rkeep"),
        };
        place.get_or_init(|| {
            let runtime = Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build();
            runtime.expect("a thread for the connection")
        })
    }
}
