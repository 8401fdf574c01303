//! The way between a client and the store: it loses, delays, repeats and reorders.

use crate::chance::{Chance, MS};
use crate::plan::Faults;

/// What becomes of one message: when it arrives, once, twice or not at all.
#[derive(Debug, Default, Clone, Copy)]
pub struct Fate {
    /// After how long it arrives.
    pub arrives: Option<u64>,
    /// After how long it arrives once more.
    pub again: Option<u64>,
}

/// Decides the fate of a message on a way that usually takes `latency`.
pub fn fate(chance: &mut Chance, faults: Option<&Faults>, latency: u64, may_repeat: bool) -> Fate {
    let usual = latency + chance.within(0..latency / 4 + 1);
    let Some(faults) = faults else { return Fate { arrives: Some(usual), again: None } };
    let again = (may_repeat && chance.permille(faults.repeat)).then(|| usual + late(chance));
    if chance.permille(faults.loss) {
        return Fate { arrives: None, again };
    }
    let slow = if chance.permille(faults.slow) { late(chance) } else { 0 };
    Fate { arrives: Some(usual + slow), again }
}

fn late(chance: &mut Chance) -> u64 {
    let most = chance.pick(&[5, 50, 300, 1_500]);
    chance.within(0..most * MS)
}
