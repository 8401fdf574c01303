//! A lock over several independent servers, as a store like any other: a call goes to all of them, and a majority
//! grants.
//!
//! `redlock://host:port,host:port,host:port` (feature `redis`), or [`Quorum`] over any stores that can vote
//! ([`Member`](leasehold_core::quorum::Member)). The decisions are pure state in `leasehold_core::quorum`.
//!
//! | demand | how it is met |
//! |---|---|
//! | exclusive | two majorities have a server in common; one that may have forgotten does not vote until every lease it may have granted is over |
//! | available | while a majority of the servers answers |
//! | no deadlock | every server ends a lease by its own clock |
//! | only the holder releases | each server compares owner and fence |
//! | re-entrant | counted in the process only |

mod acquire;
mod config;
mod deferred;
mod error;
#[cfg(feature = "redis")]
mod examine;
mod host;
mod inspection;
mod majority;
mod rejoin;
mod release;
mod renew;
mod server_calls;
mod state;
mod store;
mod thread;
mod timer_queue;
mod wake_threshold;

#[cfg(feature = "redis")]
pub use config::Config;
pub use config::{QUARANTINE, SCHEME, Settings};
#[cfg(feature = "redis")]
pub use examine::examine;
pub use host::{Alarm, Host, Machine, Work};
pub use store::Quorum;
#[cfg(feature = "redis")]
pub use store::connect;
