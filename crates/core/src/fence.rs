//! Fences: numbers that only grow, one with every grant, for the resource to tell an old holder from a new one.

use std::fmt;
use std::time::Duration;

use crate::time::{ClockBounds, StoreTime};

/// Nanoseconds in one unit of a fence: an eighth of a microsecond. Fences made from a clock stay below 2^53 until 2055.
pub const FENCE_UNIT_NANOS: u64 = 125;

/// How many fences of a block are reserved for each local waiter: see docs/decisions/0010-larger-blocks.md.
const TURNS: u32 = 16;

/// The largest block that a store reserves: 1 ms in units. A store that comes back with an older memory was away for longer than that.
pub const BLOCK_MAX: u32 = 8_000;

/// A store that may have forgotten a name's fences starts this far ahead of its clock: 4 ms in units. Nothing that it ever reserved lies
/// further ahead, so no fence is handed out twice. Longer than [`COARSE`] and a block together, so that a clock which is behind unnoticed
/// repeats no block; and shorter than any restart takes. See docs/decisions/0013-fences-after-a-loss.md.
pub const FENCE_JUMP: u64 = 32_000;

/// A clock that is behind by no more than this goes in coarse steps, and was not set back.
pub const COARSE: Duration = Duration::from_millis(2);

/// A store that may forget believes the record of a name until its last fence is this far behind the clock: 10 s in units.
pub const FENCE_STALE: u64 = 80_000_000;

/// A fence that is further ahead of a store's clock was not counted by it: 8 days in units. No store goes on from there.
pub const FENCE_AHEAD_MAX: u64 = 8 * 24 * 3_600 * 8_000_000;

/// Whether a store can lose the record of a name's last fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Never, or its clock never goes back: `memory:`, `file:`.
    Lasting,
    /// It can be flushed, evict, or come back with an older copy, and it takes no time.
    Fallible,
}

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

/// What a store knows as it reserves the fences of a grant.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    /// Whether it can have forgotten.
    pub memory: Memory,
    /// The last fence on record for the name.
    pub last: Fence,
    /// The largest fence of the name that the client has seen.
    pub seen: Fence,
    /// The store's clock.
    pub now: StoreTime,
    /// Where the client believes the clock to be.
    pub believed: ClockBounds,
}

