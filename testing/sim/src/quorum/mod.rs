//! Simulated quorums: several servers with clocks, memories and disasters of their own, and clients that take a lock over them.
//!
//! The decisions are those that ship (`leasehold_core::quorum`); the servers are reference stores with a record of their birth. The
//! network loses, delays, repeats and reorders; servers crash and come back with everything, nothing or an old state, or are emptied;
//! clients stand still and die.

mod client;
mod server;
mod world;

pub use world::World;

/// How far the clocks are apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Drift {
    /// As far as a lease allows for: a hundredth of it, between any two.
    #[default]
    Assumed,
    /// Ten times as far: then two may hold the lock at a time, and only fences protect what it guards.
    Beyond,
}
