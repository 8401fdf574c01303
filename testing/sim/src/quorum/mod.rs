//! Simulated quorums: several servers with clocks, memories and disasters of their own, and clients that take a lock over them.
//!
//! The clients run the quorum that ships (`leasehold-quorum`) on a machine of virtual time; the servers are reference stores with a
//! record of their birth. The network loses, delays, repeats and reorders; servers crash and come back with everything, nothing or an old
//! state, are emptied, change how they sync, or have their clocks set; clients stand still, give up, ask twice and die.

mod client;
mod invariants;
mod machine;
mod member;
mod plan;
mod server;
mod truth;
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
