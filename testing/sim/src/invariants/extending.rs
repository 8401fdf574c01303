//! Whoever is told that its lease was lengthened holds it, has held it all the time, and has it for as long as it asked.

use std::time::Duration;

use leasehold_core::Moment;
use leasehold_core::lease;
use leasehold_core::table::HoldId;

use super::{Scene, Verdict, broken};

/// What a guard asked for.
#[derive(Debug, Clone, Copy)]
pub struct Extension {
    /// The guard's hold.
    pub hold: HoldId,
    /// The number of its name.
    pub name: usize,
    /// For how long from the asking.
    pub term: Duration,
    /// When it asked, on the client's clock.
    pub asked: Moment,
    /// When its hold would have ended, where it has an end of its own.
    pub ended: Moment,
}

/// A task is told that its lease was lengthened.
pub fn extended(scene: &Scene<'_>, client: usize, asked: Extension) -> Verdict {
    let process = &scene.processes[client];
    let now = process.clock.moment(scene.at);
    let left = process.table.time_left(now, &scene.names[asked.name], asked.hold);
    let held = scene.beliefs.iter().find(|held| held.client == client && held.hold == asked.hold);
    let wrong = match (held, left) {
        (None, _) | (_, None) => Some("though it is lost".into()),
        _ if now >= asked.ended => Some("though it had ended".into()),
        (Some(held), Some(left)) => {
            let promised = lease::deadline(asked.asked, asked.term).min(held.ends);
            let lasts = now + left;
            (lasts < promised && process.skipped.is_zero())
                .then(|| format!("for {:?} too little", promised.since(lasts)))
        }
    };
    wrong.map_or(Ok(()), |wrong| {
        broken(
            "results of extend",
            Some(asked.name),
            format!("{:?} of client {client} is lengthened, {wrong}", asked.hold),
        )
    })
}

/// A task is told that its lease was not lengthened because it is lost.
pub fn refused(scene: &Scene<'_>, client: usize, asked: Extension) -> Verdict {
    let process = &scene.processes[client];
    let now = process.clock.moment(scene.at);
    let left = process.table.time_left(now, &scene.names[asked.name], asked.hold);
    // What was asked for may be over when it is answered, though the hold lasts for longer than that.
    let in_vain = now + process.skipped >= lease::deadline(asked.asked, asked.term);
    match left.filter(|_| !in_vain) {
        None => Ok(()),
        Some(left) => {
            let what = format!("{:?} of client {client} is told that it is lost, and has {left:?}", asked.hold);
            broken("results of extend", Some(asked.name), what)
        }
    }
}
