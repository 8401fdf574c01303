//! Calls need a runtime for sockets and timers. A caller without one (a plain thread that blocks) borrows this one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// Polls a future in the runtime at hand, or where there is none, in one of this store's own.
pub(crate) async fn anywhere<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|task| {
        let _context = match Handle::try_current() {
            Ok(_) => None,
            Err(_) => Some(own().enter()),
        };
        future.as_mut().poll(task)
    })
    .await
}

/// One thread, made when it is first needed.
fn own() -> &'static Runtime {
    static OWN: OnceLock<Runtime> = OnceLock::new();
    OWN.get_or_init(|| {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("leasehold-redis").enable_all().build();
        runtime.expect("a thread for the connection")
    })
}
