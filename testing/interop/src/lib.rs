//! Lock libraries of other languages, and leasehold beside them, each in a process of its own that does what peers/PROTOCOL.md says.
//!
//! The suite in `main.rs` tests them against each other; `testing/bench` measures them.

pub mod clock;
pub mod driver;
pub mod ours;
pub mod peer;

pub use leasehold_faults::Failure;
