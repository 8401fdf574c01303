//! Redis and Valkey: `redis://host:port/database`, or `redis+unix:///path` for a socket.
//!
//! Locks are kept in one of two layouts, so that other languages' libraries on the same server exclude us and we them:
//! `?layout=redisson` (the default) or `?layout=plain`. What leasehold adds stands in keys of its own beside the lock.
//!
//! | demand | how it is met |
//! |---|---|
//! | exclusive | one script decides, on one server; a server that forgets (a restart without its data, a failover) can grant twice: fences tell |
//! | available | while the server is |
//! | no deadlock | keys expire |
//! | only the holder releases | a release names owner and hold, and a script compares before it deletes |
//! | re-entrant | counted by owner in the hash (`redisson`), in the process only (`plain`) |

mod batcher;
mod config;
mod connection;
mod driver;
mod error;
mod examine;
#[cfg(test)]
mod fuzzed;
mod keys;
mod legible;
mod list;
mod member;
mod reply;
mod script;
mod socket;
mod store;
mod subscriptions;
mod thread;
mod waitlist_cache;
mod wire;

pub use config::{Config, Layout, SCHEMES};
pub use examine::{Seen, examine, examine_member};
#[doc(hidden)]
pub use script::script_texts;
pub use store::Redis;
