//! Where nothing goes wrong, a kept lock is not lost.

use leasehold_core::table::Loss;

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// A guard is told that its lock is lost.
pub fn lost(scene: &Scene<'_>, held: &Belief, loss: Loss) -> Verdict {
    let healthy = scene.plan.is_calm() || held.leased_since >= scene.quiet_since;
    if loss == Loss::Closed || !held.kept || !healthy {
        return Ok(());
    }
    let what = format!("client {} lost {:?} ({loss:?}) though nothing went wrong", held.client, held.fence);
    broken("keeping", Some(held.name), what)
}
