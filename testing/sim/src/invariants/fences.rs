//! The fence of a grant is larger than that of every earlier grant of the name; only a re-entry has the same.
//!
//! No fence is told twice, whatever the store forgot and however its clock was set. A smaller one than before comes only from a client
//! that hands on what it was granted before the store forgot.

use leasehold_core::table::How;
use leasehold_core::{Fence, Owner};

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// Every grant of every name so far.
#[derive(Debug, Default)]
pub struct Fences {
    told: [Vec<KnownFence>; 3],
    /// When the store last forgot a name: by itself, because it was told to, or because its clock was set.
    forgot: [u64; 3],
}

#[derive(Debug)]
struct KnownFence {
    at: u64,
    fence: Fence,
    owner: Owner,
}

impl Fences {
    /// The store forgot a name.
    pub fn forgot(&mut self, name: usize, at: u64) {
        self.forgot[name] = at;
    }

    /// The store forgot everything, or its clock was set.
    pub fn forgot_all(&mut self, at: u64) {
        self.forgot = [at; 3];
    }

    /// A grant is told.
    pub fn granted(&mut self, scene: &Scene<'_>, grant: &Belief) -> Verdict {
        let told = &mut self.told[grant.name];
        // Where the store forgot a grant, two may be told in either order; only what was told before the other was asked for counts.
        let certain = scene.is_certain(grant.name);
        let before = if certain { u64::MAX } else { grant.sent };
        // And an old copy of the store may hold an old lease of a shared owner, which others re-enter with its old fence.
        let handed_on = grant.how == How::HandedOff && grant.leased_since > self.forgot[grant.name];
        let ordered = certain || (grant.how == How::Asked || handed_on) && grant.owner.is_generated();
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
        told.push(KnownFence { at: grant.since, fence: grant.fence, owner: grant.owner.clone() });
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