impl Reservation {
    /// Reserves up to `wanted` fences: above the last one on record, above all that the client has seen, and not behind the store's
    /// clock, so that fences go on growing when a restart lost the record. None if they would be more than [`FENCE_AHEAD_MAX`] ahead
    /// of the clock.
    ///
    /// A store that may have forgotten the last fences jumps ahead of its clock and reserves a single one: every fence that it has
    /// ever reserved ends below that. A holder from before the loss, which does not know of it and goes on to use its block, then uses
    /// no number twice, and only smaller ones.
    #[must_use]
    pub fn reserve(self, wanted: u32) -> Option<Block> {
        let wanted = wanted.clamp(1, BLOCK_MAX);
        // A clock that was set back stands between the floor and the ceiling.
        let set_back = self.memory == Memory::Fallible && self.believed.floor.since(self.now) > COARSE;
        let (least, most) = if set_back { (self.believed.floor, self.believed.ceiling) } else { (self.now, self.now) };
        let clock = Fence::at(least);
        let next = self.last.max(self.seen).plus(1).max(clock);
        let block = match self.memory {
            Memory::Lasting => Block { first: next, len: wanted },
            // A block that follows a loss is never behind the clock; an ordinary one is never ahead of it.
            Memory::Fallible if self.last.plus(FENCE_STALE) < clock => {
                Block { first: Fence::at(most).plus(FENCE_JUMP).max(self.seen.plus(1)), len: 1 }
            }
            Memory::Fallible => {
                // Fences that are ahead already go on one by one, so that time catches up with them.
                let room = clock.plus(FENCE_JUMP).get().saturating_sub(next.get());
                Block { first: next, len: wanted.min(u32::try_from(room).unwrap_or(u32::MAX)).max(1) }
            }
        };
        let end = block.first.plus(u64::from(block.len));
        (end.max(self.last) < clock.plus(FENCE_AHEAD_MAX)).then_some(block)
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
        waiters.saturating_mul(TURNS).saturating_add(1).min(by_lease).clamp(1, BLOCK_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_fence_is_above_record_client_and_not_behind_the_clock() {
        let next = |last: u64, seen: u64| {
            let now = StoreTime::from_nanos(1_000 * FENCE_UNIT_NANOS);
            let (last, seen, believed) = (Fence::new(last), Fence::new(seen), ClockBounds::default());
            Reservation { memory: Memory::Lasting, last, seen, now, believed }.reserve(1).unwrap().first.get()
        };
        assert_eq!(next(5, 0), 1_000);
        assert_eq!(next(1_000, 0), 1_001);
        assert_eq!(next(5, 2_000), 2_001);
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
        assert_eq!(Block::size(u32::MAX, Duration::from_micros(100)), 800);
        assert_eq!(Block::size(u32::MAX, Duration::from_secs(30)), BLOCK_MAX);
        assert_eq!(Block { first: Fence::new(10), len: 3 }.last(), Fence::new(12));
    }

    #[test]
    fn a_block_has_room_for_many_turns_of_each_waiter() {
        assert_eq!(Block::size(1, Duration::from_secs(30)), 17);
        assert_eq!(Block::size(u32::MAX, Duration::MAX), BLOCK_MAX);
        assert_eq!(Block::size(5, Duration::ZERO), 1);
        assert_eq!(Block { first: Fence::new(10), len: 0 }.last(), Fence::new(10));
    }

    #[test]
    fn no_fence_is_larger_than_the_largest() {
        assert_eq!(Fence::new(u64::MAX).plus(1), Fence::new(u64::MAX));
        assert_eq!(Fence::new(7).plus(2).get(), 9);
        assert_eq!(Fence::at(StoreTime::from_nanos(1_000)), Fence::new(8));
    }

    fn reserve(last: u64, seen: u64, clock: u64, wanted: u32) -> Block {
        let now = StoreTime::from_nanos(clock * FENCE_UNIT_NANOS);
        let (last, seen) = (Fence::new(last), Fence::new(seen));
        Reservation { memory: Memory::Fallible, last, seen, now, believed: ClockBounds::default() }
            .reserve(wanted)
            .unwrap()
    }

    const DAY: u64 = 86_400 * 8_000_000;

    #[test]
    fn a_name_without_a_record_begins_above_every_block_of_before() {
        let before = reserve(DAY, 0, DAY + 50, BLOCK_MAX);
        assert_eq!(before, Block { first: Fence::new(DAY + 50), len: BLOCK_MAX });
        let after = reserve(0, 0, DAY + 51, BLOCK_MAX);
        assert_eq!(after, Block { first: Fence::new(DAY + 51 + FENCE_JUMP), len: 1 });
        let again = reserve(0, 0, DAY + 52, BLOCK_MAX);
        assert!(again.first > after.last(), "forgotten twice");
        let next = reserve(after.first.get(), 0, DAY + 60, BLOCK_MAX);
        assert_eq!(next, Block { first: after.first.plus(1), len: 8 }, "nothing is reserved beyond the jump");
        let once_more = reserve(0, 0, DAY + 61, 1);
        assert!(once_more.first > next.last());
    }

    #[test]
    fn an_old_record_is_as_good_as_none() {
        assert_eq!(reserve(DAY, 0, DAY + FENCE_STALE, 3).first, Fence::new(DAY + FENCE_STALE));
        assert_eq!(reserve(DAY, 0, DAY + FENCE_STALE, 3).len, 3);
        let stale = reserve(DAY, 0, DAY + FENCE_STALE + 1, 3);
        assert_eq!(stale, Block { first: Fence::new(DAY + FENCE_STALE + 1 + FENCE_JUMP), len: 1 });
    }

    #[test]
    fn a_fence_is_above_all_that_the_client_has_seen() {
        assert_eq!(reserve(DAY, DAY + 700, DAY + 1, 3), Block { first: Fence::new(DAY + 701), len: 3 });
        let far = DAY + 2 * FENCE_JUMP;
        assert_eq!(reserve(0, far, DAY, 3), Block { first: Fence::new(far + 1), len: 1 });
    }

    #[test]
    fn nothing_goes_on_from_a_fence_that_no_clock_has_counted() {
        for memory in [Memory::Lasting, Memory::Fallible] {
            let fit = |last: u64, seen: u64| {
                let (now, believed) = (StoreTime::from_nanos(DAY * FENCE_UNIT_NANOS), ClockBounds::default());
                let (last, seen) = (Fence::new(last), Fence::new(seen));
                Reservation { memory, last, seen, now, believed }.reserve(1).map(|block| block.first)
            };
            let most = DAY + FENCE_AHEAD_MAX;
            assert_eq!(fit(most - 3, 0), Some(Fence::new(most - 2)), "{memory:?}");
            assert_eq!((fit(most - 2, 0), fit(u64::MAX, 0)), (None, None), "{memory:?}");
            assert_eq!(fit(DAY, most), None, "{memory:?}: one that a client says it has seen");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_its_place() {
        let nanos = |units: u64| StoreTime::from_nanos(units * FENCE_UNIT_NANOS);
        let reservation = Reservation {
            memory: Memory::Fallible,
            last: Fence::NONE,
            seen: Fence::NONE,
            now: nanos(DAY),
            believed: ClockBounds { floor: nanos(2 * DAY), ceiling: nanos(2 * DAY + 10) },
        };
        assert_eq!(reservation.reserve(9).unwrap(), Block { first: Fence::new(2 * DAY + 10 + FENCE_JUMP), len: 1 });
        let lasting = Reservation { memory: Memory::Lasting, ..reservation };
        assert_eq!(lasting.reserve(9).unwrap(), Block { first: Fence::new(DAY), len: 9 });
        let kept = Reservation { last: Fence::new(2 * DAY - 5), ..reservation };
        assert_eq!(
            kept.reserve(9).unwrap(),
            Block { first: Fence::new(2 * DAY), len: 9 },
            "a block is not ahead of the clock"
        );
        let (last, far) = (2 * DAY, Fence::new(2 * DAY + 1));
        assert_eq!(
            reserve(last, 0, DAY, 9),
            Block { first: far, len: 1 },
            "what is ahead already gets no further than it must"
        );
    }

    #[test]
    fn a_clock_that_is_coarse_was_not_set_back() {
        let now = StoreTime::from_nanos(DAY * FENCE_UNIT_NANOS);
        let behind_by = |span: Duration| {
            let believed = ClockBounds { floor: now + span, ceiling: now + span };
            Reservation { memory: Memory::Fallible, last: Fence::NONE, seen: Fence::NONE, now, believed }
                .reserve(1)
                .unwrap()
                .first
        };
        assert_eq!(behind_by(COARSE), Fence::at(now).plus(FENCE_JUMP));
        let more = COARSE + Duration::from_nanos(FENCE_UNIT_NANOS);
        assert_eq!(behind_by(more), Fence::at(now + more).plus(FENCE_JUMP));
    }

    #[test]
    fn a_clock_that_is_behind_unnoticed_repeats_nothing() {
        let nanos = |units: u64| StoreTime::from_nanos(units * FENCE_UNIT_NANOS);
        let before = reserve(DAY - 8, 0, DAY, BLOCK_MAX);
        let behind = nanos(DAY) - COARSE;
        let believed = ClockBounds { floor: nanos(DAY), ceiling: nanos(DAY + 8) };
        let (memory, last, seen) = (Memory::Fallible, Fence::NONE, Fence::NONE);
        let after = Reservation { memory, last, seen, now: behind, believed }.reserve(BLOCK_MAX).unwrap();
        assert!(after.first > before.last(), "{after:?} meets {before:?}");
    }
}
