//! Several holds of one shared owner: each is counted once, and none cuts short what another was promised.

use std::time::Duration;

use leasehold::Store;
use leasehold::port::{Acquire, Acquired, Granted, Lease, Release, ReleaseScope, Released, Renew, Renewed, StoreOwner};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_redis::Redis as Server;

use crate::scene::{Case, Checked, MS, S, block_on, count, left};
use crate::stale::{asking, giving, store};

pub(crate) const CASES: &[Case] = &[
    ("holds::a_late_copy_of_a_released_acquire_adds_none", || block_on(a_late_copy())),
    ("holds::a_re_entry_does_not_end_lingering_early", || block_on(a_re_entry_while_it_lingers())),
    ("holds::a_renewal_does_not_end_lingering_early", || block_on(a_renewal_while_it_lingers())),
    ("holds::the_last_release_keeps_what_an_earlier_one_asked_for", || block_on(a_release_while_it_lingers())),
    ("holds::a_release_of_any_hold_gives_back_the_newest", || block_on(any_hold())),
    ("holds::what_lingers_after_all_have_ended_is_not_re_entered", || block_on(all_have_ended())),
];

/// How long the lock is to stay taken after one of its holds was released.
const LINGER: Duration = Duration::from_secs(600);

/// Acquires `n1` for an owner that several clients share.
fn shared(number: u64) -> Acquire {
    Acquire { names: asking(1).names, owner: StoreOwner::Shared("us".into()), ..asking(number) }
}

async fn take(store: &Server, request: &Acquire) -> Result<Granted, Failure> {
    match store.acquire(request.clone()).await?.result {
        Acquired::Granted(grants) => Ok(grants[0]),
        other => Err(format!("not granted: {other:?}").into()),
    }
}

/// The owner still holds the lock by another request, so the copy is granted. But it adds no hold, which would never be
/// released.
async fn a_late_copy() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    let (stays, leaves) = (shared(1), shared(2));
    take(&store, &stays).await?;
    assert_eq!(take(&store, &leaves).await?.holds, 2);
    assert_eq!(store.release(giving(&leaves, None)).await?.result, Released::StillHeld(1));
    let copy = take(&store, &leaves).await?;
    assert_eq!((copy.holds, copy.left), (1, Duration::ZERO));
    assert_eq!(count(&server, "n1", "us")?, 1);
    let freed = store.release(giving(&stays, None)).await?.result;
    assert_eq!(freed, Released::Released { waiters: Some(0) });
    Ok(())
}

/// One of two holds is released and wants the lock to stay taken for much longer than the other lasts.
async fn lingering(server: &Redis, store: &Server) -> Result<Granted, Failure> {
    let (stays, leaves) = (shared(1), shared(2));
    let granted = take(store, &stays).await?;
    take(store, &leaves).await?;
    let release = Release { cooldown: LINGER, ..giving(&leaves, None) };
    assert_eq!(store.release(release).await?.result, Released::StillHeld(1));
    lasts(server)?;
    Ok(granted)
}

/// The lock is taken for as long as was requested, and not just until its holds end.
fn lasts(server: &Redis) -> Checked {
    let left = left(server, "n1")?.unwrap_or_default();
    assert!(left > LINGER / 2, "it is free in {left:?}");
    Ok(())
}

async fn a_re_entry_while_it_lingers() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    lingering(&server, &store).await?;
    take(&store, &shared(3)).await?;
    lasts(&server)
}

async fn a_renewal_while_it_lingers() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    let granted = lingering(&server, &store).await?;
    let Acquire { names, owner, request, .. } = shared(1);
    let lease = Lease { name: names.first().clone(), owner, fence: granted.block.first };
    let renew = Renew { lease, hold: Some(request), term: 90 * S, kept: false };
    let renewed = store.renew(vec![renew]).await?.result;
    assert!(matches!(renewed[..], [Renewed::Kept { .. }]), "{renewed:?}");
    lasts(&server)
}

async fn a_release_while_it_lingers() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    lingering(&server, &store).await?;
    let released = store.release(giving(&shared(1), None)).await?.result;
    assert_eq!(released, Released::Released { waiters: Some(0) });
    lasts(&server)
}

/// The owner asked for the lock to stay taken: once its holds have ended, that excludes the owner as well.
async fn all_have_ended() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    let (ends, leaves) = (Acquire { lease: 300 * MS, ..shared(1) }, shared(2));
    take(&store, &ends).await?;
    take(&store, &leaves).await?;
    store.release(Release { cooldown: LINGER, ..giving(&leaves, None) }).await?;
    let name = ends.names.first().clone();
    while !store.inspect(name.clone()).await?.result.holders.is_empty() {
        tokio::time::sleep(10 * MS).await;
    }
    let acquired = store.acquire(shared(3)).await?.result;
    assert!(matches!(&acquired, Acquired::Busy(_)), "{acquired:?}");
    lasts(&server)
}

/// A release without a request releases the latest hold: the older ones belong to others.
async fn any_hold() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    take(&store, &Acquire { lease: LINGER, ..shared(1) }).await?;
    take(&store, &shared(2)).await?;
    let any = Release { scope: ReleaseScope::One(shared(3).request), ..giving(&shared(3), None) };
    assert_eq!(store.release(any).await?.result, Released::StillHeld(1));
    lasts(&server)
}
