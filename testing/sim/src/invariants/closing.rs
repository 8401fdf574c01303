//! A closed client holds nothing: its guards are told at once, and whoever asks it from then on is refused.

use leasehold_core::{Error, ErrorKind};

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

const INVARIANT: &str = "closing";

/// A client was closed.
pub fn closed(scene: &Scene<'_>, client: usize) -> Verdict {
    if let Some(held) = scene.beliefs.iter().find(|held| held.client == client) {
        let what = format!("client {client} is closed, and {:?} has not been told", held.hold);
        return broken(INVARIANT, Some(held.name), what);
    }
    let mut wants = scene.processes[client].tasks.iter().filter_map(|task| task.want.as_ref());
    match wants.find(|want| want.extends.is_none()) {
        Some(want) => {
            broken(INVARIANT, None, format!("client {client} is closed, and {:?} has not been told", want.ticket))
        }
        None => Ok(()),
    }
}

/// A grant is told.
pub fn granted(scene: &Scene<'_>, grant: &Belief) -> Verdict {
    if !scene.processes[grant.client].closed {
        return Ok(());
    }
    broken(INVARIANT, Some(grant.name), format!("client {} is closed, and is granted {:?}", grant.client, grant.fence))
}

/// A task of a client, closed or not, is told that it cannot have a lock.
pub fn failed(scene: &Scene<'_>, client: usize, error: &Error) -> Verdict {
    if scene.processes[client].closed || error.kind() != ErrorKind::Closed {
        return Ok(());
    }
    broken(INVARIANT, None, format!("client {client} is open, and says that it is closed"))
}
