//! A lease that is valid in its holder's eyes is never taken out of the store by a message.

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// A release by `client` emptied the row of a name.
pub fn removed(scene: &Scene<'_>, client: usize, name: usize) -> Verdict {
    if !scene.is_certain(name) {
        return Ok(());
    }
    let is_hurt = |held: &&Belief| {
        let ours = held.name == name && !scene.is_misled(held.client);
        ours && held.is_valid(scene.at, scene.processes, scene.names)
    };
    let hurt = scene.beliefs.iter().find(is_hurt);
    match hurt {
        None => Ok(()),
        Some(held) => {
            let what = format!("client {client} released what client {} holds as {:?}", held.client, held.fence);
            broken("only the holder releases", Some(name), what)
        }
    }
}
