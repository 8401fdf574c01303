//! At no true time are two different owners valid on one name, and nobody is granted what is over already.

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// A grant is told: it is one to act on.
pub fn granted(scene: &Scene<'_>, grant: &Belief) -> Verdict {
    if grant.is_valid(scene.at, scene.processes, scene.names) {
        return Ok(());
    }
    let what = format!("client {} is granted {:?}, which is over already", grant.client, grant.fence);
    broken("exclusion", Some(grant.name), what)
}

/// Checks every pair that believes to hold the same name now.
pub fn check(scene: &Scene<'_>) -> Verdict {
    for (at, one) in scene.beliefs.iter().enumerate() {
        for other in &scene.beliefs[at + 1..] {
            let apart = one.name == other.name && one.owner != other.owner && scene.is_certain(one.name);
            let valid = |belief: &Belief| {
                !scene.is_misled(belief.client) && belief.is_valid(scene.at, scene.processes, scene.names)
            };
            if apart && valid(one) && valid(other) {
                let what = format!(
                    "client {} (fence {:?}) and client {} (fence {:?}) are both valid",
                    one.client, one.fence, other.client, other.fence
                );
                return broken("exclusion", Some(one.name), what);
            }
        }
    }
    Ok(())
}
