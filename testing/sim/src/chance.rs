//! Everything random in a world: one generator, drawn from in the order of events.

use std::ops::Range;

use leasehold_core::backoff::Rng;

/// A millisecond of true time.
pub const MS: u64 = 1_000_000;
/// A second of true time.
pub const SECOND: u64 = 1_000 * MS;

/// The world's source of chance.
#[derive(Debug, Clone)]
pub struct Chance(Rng);

impl Chance {
    /// Seeds it.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6c65_6173_6568_6f6c);
        Self(Rng::new(rng.draw()))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// True in so many of a thousand cases.
    pub fn permille(&mut self, rate: u64) -> bool {
        rate > 0 && self.0.below(1_000) < rate
    }

    /// A number from a range.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.0.below(range.end.saturating_sub(range.start))
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }
}
