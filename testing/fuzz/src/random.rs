//! Chance from a seed.

/// Numbers that look random (SplitMix64). The same seed gives the same ones.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// A part of something of this length: where it begins and ends. Short ones more often than long ones.
    pub fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.below(length as u64 + 1) as usize;
        let most = if self.below(4) == 0 { length } else { 8 };
        (from, (from + self.below(most as u64 + 1) as usize).min(length))
    }

    /// One of them.
    ///
    /// # Panics
    ///
    /// Where there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// A name for some bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |digest, byte| mixed(digest ^ u64::from(*byte)))
}

fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
