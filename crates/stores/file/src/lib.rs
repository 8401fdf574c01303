//! The embedded store: `file:PATH`, for any number of processes on one machine, with nothing installed.
//!
//! SQLite keeps the rows; the rules of the reference store decide over them, inside one write of the file.
//!
//! | demand | how it is met |
//! |---|---|
//! | exclusive | one write at a time decides; leases are counted on the clock of the machine's boot, which counts suspend and cannot be set |
//! | available | as long as the machine and its disk do; a process stopped in the middle of a write (some microseconds) holds up the others |
//! | no deadlock | leases end by that clock; the end of a process ends at once what it kept |
//! | only the holder releases | a release names owner, fence and hold |
//! | re-entrant | counted by owner, over processes |
//!
//! The file is refused where those promises cannot be kept: on file systems that machines share, in a time namespace with an offset,
//! and in a process forked from one that has it open.

mod config;
mod database;
mod directory;
mod error;
mod examine;
mod executor;
mod folder;
mod live;
mod machine;
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
