//! The decisions of waiting: how long to sleep before asking again. Randomness is a seed.

use std::time::Duration;

/// A lost hint costs at most about this long.
pub const RECHECK: Duration = Duration::from_secs(1);
/// How long a waiter sleeps at most where the store itself looks that often.
pub const RECHECK_SURE: Duration = Duration::from_secs(10);
/// The shortest time for which a process that had its turn lets others go first.
const GIVE_WAY_MIN: Duration = Duration::from_millis(1);
/// And the longest: whoever is on the list may as well be dead.
const GIVE_WAY_MAX: Duration = Duration::from_millis(250);
const SPIN_MIN: Duration = Duration::from_millis(1);
const SPIN_MAX: Duration = Duration::from_millis(200);
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Asked again this long after the holder's lease would end, so that the end is surely past.
const PAST_END: Duration = Duration::from_millis(1);

/// A small generator of numbers (SplitMix64): the same seed gives the same waits.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Seeds it.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// `span` to `span + span / part`.
    fn jitter(&mut self, span: Duration, part: u32) -> Duration {
        let room = u64::try_from((span / part).as_nanos()).unwrap_or(u64::MAX);
        span + Duration::from_nanos(self.below(room))
    }
}

/// How long a notified waiter sleeps without news: to the end of the holder's lease, but no longer than a recheck, which is rare
/// where it is sure to hear.
pub fn until_recheck(rng: &mut Rng, free_in: Option<Duration>, sure: bool) -> Duration {
    let recheck = rng.jitter(if sure { RECHECK_SURE } else { RECHECK } * 9 / 10, 9);
    free_in.map_or(recheck, |free_in| (free_in + PAST_END).min(recheck))
}

/// How long a spinning waiter pauses after its `attempt`-th refusal.
pub fn spin_pause(rng: &mut Rng, attempt: u32, free_in: Option<Duration>) -> Duration {
    let pause = rng.jitter(grown(SPIN_MIN, attempt, SPIN_MAX), 1);
    free_in.map_or(pause, |free_in| (free_in + PAST_END).min(pause))
}

/// How long to pause after the `attempt`-th failure in a row.
pub fn retry_pause(rng: &mut Rng, attempt: u32) -> Duration {
    rng.jitter(grown(RETRY_MIN, attempt, RETRY_MAX), 2)
}

/// For how long a process lets others go first after its `turns`-th turn in a row: two round trips, and more each time that nobody
/// came, for those who wait may be further away from the store.
pub fn give_way(round_trip: Duration, turns: u32) -> Duration {
    let first = (round_trip * 2).clamp(GIVE_WAY_MIN, RECHECK);
    grown(first, turns, GIVE_WAY_MAX.max(first))
}

/// What is usual, after one more was seen.
pub fn smoothed(usual: Duration, seen: Duration) -> Duration {
    if usual.is_zero() { seen } else { (usual * 7 + seen) / 8 }
}

fn grown(first: Duration, attempt: u32, max: Duration) -> Duration {
    first.saturating_mul(1 << attempt.min(16)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notified_waiter_never_sleeps_longer_than_a_recheck() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!(until_recheck(&mut rng, Some(Duration::from_secs(30)), false) <= RECHECK);
            assert!(until_recheck(&mut rng, None, false) <= RECHECK);
            assert!((RECHECK..=RECHECK_SURE).contains(&until_recheck(&mut rng, None, true)));
        }
        assert_eq!(until_recheck(&mut rng, Some(Duration::from_millis(5)), false), Duration::from_millis(6));
        assert_eq!(until_recheck(&mut rng, Some(Duration::from_millis(5)), true), Duration::from_millis(6));
    }

    #[test]
    fn a_process_gives_way_for_longer_each_time_that_nobody_came() {
        let near = Duration::from_micros(200);
        let ways: Vec<_> = (0..12).map(|turns| give_way(near, turns)).collect();
        assert_eq!(ways[0], GIVE_WAY_MIN);
        assert!(ways.is_sorted());
        assert_eq!(ways[11], GIVE_WAY_MAX);
        assert_eq!(give_way(Duration::from_secs(2), 3), RECHECK);
    }

    #[test]
    fn pauses_grow_with_jitter_up_to_a_limit() {
        let mut rng = Rng::new(2);
        assert!(spin_pause(&mut rng, 0, None) < Duration::from_millis(3));
        assert!(spin_pause(&mut rng, 40, None) >= SPIN_MAX);
        assert!(spin_pause(&mut rng, 40, None) <= SPIN_MAX * 2);
        let pauses: Vec<_> = (0..20).map(|_| retry_pause(&mut rng, 3)).collect();
        assert!(pauses.iter().any(|p| *p != pauses[0]), "no jitter");
    }
}
