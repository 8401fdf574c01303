//! Points in time: a client's own clock, and a store's. Both come in as arguments; nothing here reads a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a client's own clock, in nanoseconds. The clock counts suspend and never goes back (Linux `CLOCK_BOOTTIME`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

/// A point on a store's clock, in nanoseconds since 2020-01-01 UTC as that store sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(u64);

/// Seconds from the Unix epoch to 2020-01-01 UTC, where store time begins.
pub const STORE_EPOCH_UNIX_SECONDS: u64 = 1_577_836_800;

macro_rules! point_in_time {
    ($point:ident) => {
        impl $point {
            /// Later than everything.
            pub const NEVER: Self = Self(u64::MAX);

            /// From a count of nanoseconds.
            pub const fn from_nanos(nanos: u64) -> Self {
                Self(nanos)
            }

            /// As a count of nanoseconds.
            pub const fn as_nanos(self) -> u64 {
                self.0
            }

            /// How long after `earlier` this is; zero where it is not after it.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_nanos(self.0.saturating_sub(earlier.0))
            }
        }

        impl Add<Duration> for $point {
            type Output = Self;
            fn add(self, span: Duration) -> Self {
                Self(self.0.saturating_add(nanos(span)))
            }
        }

        impl Sub<Duration> for $point {
            type Output = Self;
            fn sub(self, span: Duration) -> Self {
                Self(self.0.saturating_sub(nanos(span)))
            }
        }

        impl fmt::Debug for $point {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if *self == Self::NEVER { f.write_str("never") } else { write!(f, "{:.6}s", self.0 as f64 / 1e9) }
            }
        }
    };
}

point_in_time!(Moment);
point_in_time!(StoreTime);

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Between what a store's clock shows, as far as its client knows, if it was never set back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockBounds {
    /// Not less.
    pub floor: StoreTime,
    /// Not more.
    pub ceiling: StoreTime,
}

/// What a client knows of its store's clock.
#[derive(Clone, Copy, Debug)]
pub struct StoreClock {
    newest: Reading,
    /// The latest time that an answer showed.
    furthest: Reading,
}

/// A store's clock as an answer showed it: read at some time between the sending of the call and the arrival of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) sent: Moment,
    pub(crate) came: Moment,
    pub(crate) at: StoreTime,
}

/// Rates of clocks differ by one part in this many at most.
const DRIFT_PART: u32 = 100;
/// A clock that went back by more than this was far ahead by mistake, and is not held to it.
const BELIEVED_AHEAD: Duration = Duration::from_secs(8 * 24 * 60 * 60);

impl StoreClock {
    /// An answer to something sent at `sent`, which came at `came`, carried the store's time `at`.
    pub fn new(sent: Moment, came: Moment, at: StoreTime) -> Self {
        let reading = Reading { sent, came, at };
        Self { newest: reading, furthest: reading }
    }

    /// An answer to something sent at `sent` came at `came` and carried the store's time `at`.
    ///
    /// The newest answer counts, and of a process that slept for longer than `limit` only one that shows a later time than expected:
    /// an answer found late says too little of where the store's clock stands. A clock that went back leaves the bounds as they are.
    pub fn observe(&mut self, sent: Moment, came: Moment, at: StoreTime, limit: Duration) {
        let reading = Reading { sent, came, at };
        if sent >= self.newest.sent && (came.since(sent) <= limit || at > self.latest(came)) {
            self.newest = reading;
        }
        let floor = self.bounds(came).floor;
        if at > floor || floor.since(at) > BELIEVED_AHEAD {
            self.furthest = reading;
        }
    }

    /// The latest that the store's clock can show at `now`, clock rates apart: the answer was given after it was asked for.
    pub fn latest(&self, now: Moment) -> StoreTime {
        self.newest.at + now.since(self.newest.sent)
    }

    /// What the store's clock shows at `now`, if it was never set back.
    pub fn bounds(&self, now: Moment) -> ClockBounds {
        let Reading { sent, came, at } = self.furthest;
        let (least, most) = (now.since(came), now.since(sent));
        ClockBounds { floor: at + (least - least / DRIFT_PART), ceiling: at + (most + most / DRIFT_PART) }
    }

    /// The client's own clock went on by `span` for a reason that says nothing of the store's: its wall clock jumped.
    pub fn skip(&mut self, span: Duration) {
        let Reading { sent, came, .. } = &mut self.furthest;
        (*sent, *came) = (*sent + span, *came + span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::from_nanos(5) - Duration::from_secs(1), Moment::from_nanos(0));
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(9)), Duration::ZERO);
        assert_eq!(Moment::from_nanos(0) + Duration::MAX, Moment::NEVER);
    }

    const LIMIT: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> StoreTime {
        StoreTime::from_nanos(seconds * 1_000_000_000)
    }

    fn now(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn bounds(floor: u64, ceiling: u64) -> ClockBounds {
        ClockBounds { floor: at(floor), ceiling: at(ceiling) }
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let mut clock = StoreClock::new(now(10), now(11), at(1_000));
        clock.observe(now(5), now(5), at(1), LIMIT);
        assert_eq!(clock.latest(now(11)), at(1_001));
    }

    #[test]
    fn bounds_follow_the_clock_and_stay_where_it_is_set_back() {
        let mut clock = StoreClock::new(now(0), now(100), at(10_000));
        assert_eq!(
            clock.bounds(now(200)),
            bounds(10_099, 10_202),
            "a hundredth slower or faster, and between asking and answer"
        );
        clock.observe(now(200), now(200), at(6_500), LIMIT);
        assert_eq!(clock.bounds(now(200)), bounds(10_099, 10_202), "an hour back");
        clock.skip(Duration::from_secs(1_000));
        assert_eq!(clock.bounds(now(1_200)), bounds(10_099, 10_202), "our wall clock decides nothing");
        clock.observe(now(1_200), now(1_200), at(10_100), LIMIT);
        assert_eq!(clock.bounds(now(1_200)), bounds(10_100, 10_100));
    }

    #[test]
    fn a_clock_that_was_days_ahead_by_mistake_binds_nobody() {
        const DAY: u64 = 86_400;
        let mut clock = StoreClock::new(now(0), now(0), at(100 * DAY));
        clock.observe(now(0), now(0), at(109 * DAY), LIMIT);
        clock.observe(now(0), now(0), at(101 * DAY), LIMIT);
        assert_eq!(clock.bounds(now(0)), bounds(109 * DAY, 109 * DAY), "eight days may be true");
        clock.observe(now(0), now(0), at(101 * DAY - 1), LIMIT);
        assert_eq!(clock.bounds(now(0)), bounds(101 * DAY - 1, 101 * DAY - 1));
    }

    #[test]
    fn of_two_answers_to_calls_of_one_moment_the_later_one_counts() {
        let (sent, at) = (Moment::from_nanos(10), StoreTime::from_nanos);
        let mut clock = StoreClock::new(sent, sent, at(1_000));
        clock.observe(sent, sent, at(1_500), LIMIT);
        assert_eq!(clock.latest(Moment::from_nanos(30)), at(1_520));
        clock.observe(Moment::from_nanos(20), Moment::from_nanos(20), at(900), LIMIT);
        assert_eq!(clock.latest(Moment::from_nanos(30)), at(910), "a clock may have been set back");
        assert_eq!(clock.latest(sent), at(900), "and it is never read before it was asked");
    }

    #[test]
    fn points_in_time_are_told_in_seconds() {
        assert_eq!(format!("{:?}", Moment::from_nanos(1_500_000_000)), "1.500000s");
        assert_eq!(format!("{:?}", StoreTime::NEVER), "never");
    }
}
