//! In which lines clients of this process may stand. Only from those is a server told that somebody leaves.
//!
//! A vote that comes late, or never, may put a client into a line that nobody takes it out of. The server forgets such a place after
//! three seconds, and so do we, a little later.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use leasehold_core::{ClientId, Moment, Name};

/// Whoever waits asks far more often, and so does not leave a line by this.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// So many are not worth looking for those that are over.
const FEW: usize = 64;

#[derive(Default)]
pub(crate) struct WaitlistCache {
    places: HashMap<(ClientId, Name), Moment, RandomState>,
    /// With so many of them those are looked for.
    sweep_at: usize,
}

impl WaitlistCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn stands(&self, client: ClientId, name: &Name) -> bool {
        !self.is_empty() && self.places.contains_key(&(client, name.clone()))
    }

    /// A client may stand there from now on.
    pub(crate) fn enter(&mut self, client: ClientId, name: &Name, now: Moment) {
        self.places.insert((client, name.clone()), now);
        if self.places.len() > self.sweep_at.max(FEW) {
            self.places.retain(|_, entered| now.since(*entered) < FORGOTTEN);
            self.sweep_at = self.places.len() * 2;
        }
    }

    /// It stands there no longer; answers whether it may have.
    pub(crate) fn leave(&mut self, client: ClientId, name: &Name) -> bool {
        !self.is_empty() && self.places.remove(&(client, name.clone())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (client, mut lines) = (ClientId([7, 7]), WaitlistCache::default());
        let name = |number: u64| Name::new(format!("lock {number}")).expect("a name");
        let waited_for = name(0);
        let mut most = 0;
        for second in 0..10_000 {
            let now = Moment::default() + Duration::from_secs(second);
            lines.enter(client, &waited_for, now);
            lines.enter(client, &name(second + 1), now);
            most = most.max(lines.places.len());
        }
        assert!(most < 300, "{most} of 10,000 names are kept");
        assert!(lines.leave(client, &waited_for) && !lines.stands(client, &waited_for));
        assert!(!lines.leave(client, &name(1)) && lines.leave(client, &name(10_000)));
    }
}
