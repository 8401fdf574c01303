//! The fence of a grant is larger than that of every earlier grant of the name; only a re-entry has the same.

use leasehold_core::table::How;
use leasehold_core::{Fence, Owner};

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// Every grant of every name so far.
#[derive(Debug, Default)]
pub struct Fences {
    told: [Vec<Told>; 3],
}

#[derive(Debug)]
struct Told {
    at: u64,
    fence: Fence,
    owner: Owner,
}

impl Fences {
    /// A grant is told.
    pub fn granted(&mut self, scene: &Scene<'_>, grant: &Belief) -> Verdict {
        let told = &mut self.told[grant.name];
        // Where the store forgot a grant, two may be told in either order; only what was told before the other was asked for counts.
        let certain = scene.is_certain(grant.name);
        let before = if certain { u64::MAX } else { grant.sent };
        // And an old copy of the store may hold an old lease of a shared owner, which others re-enter with its old fence.
        let ordered = certain || grant.how == How::Asked && grant.owner.is_generated();
        let ordered = ordered && !scene.is_misled(grant.client);
        for earlier in told.iter().rev() {
            let same_owner = earlier.owner == grant.owner;
            let again = earlier.fence == grant.fence && same_owner;
            let twice = earlier.fence == grant.fence && !same_owner;
            let behind = ordered && earlier.at < before && earlier.fence >= grant.fence && !again;
            if twice || behind {
                let what =
                    format!("client {} was told fence {:?} after {:?}", grant.client, grant.fence, earlier.fence);
                return broken("fence order", Some(grant.name), what);
            }
        }
        told.push(Told { at: grant.since, fence: grant.fence, owner: grant.owner.clone() });
        reentered(scene, grant)
    }
}

fn reentered(scene: &Scene<'_>, grant: &Belief) -> Verdict {
    let ours = |held: &&Belief| {
        let same = held.client == grant.client && held.name == grant.name && held.owner == grant.owner;
        same && held.is_valid(scene.at, scene.processes, scene.names)
    };
    match (grant.how, scene.beliefs.iter().find(ours)) {
        (How::Reentered, Some(held)) if held.fence != grant.fence => {
            let what = format!("a re-entry has fence {:?}, the grant {:?}", grant.fence, held.fence);
            broken("fence order", Some(grant.name), what)
        }
        _ => Ok(()),
    }
}
