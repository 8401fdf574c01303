//! leasehold beside floors and peers: what such a measurement is given, and what it finds.

use crate::figure::Figure;
use crate::ratio::Rounds;

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Takes and releases of each contestant in a round.
    pub(crate) pairs: u32,
}

impl Effort {
    /// What the bounds are meant for.
    pub(crate) const FULL: Self = Self { rounds: 9, pairs: 3_000 };

    /// As this program tells another process of its own.
    pub(crate) fn told(rounds: &str, pairs: &str) -> Self {
        Self { rounds: rounds.parse().expect("a number"), pairs: pairs.parse().expect("a number") }
    }
}

/// What one comparison found.
pub(crate) struct Comparison {
    /// Each with what it shows, as a heading.
    pub(crate) tables: Vec<(String, Rounds)>,
    pub(crate) figures: Vec<Figure>,
    /// Peers that could not take part, and why.
    pub(crate) ignored: Vec<String>,
}
