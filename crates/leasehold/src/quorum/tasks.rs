//! A thread of the process's own for what goes on behind a verdict, and for alarms: whatever runtime a caller has, or none.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::{Builder, Handle};

static HANDLE: OnceLock<Handle> = OnceLock::new();

/// Starts it, once a process. A quorum is made only where this succeeds.
pub(super) fn start() -> Result<(), Error> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if HANDLE.get().is_none() {
        let _ = HANDLE.set(begin().map_err(no_thread)?);
    }
    Ok(())
}

/// The runtime of that thread.
pub(super) fn handle() -> Option<&'static Handle> {
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

fn no_thread(cause: io::Error) -> Error {
    let what = format!("no thread can be started for the quorum: {cause}");
    Error::new(ErrorKind::Internal, "connect", what)
        .with_source(cause)
        .with_hint("look at the limits of this process: threads (ulimit -u), open files (ulimit -n), memory")
}
