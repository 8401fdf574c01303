//! Seeded, deterministic simulation of core: virtual time, a lossy network, processes that pause and die.
//!
//! A seed makes a [`World`]: clients with the table that ships, a store that is the reference store, clocks that drift, a network
//! that loses, delays, repeats and reorders. First faults, then quiet; [`invariants`] watch all the while.
//!
//! ```text
//! cargo run --profile sim -p leasehold-sim -- --seeds 100000
//! cargo run --profile sim -p leasehold-sim -- --seed 4711
//! ```

pub mod agenda;
pub mod beliefs;
pub mod chance;
pub mod clock;
mod disasters;
pub mod invariants;
mod leaving;
pub mod network;
pub mod plan;
pub mod process;
pub mod quorum;
pub mod run;
mod shell;
pub mod store;
pub mod story;
mod tasks;
mod telling;
mod traffic;
mod world;

pub use run::{Failure, check, tell};
pub use world::{History, World};
