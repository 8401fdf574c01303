//! The I/O around the table of a client: the shell that steps it, calls to the store, and the keeper's thread.
//!
//! Nothing here decides anything about locks; `leasehold_core::table` does.

pub(crate) mod acquire_call;
pub(crate) mod background;
pub(crate) mod handle;
pub(crate) mod in_flight;
pub(crate) mod keeper;
pub(crate) mod mailbox;
pub(crate) mod panic_guard;
pub(crate) mod random;
pub(crate) mod shell;
pub(crate) mod sync;
pub(crate) mod timer;
