//! Where the store does not answer, a waiting acquire fails when its patience is over, and not before.

use std::time::Duration;

use leasehold_core::Moment;

use super::{Scene, Verdict, broken};
use crate::process::Wanting;

/// A wish that is not a re-entry fails because the store cannot be reached.
pub fn failed(scene: &Scene<'_>, client: usize, want: &Wanting) -> Verdict {
    let process = &scene.processes[client];
    // One that waits behind another which the store does not answer may have patience from when it came.
    let came = (process.clock.moment(want.since), Duration::ZERO);
    let left = left(scene, client, came, process.skipped);
    if want.once || left.is_zero() && !want.heard {
        return Ok(());
    }
    let name = scene.names.iter().position(|name| name == want.names.first());
    broken("patience", name, format!("client {client} gives {:?} up, {left:?} too early", want.ticket))
}

/// A call of a task failed, and it was not told.
pub fn goes_on(scene: &Scene<'_>, client: usize, want: &Wanting) -> Verdict {
    let whole = (scene.processes[client].clock.moment(scene.at), Duration::ZERO);
    let since = want.asks_since.unwrap_or(whole);
    if want.heard || !want.once && !left(scene, client, since, Duration::ZERO).is_zero() {
        return Ok(());
    }
    let name = scene.names.iter().position(|name| name == want.names.first());
    broken(
        "patience",
        name,
        format!("client {client} goes on asking for {:?}, though the store is silent", want.ticket),
    )
}

/// What is left of its patience since then, where its clock has skipped so much in all.
fn left(scene: &Scene<'_>, client: usize, since: (Moment, Duration), skipped: Duration) -> Duration {
    let process = &scene.processes[client];
    let left = (since.0 + process.patience).since(process.clock.moment(scene.at));
    left.saturating_sub(skipped.saturating_sub(since.1))
}
