//! When a command is asked to end and when it is killed: counted back from the holder's deadline. Pure arithmetic.

use std::time::Duration;

use leasehold_core::Moment;

/// The longest default grace.
const GRACE_MAX: Duration = Duration::from_secs(5);
/// The default grace is the lease divided by this.
const GRACE_PART: u32 = 6;
/// SIGKILL comes the grace divided by this before the deadline,
const KILL_PART: u32 = 2;
/// but at most this long before it;
const KILL_MAX: Duration = Duration::from_millis(500);
/// and at least the lease divided by this,
const KILL_LEASE_PART: u32 = 20;
/// within these bounds: a machine needs a moment to end processes.
const KILL_FLOOR: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// How long before the deadline SIGTERM is sent, and SIGKILL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    term: Duration,
    kill: Duration,
}

impl Times {
    /// For a lease, with a grace that [`grace`] allows.
    pub(crate) fn new(lease: Duration, grace: Duration) -> Self {
        let floor = (lease / KILL_LEASE_PART).clamp(KILL_FLOOR.0, KILL_FLOOR.1);
        let kill = (grace / KILL_PART).min(KILL_MAX).max(floor);
        Self { term: grace.max(kill), kill }
    }

    /// When to send SIGTERM.
    pub(super) fn term_at(self, deadline: Moment) -> Moment {
        deadline - self.term
    }

    /// When to send SIGKILL.
    pub(super) fn kill_at(self, deadline: Moment) -> Moment {
        deadline - self.kill
    }

    /// When to send SIGKILL after an early SIGTERM at `now`.
    pub(super) fn kill_after(self, now: Moment, deadline: Moment) -> Moment {
        (now + (self.term - self.kill)).min(self.kill_at(deadline))
    }

    pub(super) fn as_nanos(self) -> (u64, u64) {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        (nanos(self.term), nanos(self.kill))
    }

    pub(super) fn from_nanos(term: u64, kill: u64) -> Self {
        Self { term: Duration::from_nanos(term.max(kill)), kill: Duration::from_nanos(kill) }
    }
}

/// The grace for a lease: the given or the default one. `None` if it is half the lease or more, which would leave too
/// little time to work.
pub(crate) fn grace(lease: Duration, asked: Option<Duration>) -> Option<Duration> {
    let grace = asked.unwrap_or_else(|| GRACE_MAX.min(lease / GRACE_PART));
    (grace < lease / 2).then_some(grace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_default_grace_is_a_sixth_and_at_most_five_seconds() {
        assert_eq!(grace(ms(200), None), Some(ms(200) / 6));
        assert_eq!(grace(ms(30_000), None), Some(ms(5_000)));
        assert_eq!(grace(ms(3_600_000), None), Some(ms(5_000)));
    }

    #[test]
    fn half_the_lease_is_too_much() {
        assert_eq!(grace(ms(1_000), Some(ms(500))), None);
        assert_eq!(grace(ms(1_000), Some(ms(499))), Some(ms(499)));
        assert_eq!(grace(ms(1_000), Some(ms(0))), Some(ms(0)));
    }

    #[test]
    fn sigkill_comes_before_the_deadline_and_after_sigterm() {
        let deadline = Moment::from_nanos(1_000_000_000_000);
        for lease in [200, 600, 1_000, 30_000, 86_400_000].map(ms) {
            for asked in [None, Some(ms(0)), Some(lease / 2 - ms(1))] {
                let times = Times::new(lease, grace(lease, asked).unwrap());
                assert!(times.kill_at(deadline) < deadline, "{times:?}");
                assert!(times.term_at(deadline) <= times.kill_at(deadline), "{times:?}");
                assert!(deadline.since(times.term_at(deadline)) < lease / 2, "{times:?}");
            }
        }
        let shortest = Times::new(ms(200), ms(32));
        assert_eq!((shortest.term, shortest.kill), (ms(32), ms(16)));
    }

    #[test]
    fn a_runner_that_is_gone_leaves_the_grace_or_what_is_left_of_the_lease() {
        let times = Times::new(ms(30_000), ms(5_000));
        let deadline = Moment::from_nanos(0) + ms(30_000);
        assert_eq!(times.kill_after(Moment::from_nanos(0), deadline), Moment::from_nanos(0) + ms(4_500));
        assert_eq!(times.kill_after(Moment::from_nanos(0) + ms(29_000), deadline), Moment::from_nanos(0) + ms(29_500));
    }
}
