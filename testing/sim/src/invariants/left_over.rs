//! In the end nothing is left over: no name in a table, no timer, no lease of a living client in the store, no waiter.

use leasehold_core::StoreOwner;
use leasehold_core::port::Inspected;

use super::{Scene, Verdict, broken};
use crate::store::StoreNode;

const INVARIANT: &str = "nothing left over";

/// Everything has come to rest, or its time is over.
pub fn check(scene: &Scene<'_>, store: &StoreNode, strays: [bool; 3], orphans: [bool; 3]) -> Verdict {
    for (at, process) in scene.processes.iter().enumerate().filter(|(_, process)| process.alive) {
        let table = &process.table;
        if let Some(name) = table.names().min() {
            let name = scene.names.iter().position(|known| known == name);
            return broken(INVARIANT, name, format!("client {at} still has names in its table"));
        }
        if table.next_timer().is_some() || table.remnants() + table.guards() > 0 {
            let (remnants, guards) = (table.remnants(), table.guards());
            let what = format!("client {at} still has {remnants} remnants, {guards} guards or a timer");
            return broken(INVARIANT, None, what);
        }
    }
    let now = store.clock.store_time(scene.at);
    // A store that executes one sending twice may leave a lease to nobody until it ends.
    for (number, name) in scene.names.iter().enumerate().filter(|(number, _)| !strays[*number]) {
        check_store(scene, number, &store.reference.inspect(now, name), orphans[number])?;
    }
    Ok(())
}

fn check_store(scene: &Scene<'_>, name: usize, inspected: &Inspected, orphaned: bool) -> Verdict {
    let someone_died = scene.processes.iter().any(|process| !process.alive);
    if !scene.remembers {
        return Ok(());
    }
    for holder in &inspected.holders {
        let alive = match &holder.owner {
            StoreOwner::Private(request) => scene.processes.iter().any(|p| p.alive && p.id == request.client),
            StoreOwner::Shared(_) => !orphaned,
        };
        if alive {
            let what = format!("the store still has {} with {:?}", holder.owner, holder.fence);
            return broken(INVARIANT, Some(name), what);
        }
    }
    if inspected.waiters != Some(0) && !someone_died && scene.plan.is_calm() {
        return broken(INVARIANT, Some(name), format!("the store still lists {:?} waiters", inspected.waiters));
    }
    Ok(())
}
