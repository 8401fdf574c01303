//! Defects of Redisson that concern a plain lock: each is shown to be absent.

use leasehold::{ErrorKind, Guard, Outcome, Owner};
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;

use crate::scene::{Case, Checked, LIMIT, MS, S, block_on, client, count, eventually, left, number};

pub(crate) const CASES: &[Case] = &[
    ("defects::an_acquire_sent_again_counts_once", || block_on(an_acquire_sent_again_counts_once())),
    ("defects::a_release_sent_again_counts_once", || block_on(a_release_sent_again_counts_once())),
    ("defects::the_lease_of_another_attempt_is_not_remembered", || {
        block_on(the_lease_of_another_attempt_is_not_remembered())
    }),
    ("defects::one_lock_that_is_gone_is_told_and_hurts_no_other", || {
        block_on(one_lock_that_is_gone_is_told_and_hurts_no_other())
    }),
    ("defects::a_lost_message_costs_a_second", || block_on(a_lost_message_costs_a_second())),
    ("defects::a_late_release_is_told", || block_on(a_late_release_is_told())),
];

/// Number 5: the answer to an acquire is lost after it was carried out, and it is sent again: it must not count as a re-entry.
async fn an_acquire_sent_again_counts_once() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = leasehold::Client::connect(&format!("redis://{}", proxy.address())).await?;
    for round in 0..10 {
        let cuts = proxy.cut_in_a_reply();
        proxy.cut_after(0);
        let guard = client.lock("a")?.owned_by(&Owner::explicit("me")?).acquire().await?;
        assert!(proxy.cut_in_a_reply() > cuts, "no answer was lost");
        assert_eq!(count(&server, "a", "me")?, 1, "round {round}");
        guard.release().await?;
        assert_eq!(number(&server, &["EXISTS", "a"])?, 0, "round {round}: a hold of nobody is left");
    }
    Ok(())
}

/// The same for a release, for which Redisson has a latch.
async fn a_release_sent_again_counts_once() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let cut = leasehold::Client::connect(&format!("redis://{}", proxy.address())).await?;
    let other = client(&server).await?;
    let owner = Owner::explicit("me")?;
    let stays = other.lock("a")?.owned_by(&owner).acquire().await?;
    for round in 0..10 {
        let guard = cut.lock("a")?.owned_by(&owner).acquire().await?;
        assert_eq!(count(&server, "a", "me")?, 2);
        let cuts = proxy.cut_in_a_reply();
        proxy.cut_after(0);
        let unknown = guard.release().await.expect_err("its answer was lost");
        assert_eq!(unknown.outcome(), Outcome::Unknown, "{unknown}");
        assert!(proxy.cut_in_a_reply() > cuts, "no answer was lost");
        // In the background it is sent until it is answered.
        eventually("it is answered", || Ok(cut.in_use() == 0)).await?;
        assert_eq!(count(&server, "a", "me")?, 1, "round {round}: another's hold was given back");
        assert!(stays.is_valid());
    }
    Ok(())
}

/// Number 10: a short lease of an attempt that failed, or of a lock that ended by itself, is used for a later lock.
async fn the_lease_of_another_attempt_is_not_remembered() -> Checked {
    let server = Redis::start()?;
    let (one, other) = (client(&server).await?, client(&server).await?);
    let lock = one.lock("a")?;
    let held = other.lock("a")?.acquire().await?;
    assert!(lock.clone().lease(200 * MS).try_acquire().await?.is_busy());
    held.release().await?;
    let ends = lock.clone().lease(200 * MS).acquire().await?;
    tokio::time::timeout(LIMIT, ends.lost()).await?;
    let kept = lock.acquire().await?;
    assert!(left(&server, "a")?.is_some_and(|left| left > 15 * S), "the short lease was used again");
    kept.release().await?;
    Ok(())
}

/// Number 14: each renewal of a batch succeeds or fails alone. Redisson skips the rest, silently.
async fn one_lock_that_is_gone_is_told_and_hurts_no_other() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let mut guards = Vec::new();
    for name in 0..300 {
        guards.push(client.lock(format!("name-{name}"))?.keep(6 * S).acquire().await?);
    }
    server.command(&["DEL", "name-0"])?;
    server.command(&["SET", "name-1", "no lock at all"])?;
    let (gone, rest) = guards.split_at(2);
    for guard in gone {
        tokio::time::timeout(LIMIT, guard.lost()).await?;
    }
    let others = futures_of(rest);
    assert!(tokio::time::timeout(8 * S, others).await.is_err(), "another was lost with them");
    assert!(rest.iter().all(Guard::is_valid));
    assert_eq!(number(&server, &["EXISTS", "name-0"])?, 0, "a renewal made it again");
    assert_eq!(server.command(&["GET", "name-1"])?.text()?, "no lock at all");
    Ok(())
}

/// Resolves when one of them is lost.
async fn futures_of(guards: &[Guard]) {
    let mut waiting = tokio::task::JoinSet::new();
    for guard in guards {
        let signal = guard.lost_signal();
        waiting.spawn(async move { signal.wait().await });
    }
    waiting.join_next().await;
}

/// A release whose message is lost costs a waiter about a second; Redisson's waits for the lease.
async fn a_lost_message_costs_a_second() -> Checked {
    let server = Redis::start()?;
    let (holder, waiter) = (client(&server).await?, client(&server).await?);
    let _held = holder.lock("a")?.lease(3_600 * S).acquire().await?;
    let waiting = tokio::spawn(async move { waiter.lock("a")?.acquire().await.map(|guard| (waiter, guard)) });
    crate::scene::until_waiting(&server, "a", 1).await?;
    // No message at all: as if it had been lost.
    server.command(&["DEL", "a"])?;
    let (_waiter, guard) = tokio::time::timeout(LIMIT, waiting).await???;
    assert!(guard.is_valid());
    Ok(())
}

/// Number 3, of its fair lock: releasing an expired lock is an error.
async fn a_late_release_is_told() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let guard = client.lock("a")?.lease(200 * MS).acquire().await?;
    tokio::time::timeout(LIMIT, guard.lost()).await?;
    assert_eq!(guard.release().await.expect_err("it had ended").kind(), ErrorKind::Lost);
    Ok(())
}
