//! The store inside one process: `memory:`, or `memory:NAME` for one of several.
//!
//! It wraps the reference store, so it is what every other store is compared with.
//!
//! | demand | how it is met |
//! |---|---|
//! | exclusive | one mutex decides; the clock never goes back and counts suspend |
//! | available | as long as the process lives |
//! | no deadlock | leases end by that clock |
//! | only the holder releases | a release names owner, fence and hold |
//! | re-entrant | counted by owner |
//!
//! Locks are gone with the last client that is connected to the store. Other processes see nothing of it.

mod config;
mod error;
mod examine;
mod store;

pub use config::{Config, SCHEME};
pub use examine::examine;
pub use store::Memory;
