//! A distributed lock for people who have to be sure.
//!
//! A program acquires a lock by name and, for a time, is the only one that may act: across threads, processes and machines, over
//! the engine that you already run.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::Client::connect("memory:").await?;
//! let guard = client.lock("invoices")?.acquire().await?;      // waits; kept alive while the guard lives
//! guard.protect(async { /* the work */ }).await?;            // cancelled if the lock is lost
//! println!("fence {}", guard.fence());                       // for the resource to refuse older holders
//! guard.release().await?;                                    // or just drop it
//! # Ok(()) }
//! ```
//!
//! - [`Client`]: a connection to a store. [`Lock`]: a name with options. [`Guard`]: a lock that is held.
//! - [`Client::lock_all`], [`lock_all`]: several locks, of one store or of several, all or none, with one [`GroupGuard`].
//! - [`Client::detached`]: renewing and releasing without a guard.
//! - [`blocking`]: the same for programs without async.
//! - [`FenceGate`]: the check at the resource.
//! - [`examine`]: is a store fit to keep locks?
//! - [`Layer`], [`Listener`]: your own code around a store, and every step as an event.
//!
//! # Stores
//!
//! Each store is a feature of this crate, and is named by a URL or by a type of [`config`]. What it promises is in its docs and in
//! [`Capability`].
//!
//! | URL | feature | store |
//! |---|---|---|
//! | `memory:` | `memory` (default) | this process; `memory:NAME` for one of several |
//! | `file:PATH` | `file` | one machine, any number of processes |
//! | `redis://host`, `redis+unix:///path` | `redis` | one Redis or Valkey server |
//! | `redlock://a,b,c` | `redis` | a majority of independent servers; see [`quorum`] |
//!
//! Options are URL query parameters. Every URL has `?keep=10s`, the lease of kept locks that do not say otherwise, and
//! `?budget=50ms`, for how long a lock is handed from task to task before other processes get their turn (`0ms`: never).

pub mod blocking;
mod client;
mod group;
mod guard;
mod lock;
mod runtime;

pub use client::event::{Event, Listener};
pub use client::examine::{examine, not_created};
pub use client::layer::Layer;
pub use client::stats::{Calls, Stats};
pub use client::status::{Holder, Status};
pub use client::url::without_password;
pub use client::{Client, ClientBuilder};
pub use group::{GroupGuard, GroupLock, LostMember, lock_all};
pub use guard::Guard;
pub use guard::fence_gate::{FenceGate, Passed};
pub use guard::lost::{FailedRenewal, LossReport, LostSignal};
pub use lock::detached::Detached;
pub use lock::{Attempt, Lock};

pub use leasehold_core::port::{Break, BreakOptions};
pub use leasehold_core::table::{How, Loss};
pub use leasehold_core::{
    Capability, Check, Consistency, Error, ErrorKind, Fence, Fencing, Identity, Name, Options, Outcome, Owner, Store,
    Term, Verdict, WaitMode,
};

pub use client::config;

/// A majority of independent servers as one store: `redlock:` URLs, or [`Quorum`](quorum::Quorum) over any stores that can vote.
pub mod quorum {
    pub use leasehold_core::quorum::{Ballot, Member, RenewedVote, Vote};
    pub use leasehold_quorum::{QUARANTINE, Quorum, Settings};
}

/// What your own store or layer implements: [`Store`], and the types of its methods.
///
/// # Stability
///
/// Unstable: this module, [`Layer`] and [`quorum`] may change in any minor version, also after 1.0. Everything else follows semantic
/// versioning.
pub mod port {
    pub use leasehold_core::port::*;
    pub use leasehold_core::{Block, ClientId, Lease, Names, RequestId, StoreOwner, StoreTime};
}
