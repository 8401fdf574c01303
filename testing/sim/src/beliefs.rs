//! Who believes to hold what: from the grant until the guard is given back or told that it is lost.

use leasehold_core::table::{HoldId, How};
use leasehold_core::{Fence, Moment, Name, Owner};

use crate::process::Process;

/// One guard that has not been given back and has not been told of a loss.
#[derive(Debug, Clone)]
pub struct Belief {
    /// Whose.
    pub client: usize,
    /// The number of the name.
    pub name: usize,
    /// The guard's hold.
    pub hold: HoldId,
    /// For whom.
    pub owner: Owner,
    /// Its fence.
    pub fence: Fence,
    /// Since when.
    pub since: u64,
    /// The call that brought it was sent then.
    pub sent: u64,
    /// How it came.
    pub how: How,
    /// The store granted the lease since then, perhaps to another task.
    pub leased_since: u64,
    /// It is kept without limit.
    pub kept: bool,
    /// It was taken for a fixed time.
    pub fixed: bool,
    /// Its own end, on the client's clock.
    pub ends: Moment,
}

impl Belief {
    /// Whether a guard would say now that it is valid.
    pub fn is_valid(&self, at: u64, processes: &[Process], names: &[Name]) -> bool {
        let process = &processes[self.client];
        let now = process.clock.moment(at);
        process.alive && process.table.time_left(now, &names[self.name], self.hold).is_some()
    }
}
