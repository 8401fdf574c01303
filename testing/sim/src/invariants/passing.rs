//! A lease is passed on within its budget and its block, no faster than the clock, and to nobody who needs a longer one.

use std::time::Duration;

use leasehold_core::fence::{Block, FENCE_UNIT_NANOS};
use leasehold_core::table::How;
use leasehold_core::{Moment, Options};

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// What a client got from the store, and may pass on.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    block: Block,
    sent: Moment,
    granted: Moment,
    budget: Duration,
    keep: Duration,
}

/// Blocks that the store reserved, and the turn of each client on each name.
#[derive(Debug, Default)]
pub struct Passing {
    blocks: [Option<Block>; 3],
    turns: Vec<[Option<Turn>; 3]>,
}

impl Passing {
    /// The store granted a block.
    pub fn reserved(&mut self, name: usize, block: Block) {
        self.blocks[name] = Some(block);
    }

    /// A grant is told.
    pub fn granted(&mut self, scene: &Scene<'_>, grant: &Belief, options: &Options) -> Verdict {
        self.turns.resize(scene.processes.len(), [None; 3]);
        let process = &scene.processes[grant.client];
        let now = process.clock.moment(scene.at);
        let lease = options.term.lease();
        let turn = &mut self.turns[grant.client][grant.name];
        match (grant.how, turn) {
            (How::Asked, turn) => {
                let block = self.blocks[grant.name].filter(|block| block.first == grant.fence);
                let sent = process.answering_sent;
                *turn = block.map(|block| Turn { block, sent, granted: now, budget: options.budget, keep: lease });
                Ok(())
            }
            (How::Reentered, Some(turn)) => {
                turn.keep = turn.keep.max(lease);
                Ok(())
            }
            (How::HandedOff, Some(turn)) => match turn.wrong(now, grant, lease) {
                Some(wrong) => {
                    let what = format!("client {} passes {:?} on {wrong}", grant.client, grant.fence);
                    broken("passing on", Some(grant.name), what)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl Turn {
    fn wrong(&self, now: Moment, grant: &Belief, lease: Duration) -> Option<String> {
        let steps = grant.fence.get() - self.block.first.get();
        let ready = self.sent + Duration::from_nanos(steps * FENCE_UNIT_NANOS);
        if grant.fence > self.block.last() {
            Some("beyond its block".into())
        } else if now > self.granted + self.budget {
            Some(format!("{:?} after its budget", now.since(self.granted + self.budget)))
        } else if now < ready {
            Some(format!("{:?} ahead of the clock", ready.since(now)))
        } else if lease > self.keep {
            Some(format!("to one who needs {lease:?}, and it is kept for {:?}", self.keep))
        } else {
            None
        }
    }
}
