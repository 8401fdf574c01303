//! A lease is not kept in the store for long after the last guard of its client has reached its own end, though the guard lives on.

use leasehold_core::port::Holder;
use leasehold_core::{ClientId, StoreOwner};

use super::{Scene, Verdict, broken};
use crate::chance::MS;
use crate::store::StoreNode;

/// Time for the keeper to notice and to send, twice.
const USUAL: u64 = 100 * MS;
/// The shortest term of a renewal, which may be more than is needed until `max_hold`.
const SHORTEST: u64 = 200 * MS;

/// When the last guard of a client ended by itself, of each name.
#[derive(Debug, Default)]
pub struct Terms {
    ended: Vec<(ClientId, usize, u64)>,
}

impl Terms {
    /// The last guard of a name in a client was told that its time has ended.
    pub fn ended(&mut self, at: u64, client: ClientId, name: usize) {
        self.ended.push((client, name, at));
    }

    /// A client is granted a name, or gives it back.
    pub fn began(&mut self, client: ClientId, name: usize) {
        self.ended.retain(|(whose, which, _)| (*whose, *which) != (client, name));
    }

    /// Looks whether the store still has what ended a while ago.
    pub fn check(&self, scene: &Scene<'_>, store: &StoreNode) -> Verdict {
        // A minimum time outlasts its guard.
        if self.ended.is_empty() || scene.plan.habits.at_least > 0 || !scene.remembers {
            return Ok(());
        }
        let slowest = scene.processes.iter().map(|process| process.latency).max().unwrap_or(0);
        let limited = if scene.plan.habits.max_hold > 0 { SHORTEST } else { 0 };
        let bound = USUAL + limited + 12 * slowest + scene.plan.lease / 10;
        let now = store.clock.store_time(scene.at);
        for (client, name, ended) in self.ended.iter().filter(|(_, _, ended)| scene.at > ended + bound) {
            let inspected = store.reference.inspect(now, &scene.names[*name]);
            let ours = |holder: &&Holder| {
                // Where calls fail, nothing can be given back in time. A grant after that end is another one.
                let since = scene.at - holder.since.map_or(0, |since| now.since(since).as_nanos() as u64).min(scene.at);
                let healthy = scene.plan.is_calm() || since > scene.quiet_since.saturating_add(scene.plan.call_limit);
                let private = matches!(&holder.owner, StoreOwner::Private(request) if request.client == *client);
                private && healthy && since < *ended
            };
            if let Some(holder) = inspected.holders.iter().find(ours) {
                let what = format!(
                    "the last guard ended {} ms ago, and the store has {:?} for {:?}",
                    (scene.at - ended) / MS,
                    holder.fence,
                    holder.left
                );
                return broken("term", Some(*name), what);
            }
        }
        Ok(())
    }
}
