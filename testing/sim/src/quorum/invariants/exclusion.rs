//! Whoever believes to hold a lock is the only one.

use super::broken;
use crate::invariants::Verdict;
use crate::quorum::client::Client;
use crate::quorum::machine::lock;

/// The first other client that believes to hold what this one believes to hold.
pub(in crate::quorum) fn overlap(at: u64, who: usize, clients: &[Client]) -> Option<(usize, usize)> {
    let me = &clients[who];
    let now = me.now(at);
    let book = lock(&me.book);
    for mine in book.beliefs.values().filter(|belief| now < belief.deadline) {
        for (other, client) in clients.iter().enumerate().filter(|(other, client)| *other != who && !client.dead) {
            let now = client.now(at);
            let theirs = lock(&client.book);
            if theirs.beliefs.values().any(|belief| belief.name == mine.name && now < belief.deadline) {
                return Some((other, mine.name));
            }
        }
    }
    None
}

pub(in crate::quorum) fn check(who: usize, overlap: Option<(usize, usize)>) -> Verdict {
    match overlap {
        None => Ok(()),
        Some((other, name)) => {
            broken("exclusion", format!("client {who} and client {other} hold lock {name} at the same time"))
        }
    }
}
