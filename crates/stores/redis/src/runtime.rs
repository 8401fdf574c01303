//! Sockets and timers live on a thread of this store's own, whatever runtime a caller has, or none.
//!
//! A caller's runtime may be blocked, have no timers, or be driven by nobody for a while; and a future of a caller's may be polled once
//! and then never again. Nothing that others wait for may depend on either.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::{Builder, Runtime};

/// Polls a future of the caller's so that the sockets and timers it makes are ours.
pub(crate) async fn with_ours<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|task| {
        let _context = ours().enter();
        future.as_mut().poll(task)
    })
    .await
}

/// Runs work to its end on our thread, whether or not the caller goes on waiting for it.
pub(crate) async fn on_ours<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let panicked = |_| Error::new(ErrorKind::Internal, "call", "the thread of the connection failed");
    ours().spawn(work).await.map_err(panicked)?
}

/// Runs work on our thread that nobody waits for.
pub(crate) fn behind(work: impl Future<Output = ()> + Send + 'static) {
    ours().spawn(work);
}

/// One thread for every connection of this process, made when it is first needed.
fn ours() -> &'static Runtime {
    static OURS: OnceLock<Runtime> = OnceLock::new();
    OURS.get_or_init(|| {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("leasehold-redis").enable_all().build();
        runtime.expect("a thread for the connection")
    })
}
