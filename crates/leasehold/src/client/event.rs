//! Every step as an event, for metrics and logs. Without a listener, events are not even put together.

use std::time::Duration;

use leasehold_core::table::{How, Loss};
use leasehold_core::{Error, Fence, Name};

use crate::client::status::Holder;
use crate::guard::lost::LossReport;

/// Something that a client did, or that happened to it.
///
/// Events of one task come in order. Events of two tasks can cross: a grant to the next holder may come before the release of the
/// last one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The store is asked for locks.
    Asked {
        /// Their names.
        names: &'a [Name],
    },
    /// A task was granted a lock: by the store, by another task of this client, or because it had it already.
    Granted {
        /// The lock.
        name: &'a Name,
        /// The hold: a number of its own for every grant.
        hold: u64,
        /// The fence of the grant.
        fence: Fence,
        /// How it was granted.
        how: How,
        /// How long the task waited.
        waited: Duration,
    },
    /// A task begins to wait, because another holds the lock.
    Waits {
        /// The lock.
        name: &'a Name,
    },
    /// A task did not get the lock: it asked once, or ran out of time.
    Busy {
        /// The lock.
        name: &'a Name,
        /// How long the task waited.
        waited: Duration,
        /// Who holds it, as far as is known.
        holder: &'a Holder,
    },
    /// A task no longer wants the lock: its future was dropped before it had an answer.
    Cancelled {
        /// The lock.
        name: &'a Name,
        /// How long the task waited.
        waited: Duration,
        /// Who holds it, as far as is known.
        holder: &'a Holder,
    },
    /// A task did not get the lock, because of an error.
    Failed {
        /// The lock.
        name: &'a Name,
        /// How long the task waited.
        waited: Duration,
        /// The reason.
        error: &'a Error,
    },
    /// Leases were renewed, or could not be.
    Renewed {
        /// How many were in the batch; none where the store did not answer.
        leases: usize,
        /// How long it took.
        took: Duration,
        /// Whether the store answered.
        answered: bool,
    },
    /// A lock was not renewed: the store did not answer, refused, or could not tell. The renewal is retried until no time is left.
    RenewalFailed {
        /// The lock.
        name: &'a Name,
        /// The reason.
        error: &'a Error,
        /// How long after the renewal was sent.
        took: Duration,
        /// How long the lock is still held without a renewal.
        left: Duration,
    },
    /// A renewal was not answered for so long that it is sent again.
    RenewalLate {
        /// The lock.
        name: &'a Name,
        /// How long the lock is still held without a renewal.
        left: Duration,
    },
    /// A lock was lost.
    Lost {
        /// The lock.
        name: &'a Name,
        /// The hold of its [`Event::Granted`].
        hold: u64,
        /// Why.
        loss: Loss,
        /// When, after how long, and which renewals had failed before.
        report: &'a LossReport,
    },
    /// A guard was released: to the store, or to another task of this client.
    Released {
        /// The lock.
        name: &'a Name,
        /// The hold of its [`Event::Granted`].
        hold: u64,
        /// Whether it was still held. False if the lock was lost before.
        ok: bool,
        /// How long it was held, or had been when it was lost.
        held: Duration,
    },
    /// A guard left its lock to its owner: it is not released, and this client knows nothing more of it.
    Detached {
        /// The lock.
        name: &'a Name,
        /// The hold of its [`Event::Granted`].
        hold: u64,
        /// How long it was held by this guard.
        held: Duration,
    },
}

/// One list for both, so that a test that covers every event cannot miss one.
macro_rules! kinds {
    ($($variant:ident => $kind:literal,)*) => {
        impl Event<'_> {
            /// The kinds of all events.
            pub const KINDS: &'static [&'static str] = &[$($kind,)*];

            /// Which event it is, as a word for metrics.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $kind,)*
                }
            }
        }
    };
}

kinds! {
    Asked => "asked",
    Granted => "granted",
    Waits => "waits",
    Busy => "busy",
    Cancelled => "cancelled",
    Failed => "failed",
    Renewed => "renewed",
    RenewalFailed => "renewal_failed",
    RenewalLate => "renewal_late",
    Lost => "lost",
    Released => "released",
    Detached => "left",
}

impl Event<'_> {
    /// Records the event with `tracing`: what needs attention as a warning, the rest at debug level.
    pub(crate) fn trace(&self, store: &str) {
        match self {
            Self::Asked { names } => tracing::debug!(store, lock = %names[0], names = names.len(), "asked"),
            Self::Granted { name, hold, fence, how, waited } => {
                tracing::debug!(store, lock = %name, hold, fence = fence.get(), ?how, ?waited, "granted");
            }
            Self::Waits { name } => tracing::debug!(store, lock = %name, "waits"),
            Self::Busy { name, waited, holder } => {
                tracing::debug!(store, lock = %name, ?waited, %holder, "busy");
            }
            Self::Cancelled { name, waited, holder } => {
                tracing::debug!(store, lock = %name, ?waited, %holder, "cancelled");
            }
            Self::Failed { name, waited, error } => {
                tracing::debug!(store, lock = %name, ?waited, %error, "failed");
            }
            Self::Renewed { leases, took, answered: true } => tracing::debug!(store, leases, ?took, "renewed"),
            Self::Renewed { took, .. } => tracing::warn!(store, ?took, "a renewal was not answered"),
            Self::RenewalFailed { name, error, took, left } => {
                tracing::debug!(store, lock = %name, %error, ?took, ?left, "a lock was not renewed");
            }
            Self::RenewalLate { name, left } => {
                tracing::debug!(store, lock = %name, ?left, "a renewal is late");
            }
            Self::Lost { name, hold, loss, report } => {
                let last = report.renewals.last().map(|failed| tracing::field::display(&failed.error));
                tracing::warn!(store, lock = %name, hold, ?loss, held = ?report.held, last_renewal = last, "lost");
            }
            Self::Released { name, hold, ok, held } => {
                tracing::debug!(store, lock = %name, hold, ok, ?held, "released");
            }
            Self::Detached { name, hold, held } => {
                tracing::debug!(store, lock = %name, hold, ?held, "left to its owner");
            }
        }
    }
}

/// Receives every event of a client. It is called on the caller's task or the keeper's thread: be quick, and do not call the client.
/// A listener that panics is logged with `tracing`, and changes nothing for the client or its callers.
pub trait Listener: Send + Sync + 'static {
    /// An event happened.
    fn on(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Listener for F {
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}
