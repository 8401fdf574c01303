//! What a client knows of its servers' clocks, and the fences that it proposes by them.

use std::time::Duration;

use super::PerServer;
use crate::fence::{BLOCK_MAX, Fence};
use crate::time::{Moment, Reading, StoreTime};

/// The clocks of all servers, as far as they are known.
#[derive(Clone, Debug)]
pub struct Clocks(PerServer<Option<Reading>>);

impl Clocks {
    /// The clocks of this many servers, not known yet.
    pub fn new(servers: usize) -> Self {
        Self((0..servers).map(|_| None).collect())
    }

    /// An answer carried the time.
    pub fn observe(&mut self, server: usize, sent: Moment, came: Moment, at: StoreTime) {
        let newer = self.0[server].is_none_or(|known| sent >= known.sent);
        if newer {
            self.0[server] = Some(Reading { sent, came, at });
        }
    }

    /// Servers whose clock is not known.
    pub fn unknown(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, clock)| clock.is_none()).map(|(server, _)| server)
    }

    /// The latest that a server's clock can show, clock rates apart.
    pub fn latest(&self, server: usize, now: Moment) -> Option<StoreTime> {
        self.0[server].map(|clock| clock.at + now.since(clock.sent))
    }

    /// The time of most servers: what the middle one of their clocks shows at least.
    pub fn middle(&self, now: Moment) -> Option<StoreTime> {
        let mut shown: PerServer<StoreTime> =
            self.0.iter().flatten().map(|clock| clock.at + now.since(clock.came)).collect();
        shown.sort_unstable();
        shown.get(shown.len().checked_sub(1)? / 2).copied()
    }

    /// The first fence to propose: above all that is known, and at the time of most servers.
    pub fn propose(&self, now: Moment, above: Fence) -> Fence {
        above.plus(1).max(Fence::at(self.middle(now).unwrap_or_default()))
    }
}

/// How far from a server's clock a fence may be.
const NEAR: Duration = Duration::from_secs(1);

/// Above this are the fences that a server takes: before it forgot it may have taken what is a second ahead of its clock, and the rest of
/// that block.
pub fn floor(born: Option<StoreTime>) -> Fence {
    born.map_or(Fence::NONE, |born| Fence::at(born + NEAR).plus(u64::from(BLOCK_MAX)))
}

/// Whether a fence is near a server's clock: it takes no other, so that those of a server that forgot go on growing.
pub fn is_near(first: Fence, now: StoreTime) -> bool {
    first >= Fence::at(now - NEAR) && first <= Fence::at(now + NEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock may be set between two answers, and they may come in any order.
    #[test]
    fn the_answer_that_was_asked_for_last_tells_the_time() {
        let mut clocks = Clocks::new(1);
        let [early, late, now] = [10, 20, 30].map(Moment::from_nanos);
        let [before, after] = [5_000, 1_000].map(StoreTime::from_nanos);
        clocks.observe(0, early, early, before);
        clocks.observe(0, late, late, after);
        clocks.observe(0, early, now, before);
        assert_eq!(clocks.latest(0, now), Some(StoreTime::from_nanos(1_010)));
    }

    #[test]
    fn one_wrong_clock_of_three_does_not_matter() {
        let mut clocks = Clocks::new(3);
        let came = Moment::from_nanos(20);
        for (server, at) in [(0, 1_000_000), (1, 1_001_000), (2, u64::MAX / 2)] {
            clocks.observe(server, Moment::from_nanos(10), came, StoreTime::from_nanos(at));
        }
        assert_eq!(clocks.middle(came), Some(StoreTime::from_nanos(1_001_000)));
        assert_eq!(clocks.latest(0, came), Some(StoreTime::from_nanos(1_000_010)));
        assert_eq!(clocks.propose(came, Fence::new(9_000)), Fence::new(9_001));
        assert_eq!(clocks.propose(came, Fence::NONE), Fence::new(1_001_000 / 125));
    }

    #[test]
    fn a_server_that_forgot_takes_nothing_that_a_block_of_before_may_have() {
        let born = StoreTime::from_nanos(10_000_000_000);
        let ahead = crate::fence::Block { first: Fence::at(born + NEAR), len: BLOCK_MAX };
        assert!(is_near(ahead.first, born), "it took this before it forgot");
        assert!(floor(Some(born)) >= ahead.last());
    }

    #[test]
    fn fences_far_from_the_clock_are_not_taken() {
        let now = StoreTime::from_nanos(10_000_000_000);
        let near = |ms: u64| is_near(Fence::at(StoreTime::from_nanos(ms * 1_000_000)), now);
        assert!(near(9_000) && near(10_000) && near(11_000));
        assert!(!near(8_999) && !near(11_001));
    }
}
