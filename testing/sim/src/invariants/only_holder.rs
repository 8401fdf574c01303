//! A lease that is valid in its holder's eyes is never taken out of the store by a message.

use super::{Scene, Verdict, broken};

/// A release by `client` emptied the row of a name.
pub fn removed(scene: &Scene<'_>, client: usize, name: usize) -> Verdict {
    if !scene.remembers {
        return Ok(());
    }
    let hurt =
        scene.beliefs.iter().find(|held| held.name == name && held.is_valid(scene.at, scene.processes, scene.names));
    match hurt {
        None => Ok(()),
        Some(held) => {
            let what = format!("client {client} released what client {} holds as {:?}", held.client, held.fence);
            broken("only the holder releases", Some(name), what)
        }
    }
}
