//! Breaking a lock ends its holder's right at the end of its lease: no renewal is answered with more.

use leasehold_core::Fence;
use leasehold_core::port::Renewed;

use super::{Scene, Verdict, broken};

/// The lease that was broken last, of each name.
#[derive(Debug, Default)]
pub struct Breaking {
    broken: [Option<Fence>; 3],
}

impl Breaking {
    /// The store was told to break a lock.
    pub fn broke(&mut self, name: usize, fence: Option<Fence>) {
        self.broken[name] = fence;
    }

    /// The store answered a renewal.
    pub fn renewed(&self, scene: &Scene<'_>, name: usize, fence: Fence, result: Renewed) -> Verdict {
        if !scene.remembers || self.broken[name] != Some(fence) || !matches!(result, Renewed::Kept { .. }) {
            return Ok(());
        }
        broken("breaking", Some(name), format!("{fence:?} was broken, and renewed"))
    }
}
