//! Clocks that run at rates of their own, read on true time.

use leasehold_core::{Moment, StoreTime};

/// A clock with an offset and a rate error, in parts per million of true time.
#[derive(Debug, Clone)]
pub struct Clock {
    offset: u64,
    parts: u64,
    /// It goes in steps of so many nanoseconds.
    step: u64,
    /// True time that this clock has slept through.
    slept: u64,
}

const MILLION: u64 = 1_000_000;

impl Clock {
    /// A clock that shows `offset` at true zero and runs fast or slow by `error` parts per million, in steps.
    pub fn new(offset: u64, error: i64, step: u64) -> Self {
        Self { offset, parts: MILLION.saturating_add_signed(error), step, slept: 0 }
    }

    /// What it shows.
    pub fn moment(&self, at: u64) -> Moment {
        Moment::from_nanos(self.nanos(at))
    }

    /// What it shows, where it is a store's.
    pub fn store_time(&self, at: u64) -> StoreTime {
        StoreTime::from_nanos(self.nanos(at))
    }

    fn nanos(&self, at: u64) -> u64 {
        let awake = at.saturating_sub(self.slept);
        let shown = self.offset + awake / MILLION * self.parts + awake % MILLION * self.parts / MILLION;
        shown - shown % self.step
    }

    /// The true time at which it first shows `moment`.
    pub fn true_time(&self, moment: Moment) -> u64 {
        let shown = moment.as_nanos().saturating_sub(self.offset);
        let mut at = shown / self.parts * MILLION + shown % self.parts * MILLION / self.parts + self.slept;
        while self.moment(at) < moment {
            at += 1;
        }
        at
    }

    /// It is set forward, or back.
    pub fn set(&mut self, by: i64) {
        self.offset = self.offset.saturating_add_signed(by);
    }

    /// It stood still for this long.
    pub fn sleep_through(&mut self, span: u64) {
        self.slept += span;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_time_is_the_first_at_which_the_moment_shows() {
        for error in [-5_000, 0, 4_999] {
            let clock = Clock::new(77, error, 1);
            for at in [0, 1, 999_999_999, 123_456_789_012] {
                let moment = clock.moment(at);
                let found = clock.true_time(moment);
                assert!(found <= at && clock.moment(found) >= moment);
            }
        }
    }
}
