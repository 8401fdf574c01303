//! A thread of the process's own for what goes on behind a verdict, and for alarms: whatever runtime a caller has, or none.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

/// The runtime of that thread, made when it is first needed.
pub(super) fn handle() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime for quorums");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("leasehold-quorum".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .expect("a thread for quorums");
        handle
    })
}
