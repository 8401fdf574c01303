//! One who asks just once for one name is answered within a few round trips, whoever sleeps or waits.

use leasehold_core::Names;

use super::{Scene, Verdict, broken};
use crate::chance::MS;
use crate::process::Wanting;
use crate::shell::KEEPER_LATE;

/// A task is told what came of its wish.
pub fn answered(scene: &Scene<'_>, client: usize, want: &Wanting) -> Verdict {
    let slowest = scene.processes.iter().map(|process| process.latency).max().unwrap_or(0);
    let took = scene.at - want.since;
    let alone = matches!(want.names, Names::One(_));
    // A release that was not sent is sent again by the keeper, after a pause.
    let unsent = if scene.plan.habits.unsent > 0 { 17 * MS } else { 0 };
    let keeper = unsent + if scene.plan.keeper_late { KEEPER_LATE } else { 0 };
    if !want.once || !alone || !scene.plan.is_calm() || took <= 3 * MS + 12 * slowest + keeper {
        return Ok(());
    }
    let name = scene.names.iter().position(|name| name == want.names.first());
    broken("prompt tries", name, format!("client {client} waited {} ms for {:?}", took / MS, want.ticket))
}
