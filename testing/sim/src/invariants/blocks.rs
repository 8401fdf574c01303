//! What a block has left when it is released is given back: a fence is never further on than it has to be.

use leasehold_core::StoreTime;
use leasehold_core::fence::{Block, FENCE_JUMP, Fence};

use super::{Scene, Verdict, broken};

/// The last fence that each name's store must remember.
#[derive(Debug, Default)]
pub struct Blocks {
    last: [Fence; 3],
    block: [Option<Block>; 3],
}

impl Blocks {
    /// The store took the rest of a block back.
    pub fn released(&mut self, name: usize, used: Option<Fence>) {
        if let (Some(block), Some(used)) = (self.block[name].take(), used) {
            self.last[name] = used.clamp(block.first, block.last());
        }
    }

    /// The store grants a name that was free, at `now` on its clock, to one who has `seen` a fence.
    pub fn granted(&mut self, scene: &Scene<'_>, name: usize, block: Block, seen: Fence, now: StoreTime) -> Verdict {
        let next = self.last[name].max(seen).plus(1).max(Fence::at(now));
        self.last[name] = block.last();
        self.block[name] = Some(block);
        // A store that may have forgotten what was before begins a little further on.
        let room = if scene.plan.faults.loses_memory() { FENCE_JUMP } else { 0 };
        if !scene.remembers || block.first <= next.plus(room) {
            return Ok(());
        }
        broken("blocks", Some(name), format!("{:?} was granted, and {next:?} was free", block.first))
    }
}
