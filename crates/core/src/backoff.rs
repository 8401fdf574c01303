//! The decisions of waiting: how long to sleep before asking again. Randomness is a seed.

use std::time::Duration;

/// A lost hint costs at most about this long.
pub const RECHECK: Duration = Duration::from_secs(1);
/// How long a waiter sleeps at most where the store itself looks that often.
pub const RECHECK_SURE: Duration = Duration::from_secs(10);
/// The shortest time for which a process that had its turn lets others go first.
const GIVE_WAY_MIN: Duration = Duration::from_millis(1);
/// And the longest: the next client on the list may be dead.
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
pub fn yield_pause(round_trip: Duration, turns: u32) -> Duration {
    let first = (round_trip * 2).clamp(GIVE_WAY_MIN, RECHECK);
    grown(first, turns, GIVE_WAY_MAX.max(first))
}

/// The smoothed duration, with one more measurement.
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

    /// The figures of SplitMix64 for seed 1234567.
    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut rng = Rng::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.draw()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert_eq!(rng.below(0), 0);
        assert!((0..1000).map(|_| rng.below(3)).all(|drawn| drawn < 3));
        assert!((0..3).all(|wanted| (0..1000).any(|_| rng.below(3) == wanted)));
    }

    #[test]
    fn each_pause_is_within_its_bounds() {
        let ms = Duration::from_millis;
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            for (attempt, least) in [(0, 1), (1, 2), (5, 32), (7, 128), (8, 200), (40, 200)] {
                let pause = spin_pause(&mut rng, attempt, None);
                assert!((ms(least)..=ms(least * 2)).contains(&pause), "{attempt}: {pause:?}");
            }
            for (attempt, least) in [(0, 10), (1, 20), (6, 640), (7, 1_000), (40, 1_000)] {
                let pause = retry_pause(&mut rng, attempt);
                assert!((ms(least)..=ms(least * 3 / 2)).contains(&pause), "{attempt}: {pause:?}");
            }
            assert!((ms(900)..=ms(1_000)).contains(&until_recheck(&mut rng, None, false)));
            assert!((ms(9_000)..=ms(10_000)).contains(&until_recheck(&mut rng, None, true)));
        }
        assert_eq!(spin_pause(&mut rng, 40, Some(ms(5))), ms(6));
        assert!(spin_pause(&mut rng, 0, Some(ms(500))) <= ms(2));
        let spread = (0..200).map(|_| until_recheck(&mut rng, None, false)).max().unwrap();
        assert!(spread > ms(980), "{spread:?}");
    }

    #[test]
    fn the_usual_round_trip_follows_what_is_seen_slowly() {
        let ms = Duration::from_millis;
        assert_eq!(smoothed(Duration::ZERO, ms(8)), ms(8));
        assert_eq!(smoothed(ms(8), ms(16)), ms(9));
        assert_eq!(smoothed(ms(16), ms(8)), ms(15));
        assert_eq!(yield_pause(ms(3), 0), ms(6));
        assert_eq!(yield_pause(ms(3), 2), ms(24));
    }

    #[test]
    fn a_process_gives_way_for_longer_each_time_that_nobody_came() {
        let near = Duration::from_micros(200);
        let ways: Vec<_> = (0..12).map(|turns| yield_pause(near, turns)).collect();
        assert_eq!(ways[0], GIVE_WAY_MIN);
        assert!(ways.is_sorted());
        assert_eq!(ways[11], GIVE_WAY_MAX);
        assert_eq!(yield_pause(Duration::from_secs(2), 3), RECHECK);
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

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.draw(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(rng.draw(), 0x06c4_5d18_8009_454f);
        assert_eq!(rng.below(0), 0);
        let drawn: Vec<_> = (0..200).map(|_| rng.below(3)).collect();
        assert!((0..3).all(|number| drawn.contains(&number)) && drawn.iter().all(|number| *number < 3));
    }

    #[test]
    fn rechecks_are_spread_over_a_tenth_of_their_time() {
        let mut rng = Rng::new(3);
        let sleeps =
            |rng: &mut Rng, sure| -> Vec<Duration> { (0..1000).map(|_| until_recheck(rng, None, sure)).collect() };
        for (sure, longest) in [(false, RECHECK), (true, RECHECK_SURE)] {
            let sleeps = sleeps(&mut rng, sure);
            let (min, max) = (sleeps.iter().min().unwrap(), sleeps.iter().max().unwrap());
            assert!(*min >= longest * 9 / 10 && *min < longest * 91 / 100, "{min:?}");
            assert!(*max <= longest && *max > longest * 99 / 100, "{max:?}");
        }
    }

    #[test]
    fn pauses_double_and_have_jitter_of_their_own() {
        let mut rng = Rng::new(4);
        let ms = Duration::from_millis;
        let range = |pauses: Vec<Duration>| (*pauses.iter().min().unwrap(), *pauses.iter().max().unwrap());
        for (attempt, shortest) in [(0, 10), (1, 20), (3, 80), (6, 640), (7, 1_000), (u32::MAX, 1_000)] {
            let (min, max) = range((0..1000).map(|_| retry_pause(&mut rng, attempt)).collect());
            assert!(min >= ms(shortest) && min < ms(shortest) * 102 / 100, "{attempt}: {min:?}");
            assert!(max < ms(shortest) * 3 / 2 && max > ms(shortest) * 148 / 100, "{attempt}: {max:?}");
        }
        for (attempt, shortest) in [(0, 1), (2, 4), (7, 128), (8, 200)] {
            let (min, max) = range((0..1000).map(|_| spin_pause(&mut rng, attempt, None)).collect());
            assert!(min >= ms(shortest) && min < ms(shortest) * 102 / 100, "{attempt}: {min:?}");
            assert!(max < ms(shortest) * 2 && max > ms(shortest) * 198 / 100, "{attempt}: {max:?}");
        }
        assert_eq!(spin_pause(&mut rng, 8, Some(ms(5))), ms(6), "no longer than until it is free");
        assert!(spin_pause(&mut rng, 0, Some(ms(500))) < ms(2), "nor until it is free, where that is long");
    }

    #[test]
    fn giving_way_is_two_round_trips_at_first_and_doubles() {
        let ms = Duration::from_millis;
        assert_eq!(yield_pause(ms(3), 0), ms(6));
        assert_eq!(yield_pause(ms(3), 1), ms(12));
        assert_eq!(yield_pause(ms(3), 30), GIVE_WAY_MAX);
        assert_eq!(yield_pause(ms(200), 5), ms(400), "a round trip may be longer than what is usual at most");
    }

    #[test]
    fn what_is_usual_follows_what_is_seen_slowly() {
        let ms = Duration::from_millis;
        assert_eq!(smoothed(Duration::ZERO, ms(8)), ms(8));
        assert_eq!(smoothed(ms(8), ms(16)), ms(9));
        assert_eq!(smoothed(ms(8), ms(8)), ms(8));
    }
}
