//! Where the store does not answer, a waiting acquire fails when its patience is over, and not before.

use std::time::Duration;

use super::{Scene, Verdict, broken};
use crate::process::Wanting;

/// A wish that is not a re-entry fails because the store cannot be reached.
pub fn failed(scene: &Scene<'_>, client: usize, want: &Wanting) -> Verdict {
    let left = left(scene, client, want, scene.processes[client].skipped);
    if want.once || left.is_zero() && !want.heard {
        return Ok(());
    }
    let name = scene.names.iter().position(|name| name == want.names.first());
    broken("patience", name, format!("client {client} gives {:?} up, {left:?} too early", want.ticket))
}

/// A call of a task failed, and it was not told.
pub fn goes_on(scene: &Scene<'_>, client: usize, want: &Wanting) -> Verdict {
    if want.heard || !want.once && !left(scene, client, want, Duration::ZERO).is_zero() {
        return Ok(());
    }
    let name = scene.names.iter().position(|name| name == want.names.first());
    broken(
        "patience",
        name,
        format!("client {client} goes on asking for {:?}, though the store is silent", want.ticket),
    )
}

/// What is left of its patience, where its clock has skipped so much in all; all of it before it has asked.
fn left(scene: &Scene<'_>, client: usize, want: &Wanting, skipped: Duration) -> Duration {
    let process = &scene.processes[client];
    let Some((since, skipped_before)) = want.asks_since else { return process.patience };
    let left = (since + process.patience).since(process.clock.moment(scene.at));
    left.saturating_sub(skipped.saturating_sub(skipped_before))
}
