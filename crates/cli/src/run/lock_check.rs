//! Asks the store whether the holder still has a lock that is not renewed: one with a fixed lease, or one that an
//! operator broke, because `break --now` may follow.

use std::time::Duration;

use leasehold::{Client, Fence, GroupGuard, Loss, Name};

/// A loss is confirmed after this pause: over several servers, one read may show another's attempt.
const CONFIRM_AFTER: Duration = Duration::from_millis(20);
/// Number of checks per fixed lease,
const FIXED_CHECKS_PER_LEASE: u32 = 3;
/// with at most this interval.
const FIXED_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Number of checks per lease of a broken lock,
const BROKEN_CHECKS_PER_LEASE: u32 = 20;
/// with an interval in this range.
const BROKEN_INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A process that ends waits no longer than this.
const CHECK_LIMIT: Duration = Duration::from_secs(1);

/// Waits until the store shows that a fixed lease was lost, and says how.
pub(super) async fn of_fixed(client: &Client, guard: &GroupGuard, lease: Duration) -> Loss {
    watch(client, guard, (lease / FIXED_CHECKS_PER_LEASE).min(FIXED_INTERVAL_MAX), false).await
}

/// Waits until the store shows that a broken lock is no longer kept from others.
pub(super) async fn of_broken(client: &Client, guard: &GroupGuard, lease: Duration) -> Loss {
    watch(client, guard, (lease / BROKEN_CHECKS_PER_LEASE).clamp(BROKEN_INTERVAL.0, BROKEN_INTERVAL.1), true).await
}

/// The state of a broken lock in one read: it may be gone by now, or another of the same names may be. For a process
/// that is about to end.
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
    tokio::time::timeout(CHECK_LIMIT, seen).await.unwrap_or(Loss::Broken)
}

async fn watch(client: &Client, guard: &GroupGuard, every: Duration, is_broken: bool) -> Loss {
    // After a break at once: another of several names may be lost already.
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

/// The gravest loss of any name. If the store does not answer, nothing is lost: the deadline decides.
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
