//! The embedded store: `file:PATH`, for any number of processes on one machine, with nothing installed.
//!
//! SQLite stores the rows; the rules of the reference store decide over them, inside one write transaction.
//!
//! | demand | how it is met |
//! |---|---|
//! | exclusive | one write at a time decides; leases are counted on the clock of the machine's boot, which counts suspend and cannot be set |
//! | available | as long as the machine and its disk are; a process stopped inside a write (some microseconds) blocks the others |
//! | no deadlock | leases end by that clock; the end of a process ends its kept leases at once |
//! | only the holder releases | a release names owner, fence and hold |
//! | re-entrant | holds are counted per owner, across processes |
//!
//! The file is refused if those promises cannot be kept: on file systems shared between machines, in a time namespace
//! with an offset, and in a process forked from one that has it open.

mod boot;
mod config;
mod database;
mod directory;
mod error;
mod examine;
mod executor;
mod file_system;
mod folder;
mod live;
mod notifier;
mod open;
mod reader;
mod registry;
mod rename_rights;
mod rows;
mod schema;
mod socket;
mod store;
mod sweeper;
mod unforked;
mod vfs;

#[cfg(test)]
mod tests;

pub use config::{Config, SCHEME};
#[doc(hidden)]
pub use directory::{is_stranger, is_trusted};
pub use examine::examine;
pub use reader::connect;
pub use registry::live_files;
#[doc(hidden)]
pub use rename_rights::others_can_rename;
pub use store::File;
