//! What a guard believes to hold, the store has: a lease of its owner that has not ended, and a hold for each client of that owner.

use std::collections::BTreeSet;

use leasehold_core::{Name, StoreOwner};

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;
use crate::store::StoreNode;

/// Looks at the guards of one name.
pub fn check(scene: &Scene<'_>, store: &StoreNode, number: usize) -> Verdict {
    let valid = |held: &&Belief| {
        let certain = held.name == number && scene.is_certain(number) && !scene.is_misled(held.client);
        certain && held.is_valid(scene.at, scene.processes, scene.names)
    };
    let Some(one) = scene.beliefs.iter().find(valid) else { return Ok(()) };
    let name: &Name = &scene.names[number];
    let inspected = store.reference.inspect(store.clock.store_time(scene.at), name);
    let Some(holder) = inspected.holders.first() else {
        let what = format!("client {} holds {:?}, and the store has nothing", one.client, one.fence);
        return broken("backing", Some(number), what);
    };
    let clients: BTreeSet<usize> = scene.beliefs.iter().filter(valid).map(|held| held.client).collect();
    let same = match (&holder.owner, one.owner.as_explicit()) {
        (StoreOwner::Private(request), None) => scene.processes[one.client].id == request.client,
        (StoreOwner::Shared(id), Some(own)) => id == own,
        _ => false,
    };
    if !same || (holder.holds as usize) < clients.len() {
        let what = format!(
            "client {} of {clients:?} holds {:?}, and the store has {} holds of {}",
            one.client, one.fence, holder.holds, holder.owner
        );
        return broken("backing", Some(number), what);
    }
    Ok(())
}
