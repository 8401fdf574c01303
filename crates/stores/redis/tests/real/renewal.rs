//! RedissonLockExpirationRenewalTest for RLock, applied to leasehold.

use leasehold::ErrorKind;
use leasehold_faults::servers::Redis;

use crate::scene::{Case, Checked, LIMIT, S, block_on, client, eventually, left, number};

pub(crate) const CASES: &[Case] = &[
    ("renewal::after_a_restart_new_locks_are_kept", || block_on(after_a_restart_new_locks_are_kept())),
    ("renewal::after_nested_releases_a_later_lock_is_kept", || block_on(after_nested_releases_a_later_lock_is_kept())),
];

/// testLockAfterTimeout: the server comes back empty while a lock is held: the holder is notified, and later locks of
/// the name are renewed as usual; twice.
async fn after_a_restart_new_locks_are_kept() -> Checked {
    let mut server = Redis::start()?;
    let client = client(&server).await?;
    for _ in 0..2 {
        let held = client.lock("a")?.keep(3 * S).acquire().await?;
        server.restart_empty()?;
        tokio::time::timeout(LIMIT, held.lost()).await?;
        assert_eq!(held.release().await.expect_err("it was lost").kind(), ErrorKind::Lost);
        let again = client.lock("a")?.keep(3 * S).acquire().await?;
        is_kept(&server, &again).await?;
        again.release().await?;
        assert_eq!(number(&server, &["EXISTS", "a"])?, 0);
    }
    Ok(())
}

/// testLockReentrantRenew: acquired twice, released twice; then another client's lock of the name lives for many
/// leases.
async fn after_nested_releases_a_later_lock_is_kept() -> Checked {
    let server = Redis::start()?;
    let (one, other) = (client(&server).await?, client(&server).await?);
    let first = one.lock("a")?.keep(3 * S).acquire().await?;
    let nested = one.lock("a")?.owned_by(first.owner()).keep(3 * S).acquire().await?;
    nested.release().await?;
    is_kept(&server, &first).await?;
    first.release().await?;
    let guard = other.lock("a")?.keep(3 * S).acquire().await?;
    is_kept(&server, &guard).await?;
    Ok(())
}

/// It outlives several of its leases, and that is because it is renewed: what is left grows again.
async fn is_kept(server: &Redis, guard: &leasehold::Guard) -> Checked {
    for _ in 0..5 {
        let mut before = left(server, "a")?.ok_or("it is not there")?;
        eventually("it is renewed", || {
            let now = left(server, "a")?.ok_or("it is not there")?;
            let grown = now > before;
            before = now;
            Ok(grown)
        })
        .await?;
    }
    assert!(guard.is_valid());
    Ok(())
}
