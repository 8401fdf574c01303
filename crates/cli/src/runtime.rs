//! The runtime of async commands: one thread, because the library has its own keeper.

use crate::exit::{Exit, Failure};

/// Runs a command to its end.
pub(crate) fn block_on(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = leasehold_clock::room_for_runtime()
        .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
        .map_err(|error| {
            Failure::new(Exit::BUG, format!("the runtime could not be made: {error}"))
                .with_hint("check the limits of this process: open files (ulimit -n), memory".to_owned())
        })?;
    let done = runtime.block_on(command);
    // A thread that reads standard input is not waited for.
    runtime.shutdown_background();
    done
}
