//! Fences: numbers that only grow, one with every grant, for the resource to tell an old holder from a new one.

use std::fmt;
use std::time::Duration;

use crate::time::StoreTime;

/// Nanoseconds in one unit of a fence: an eighth of a microsecond. Fences made from a clock stay below 2^53 until 2055.
pub const FENCE_UNIT_NANOS: u64 = 125;

/// How many fences of a block are reserved for each local waiter: see docs/decisions/0010-larger-blocks.md.
const TURNS: u32 = 16;

/// A fence: strictly growing for a name over every grant by every client.
///
/// Hand it to the resource that the lock protects, and let the resource refuse whatever is smaller than the largest it has seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(u64);

impl Fence {
    /// Smaller than every fence that is ever granted.
    pub const NONE: Self = Self(0);

    /// From its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence that a store's clock stands for.
    pub fn at(time: StoreTime) -> Self {
        Self(time.as_nanos() / FENCE_UNIT_NANOS)
    }

    /// The fence `steps` further on.
    #[must_use]
    pub fn plus(self, steps: u64) -> Self {
        Self(self.0.saturating_add(steps))
    }

    /// The next fence of a name: above the last one given, above all that the client has seen, and not behind the store's clock.
    ///
    /// The clock is in it so that fences go on growing when a restart lost the record of the last one.
    #[must_use]
    pub fn next(last: Fence, seen: Fence, now: StoreTime) -> Self {
        last.plus(1).max(seen.plus(1)).max(Self::at(now))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Fences reserved by one grant for passing on in memory: `first`, `first + 1`, …
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// The fence of the grant itself.
    pub first: Fence,
    /// How many there are; at least one.
    pub len: u32,
}

impl Block {
    /// The largest fence of the block. The store records this one.
    pub fn last(self) -> Fence {
        self.first.plus(u64::from(self.len.saturating_sub(1)))
    }

    /// How large a block may be: one for the holder, some for each local waiter, who may come again while it lasts, and no more
    /// than the lease in units, so that the clock has passed the block's end when the lease ends.
    pub fn size(waiters: u32, lease: Duration) -> u32 {
        let by_lease = u32::try_from(lease.as_nanos() / u128::from(FENCE_UNIT_NANOS)).unwrap_or(u32::MAX);
        waiters.saturating_mul(TURNS).saturating_add(1).min(by_lease).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_fence_is_above_record_client_and_not_behind_the_clock() {
        let now = StoreTime::from_nanos(1_000 * FENCE_UNIT_NANOS);
        assert_eq!(Fence::next(Fence::new(5), Fence::NONE, now), Fence::new(1_000));
        assert_eq!(Fence::next(Fence::new(1_000), Fence::NONE, now), Fence::new(1_001));
        assert_eq!(Fence::next(Fence::new(5), Fence::new(2_000), now), Fence::new(2_001));
    }

    #[test]
    fn clock_fences_stay_exact_in_a_double_until_2055() {
        let until_2055 = StoreTime::from_nanos(35 * 365 * 86_400 * 1_000_000_000);
        assert!(Fence::at(until_2055).get() < 1 << 53);
    }

    #[test]
    fn a_block_never_outlasts_the_lease() {
        assert_eq!(Block::size(0, Duration::from_secs(30)), 1);
        assert_eq!(Block::size(63, Duration::from_secs(30)), 1 + 63 * TURNS);
        assert_eq!(Block::size(u32::MAX, Duration::from_millis(10)), 80_000);
        assert_eq!(Block { first: Fence::new(10), len: 3 }.last(), Fence::new(12));
    }
}
