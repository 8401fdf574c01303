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

/// What a client knows of its store's clock: where it stood in the newest answer.
#[derive(Clone, Copy, Debug)]
pub struct StoreClock {
    sent: Moment,
    at: StoreTime,
}

impl StoreClock {
    /// An answer to something sent at `sent` carried the store's time `at`.
    pub fn new(sent: Moment, at: StoreTime) -> Self {
        Self { sent, at }
    }

    /// A newer answer replaces an older one.
    pub fn observe(&mut self, sent: Moment, at: StoreTime) {
        if sent >= self.sent {
            *self = Self { sent, at };
        }
    }

    /// The latest that the store's clock can show at `now`, clock rates apart: the answer was given after it was asked for.
    pub fn latest(&self, now: Moment) -> StoreTime {
        self.at + now.since(self.sent)
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

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let mut clock = StoreClock::new(Moment::from_nanos(10), StoreTime::from_nanos(1_000));
        clock.observe(Moment::from_nanos(5), StoreTime::from_nanos(1));
        assert_eq!(clock.latest(Moment::from_nanos(11)), StoreTime::from_nanos(1_001));
    }
}
