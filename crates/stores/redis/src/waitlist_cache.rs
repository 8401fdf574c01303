//! The waitlists that clients of this process may be on. A server is told that a client leaves only if it may be there.
//!
//! A vote whose answer is late or lost may leave a client on a waitlist. The server removes such an entry after three
//! seconds, and this cache a little later.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use leasehold_core::{ClientId, Moment, Name};

/// A client that waits asks far more often, so its entry does not expire.
const ENTRY_TTL: Duration = Duration::from_secs(60);
/// Below this many entries, expired ones are not removed.
const SWEEP_MIN: usize = 64;

#[derive(Default)]
pub(crate) struct WaitlistCache {
    entries: HashMap<(ClientId, Name), Moment, RandomState>,
    /// The number of entries at which expired ones are removed.
    sweep_at: usize,
}

impl WaitlistCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, client: ClientId, name: &Name) -> bool {
        !self.is_empty() && self.entries.contains_key(&(client, name.clone()))
    }

    /// A client may be on the waitlist from now on.
    pub(crate) fn enter(&mut self, client: ClientId, name: &Name, now: Moment) {
        self.entries.insert((client, name.clone()), now);
        if self.entries.len() > self.sweep_at.max(SWEEP_MIN) {
            self.entries.retain(|_, entered| now.since(*entered) < ENTRY_TTL);
            self.sweep_at = self.entries.len() * 2;
        }
    }

    /// It is not on the waitlist any more; returns whether it may have been.
    pub(crate) fn leave(&mut self, client: ClientId, name: &Name) -> bool {
        !self.is_empty() && self.entries.remove(&(client, name.clone())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (client, mut waitlists) = (ClientId([7, 7]), WaitlistCache::default());
        let name = |number: u64| Name::new(format!("lock {number}")).expect("a name");
        let waited_for = name(0);
        let mut most = 0;
        for second in 0..10_000 {
            let now = Moment::default() + Duration::from_secs(second);
            waitlists.enter(client, &waited_for, now);
            waitlists.enter(client, &name(second + 1), now);
            most = most.max(waitlists.entries.len());
        }
        assert!(most < 300, "{most} of 10,000 names are kept");
        assert!(waitlists.leave(client, &waited_for) && !waitlists.contains(client, &waited_for));
        assert!(!waitlists.leave(client, &name(1)) && waitlists.leave(client, &name(10_000)));
    }
}
