//! What a store can promise: read by the client to choose its ways, by tests to choose their cases, by people to choose a store.

use std::time::Duration;

/// What the store gives up when its servers are cut off from one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Consistency {
    /// Consistent: it blocks rather than grant twice.
    Cp,
    /// Available: it goes on, and a failover may lose a grant.
    Ap,
    /// One process or one machine: the question does not arise.
    Local,
}

/// How far the store's fences grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fencing {
    /// Always, by consensus or by a record that is never lost.
    Always,
    /// Also over a loss of the record, as long as the store's clock did not go back by more than the outage took.
    ByClock,
    /// No fences.
    None,
}

/// What a store can do and promise.
///
/// A store starts from [`Capability::NOTHING`] and sets what it can do, so that a new field defaults to "cannot".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capability {
    /// CP, AP or local.
    pub consistency: Consistency,
    /// How far fences grow.
    pub fencing: Fencing,
    /// The lost signal comes before another owner can hold the lock.
    pub lost_before: bool,
    /// Waiters are notified of releases; without it they ask again after growing pauses.
    pub hints: bool,
    /// Waiting clients are kept in a list, and a release tells how many there are and hints its head.
    pub waiters: bool,
    /// Waiters of different processes are served in the order they came.
    pub ordered: bool,
    /// An explicit owner re-enters from several processes, counted by the store.
    pub shared_reentrance: bool,
    /// Leases are measured by the store's own clock, so that wall clocks of clients decide nothing.
    pub server_clock: bool,
    /// A lock outlives the process that took it, until its lease ends.
    pub outlives_process: bool,
    /// Several names can be taken in one atomic step.
    pub several_names: bool,
    /// Shared (reader) mode.
    pub shared_mode: bool,
    /// Permits: at most m holders at a time.
    pub permits: bool,
    /// The shortest lease.
    pub lease_min: Duration,
    /// The longest lease.
    pub lease_max: Duration,
    /// Hint shown when a longer lease is requested.
    pub longer_leases: Option<&'static str>,
}

impl Capability {
    /// A store that can do nothing beyond taking and releasing.
    pub const NOTHING: Self = Self {
        consistency: Consistency::Ap,
        fencing: Fencing::None,
        lost_before: false,
        hints: false,
        waiters: false,
        ordered: false,
        shared_reentrance: false,
        server_clock: false,
        outlives_process: false,
        several_names: false,
        shared_mode: false,
        permits: false,
        lease_min: Duration::from_millis(200),
        lease_max: Duration::from_secs(24 * 60 * 60),
        longer_leases: None,
    };
}
