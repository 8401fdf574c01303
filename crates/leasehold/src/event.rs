//! Every step as an event, for metrics, logs and layers of the user's own. Nothing is put together where nobody listens.

use std::time::Duration;

use leasehold_core::table::{How, Loss};
use leasehold_core::{Fence, Name};

/// Something that a client did or that happened to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The store is asked for locks.
    Asked {
        /// For which.
        names: &'a [Name],
    },
    /// A task was granted a lock: by the store, by another task of this client, or because it had it already.
    Granted {
        /// Which.
        name: &'a Name,
        /// With which fence.
        fence: Fence,
        /// How it came.
        how: How,
        /// How long the task waited.
        waited: Duration,
        /// The hold, to match a later [`Event::Lost`].
        hold: u64,
    },
    /// A task begins to wait: another holds the lock.
    Waits {
        /// For which.
        name: &'a Name,
    },
    /// Leases were renewed, or could not be.
    Renewed {
        /// How many were in the batch.
        leases: usize,
        /// How long it took.
        took: Duration,
        /// Whether the store answered.
        answered: bool,
    },
    /// A lock was lost.
    Lost {
        /// The hold of its [`Event::Granted`].
        hold: u64,
        /// Why.
        loss: Loss,
    },
    /// A lock was given back, or handed to another task of this client.
    Released {
        /// Which.
        name: &'a Name,
        /// Whether it went well.
        ok: bool,
    },
}

/// Hears every event of a client. Called on the caller's task or the keeper's thread: be quick, and do not call the client.
pub trait Listener: Send + Sync + 'static {
    /// An event happened.
    fn on(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Listener for F {
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}
