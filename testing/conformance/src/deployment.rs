//! What a store must bring to be run here: a name, and a fresh place for every trial.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::case::{Checked, Failure};

/// A future in a box.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Something that only some deployments can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Stop the store and start it again on what it has kept: [`Place::restart`].
    Restart,
    /// Be reached from another process by the same URL.
    Processes,
    /// Notice at once when a process ends, and end what it kept.
    Liveness,
    /// Answer for all that it is made of, so that answers one after the other never differ by what is still under way.
    InStep,
    /// Continue a call that is neither polled nor dropped.
    Unattended,
}

/// One way of deploying one store.
pub trait Deployment: Send + Sync {
    /// Its name in the names of trials.
    fn name(&self) -> &'static str;

    /// Why it cannot do this; none where it can.
    fn lacks(&self, hook: Hook) -> Option<&'static str>;

    /// Creates a place for one trial: empty, and invisible to others. An error is a failure, except a missing program:
    /// [`Missing`](leasehold_faults::servers::Missing).
    fn open(&self) -> Boxed<Result<Arc<dyn Place>, Failure>>;
}

/// Where one trial runs.
pub trait Place: Send + Sync {
    /// Every client that connects to it is on the same store.
    fn url(&self) -> String;

    /// Stops the store and starts it again.
    fn restart(&self) -> Boxed<Result<(), Failure>> {
        Box::pin(async { Err("this place cannot be restarted".into()) })
    }

    /// How many records the store keeps, held or not, where one can look behind the port.
    fn records(&self) -> Option<usize> {
        None
    }

    /// Checks what the store has left behind, where one can look behind the port: that it is whole, and that nothing is there of
    /// processes that are gone.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check_whole(&self) -> Checked {
        Ok(())
    }
}
