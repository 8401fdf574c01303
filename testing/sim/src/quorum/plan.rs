//! What kind of world a seed makes, and what is promised in it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::quorum::Rules;

use super::Drift;
use crate::chance::{Chance, MS, SECOND};

/// Whether clocks of servers are set while the world goes on.
///
/// `docs/redlock.md` promises exclusion for clocks that are not set during a lease. Setting one *back* only makes leases and quarantines
/// last longer there, so exclusion must hold all the same; setting one forward ends them early. Fences grow in any case, as long as the
/// servers whose clocks are set forget nothing: each takes larger ones only, whatever its clock shows. Where clocks are more than a
/// second apart, no fence is near enough to a majority of them, and nothing is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    /// They are not.
    Never,
    /// Back, by this much at most.
    Back(u64),
    /// Both ways, by this much at most.
    BothWays(u64),
}

/// What of a server's memory survives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Nothing.
    None,
    /// What was there some time ago.
    Old,
    /// What was there a moment ago: a log that is synced now and then, never later than half a quarantine.
    Log,
    /// Everything that was ever answered.
    Synced,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rules: Rules,
    pub(super) drift: Drift,
    pub(super) names: Vec<Name>,
    pub(super) clients: u64,
    /// Tasks of each client.
    pub(super) hands: u64,
    /// Disasters, and a network that loses, delays and repeats.
    pub(super) wild: bool,
    pub(super) loss: u64,
    pub(super) twice: u64,
    pub(super) slow: u64,
    /// How long a slow message takes at most.
    pub(super) slowest: u64,
    /// A call to a server that is down fails at once, and certainly did nothing.
    pub(super) refuses: bool,
    /// Servers that each new client cannot reach at first, in thousandths.
    pub(super) unreached: u64,
    /// How far the clocks of servers are apart at first.
    pub(super) apart: u64,
    /// Clocks go in steps of so many nanoseconds, and all at the same rate: fences are often equal.
    pub(super) coarse: bool,
    pub(super) setting: Setting,
    /// Servers that keep a log change between syncing every write and not, as they are started again.
    pub(super) changes_sync: bool,
    /// Blocks of fences may be as large as that.
    pub(super) largest_block: u64,
    /// Requests are sent again, while they are under way or after they were granted, in thousandths.
    pub(super) repeats: u64,
    /// Calls are given up by whoever waits for them, in thousandths.
    pub(super) cancels: u64,
    /// The shortest lease, and the longest.
    pub(super) leases: (u64, u64),
    /// How far rates of clocks may be from the true one, in millionths.
    pub(super) ppm: u64,
    /// Disasters end then.
    pub(super) calm: u64,
    /// A majority can be had from then on.
    pub(super) good: u64,
    /// Every lease that was taken before `good` is over by then, and all that is free can be had.
    pub(super) probe: u64,
    /// The end.
    pub(super) end: u64,
}

impl Plan {
    pub(super) fn draw(chance: &mut Chance, drift: Drift) -> Self {
        let servers = chance.pick(&[3, 3, 5]);
        // Long leases show what is left behind, short ones how they end.
        let long = chance.permille(300);
        let quarantine = if long { chance.within(4_000..7_000) } else { chance.within(800..2_500) };
        let shortest = if long { 3_000 } else { 300 };
        let coarse = chance.permille(150);
        let ppm = match drift {
            Drift::Assumed if coarse => 0,
            // Between any two clocks a hundredth at most.
            Drift::Assumed => 4_900,
            Drift::Beyond => 100_000,
        };
        let wild = chance.permille(800);
        // Messages that overtake each other, and are rarely lost: what comes after its own release stays until its lease is over.
        let sluggish = wild && long && chance.permille(300);
        let setting = match chance.within(0..20) {
            0 => Setting::Back(3 * SECOND),
            1 => Setting::Back(3 * 3_600 * SECOND),
            2 => Setting::BothWays(3 * SECOND),
            3 => Setting::BothWays(3 * 3_600 * SECOND),
            _ => Setting::Never,
        };
        let calm = 4 * SECOND;
        let good = calm + quarantine * MS * 21 / 20 + 2_300 * MS;
        let probe = good + quarantine * MS * 11 / 10 + SECOND;
        Self {
            rules: Rules {
                servers: (0..servers).map(|server| Arc::from(format!("server {server}"))).collect(),
                limit: None,
                quarantine: Duration::from_millis(quarantine),
            },
            drift,
            names: (0..chance.pick(&[1, 1, 2, 3])).map(|n| Name::new(format!("lock-{n}")).expect("a name")).collect(),
            clients: chance.pick(&[2, 2, 3, 4]),
            hands: chance.pick(&[1, 1, 2]),
            wild,
            loss: if wild { chance.within(0..if sluggish { 10 } else { 80 }) } else { 0 },
            twice: if wild { chance.within(0..50) } else { 0 },
            slow: if sluggish { chance.within(200..500) } else { chance.within(0..150) * u64::from(wild) },
            // A ballot is executed within 50 ms or not at all.
            slowest: if sluggish { 60 * MS } else { 600 * MS },
            refuses: chance.permille(500),
            unreached: if chance.permille(300) { 400 } else { 0 },
            apart: if coarse { 1 } else { chance.pick(&[MS, 200 * MS, 200 * MS, 900 * MS]) },
            coarse,
            setting: if drift == Drift::Beyond { Setting::Never } else { setting },
            changes_sync: chance.permille(300),
            largest_block: chance.pick(&[1, 4, 4, 1_000, 60_000]),
            repeats: if chance.permille(250) { 300 } else { 0 },
            cancels: if chance.permille(300) { 200 } else { 0 },
            leases: (shortest, quarantine),
            ppm,
            calm,
            good,
            probe,
            end: probe + 2 * SECOND,
        }
    }

    /// Two never hold a lock at the same time.
    pub(super) fn is_exclusive(&self) -> bool {
        self.drift == Drift::Assumed && !matches!(self.setting, Setting::BothWays(_))
    }

    /// Clocks go on by themselves.
    pub(super) fn is_steady(&self) -> bool {
        self.setting == Setting::Never
    }

    /// Whether the network loses, delays or repeats then.
    pub(super) fn is_wild(&self, at: u64) -> bool {
        self.wild && at < self.calm
    }
}
