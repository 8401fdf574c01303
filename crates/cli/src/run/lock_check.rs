//! Asks the store whether a lock is still its holder's, where no renewal does: a fixed lease is not renewed, and neither is one that an
//! operator broke, though `break --now` may follow.

use std::time::Duration;

use leasehold::{Client, Fence, GroupGuard, Loss, Name};

/// Before a loss is believed, it is seen again after this pause: over several servers, one look may show another's attempt.
const CONFIRM_AFTER: Duration = Duration::from_millis(20);
/// A fixed lease is looked at this often in its lease,
const LOOKS_PER_LEASE: u32 = 3;
/// and at least as often as this.
const FIXED_EVERY_MAX: Duration = Duration::from_secs(10);
/// A lock that was broken is looked at this often in its lease,
const LOOKS_WHEN_BROKEN: u32 = 20;
/// within these bounds.
const BROKEN_EVERY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// One who ends is not kept from it for longer.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Waits until the store shows that a fixed lease was lost, and says how.
pub(super) async fn of_fixed(client: &Client, guard: &GroupGuard, lease: Duration) -> Loss {
    watch(client, guard, (lease / LOOKS_PER_LEASE).min(FIXED_EVERY_MAX), false).await
}

/// Waits until the store shows that a lock which an operator broke is no longer kept from others.
pub(super) async fn of_broken(client: &Client, guard: &GroupGuard, lease: Duration) -> Loss {
    watch(client, guard, (lease / LOOKS_WHEN_BROKEN).clamp(BROKEN_EVERY.0, BROKEN_EVERY.1), true).await
}

/// What became of a lock that an operator broke, as one look shows: it may be gone by now, or another of the same names may. For those who
/// end at once.
pub(crate) async fn after_break(client: &Client, guard: &GroupGuard) -> Loss {
    let seen = async {
        match look(client, guard).await {
            Some(Loss::Broken) | None => Loss::Broken,
            Some(graver) => {
                tokio::time::sleep(CONFIRM_AFTER).await;
                if look(client, guard).await == Some(graver) { graver } else { Loss::Broken }
            }
        }
    };
    tokio::time::timeout(LOOK_MAX, seen).await.unwrap_or(Loss::Broken)
}

async fn watch(client: &Client, guard: &GroupGuard, every: Duration, is_broken: bool) -> Loss {
    // After a break at once: of several names, another may be lost already.
    let mut pause = if is_broken { Duration::ZERO } else { every };
    loop {
        tokio::time::sleep(pause).await;
        pause = every;
        if let Some(loss) = look(client, guard).await.filter(|loss| !is_broken || *loss != Loss::Broken) {
            tokio::time::sleep(CONFIRM_AFTER).await;
            if look(client, guard).await == Some(loss) {
                return loss;
            }
        }
    }
}

/// The gravest loss of any name. What cannot be asked is not lost: the deadline decides.
async fn look(client: &Client, guard: &GroupGuard) -> Option<Loss> {
    let owner = guard.guards()[0].owner().to_string();
    let mut found = None;
    for (name, fence) in guard.fences() {
        match look_at(client, name, fence, &owner).await {
            Some(Loss::Broken) => found = Some(Loss::Broken),
            None => {}
            graver => return graver,
        }
    }
    found
}

async fn look_at(client: &Client, name: &Name, fence: Fence, owner: &str) -> Option<Loss> {
    let status = client.inspect(name.as_str()).await.ok()?;
    let is_ours = |seen: Option<Fence>, by: Option<&str>| seen.map_or(by == Some(owner), |seen| seen == fence);
    match status.holders.iter().find(|holder| is_ours(holder.fence, holder.owner.as_deref())) {
        None => Some(Loss::Gone),
        Some(holder) => holder.is_broken().then_some(Loss::Broken),
    }
}
