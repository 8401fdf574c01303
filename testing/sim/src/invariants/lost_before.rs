//! Whoever lost a lock has been told so, or has released it, before another owner is granted it.

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;
use crate::chance::MS;

/// A process that slept needs this long to run what was due.
const CATCHING_UP: u64 = 25 * MS;

/// A grant is told.
pub fn granted(scene: &Scene<'_>, grant: &Belief) -> Verdict {
    if !scene.is_certain(grant.name) || scene.is_misled(grant.client) {
        return Ok(());
    }
    let unaware = |held: &&Belief| {
        let process = &scene.processes[held.client];
        let awake =
            !process.misled && process.asleep_until <= scene.at && scene.at >= process.awake_since + CATCHING_UP;
        // Of a lease that was all but over when it was found, less is kept for a keeper that is late.
        let over = scene.plan.keeper_late && !held.is_valid(scene.at, scene.processes, scene.names);
        held.name == grant.name && held.owner != grant.owner && awake && !over
    };
    match scene.beliefs.iter().find(unaware) {
        None => Ok(()),
        Some(held) => {
            let what = format!(
                "client {} is granted fence {:?} while client {} has not been told that {:?} is lost",
                grant.client, grant.fence, held.client, held.fence
            );
            broken("lost before", Some(grant.name), what)
        }
    }
}
