//! A thread of this process for background work and timers: callers may have any runtime or none.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold_core::Error;
use tokio::runtime::{Builder, Handle};

use crate::error;

static HANDLE: OnceLock<Handle> = OnceLock::new();

/// Starts it, once per process. Without it no quorum is created.
pub(crate) fn start() -> Result<(), Error> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if HANDLE.get().is_none() {
        let _ = HANDLE.set(begin().map_err(error::no_thread)?);
    }
    Ok(())
}

/// The runtime of that thread.
pub(crate) fn handle() -> Option<&'static Handle> {
    HANDLE.get()
}

fn begin() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("leasehold-quorum".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map(|_| handle)
}
