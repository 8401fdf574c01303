//! A group that asks for what its owner holds already is told so at once, and never waits for itself.

use super::{Scene, Verdict, broken};
use crate::process::Wanting;

/// Whether a group wants a name that its owner holds in the same process.
pub fn holds_one(scene: &Scene<'_>, client: usize, want: &Wanting) -> bool {
    let names = want.names.as_slice();
    let ours = |name: usize| names.contains(&scene.names[name]);
    names.len() > 1
        && scene.beliefs.iter().any(|held| {
            let same = held.client == client && held.owner == want.owner && ours(held.name);
            same && held.is_valid(scene.at, scene.processes, scene.names)
        })
}

/// Such a group has asked, and was answered or not.
pub fn asked(client: usize, waits: bool) -> Verdict {
    if !waits {
        return Ok(());
    }
    broken("already held", None, format!("a group of client {client} waits for what its owner holds"))
}
