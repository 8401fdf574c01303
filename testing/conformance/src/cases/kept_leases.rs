//! A kept lock stays for as long as its guard lives, and is lost in time when it cannot be renewed.

use std::time::Instant;

use leasehold::{ErrorKind, Loss};

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::hand::{Hand, is_busy};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async over_many_lease_times;
    async a_partial_release_stays_kept;
    async a_released_lock_is_not_renewed;
    async lost_while_a_renewal_hangs needs [Need::LostBefore];
    async rides_out_failed_renewals;
    async told_when_the_store_has_it_no_more;
    async not_longer_than_max_hold;
    blocking while_the_runtime_is_blocked;
}

async fn over_many_lease_times(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let mut hand = Hand::new(&world).await?;
    let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
    let other = hand.asking("a");
    eventually(async || {
        let busy = hand.acquire(&other).await.is_ok_and(|acquired| is_busy(&acquired));
        assert!(busy && guard.is_valid(), "it was lost after {} renewals", chaos.count(Kind::Renew));
        chaos.count(Kind::Renew) >= 8
    })
    .await?;
    assert!(!guard.lost_signal().is_lost());
    Ok(guard.release().await?)
}

async fn a_partial_release_stays_kept(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let outer = granted(&client.lock("a")?.keep(world.kept())).await?;
    let inner = granted(&client.lock("a")?.keep(world.kept()).owned_by(outer.owner())).await?;
    assert_eq!(outer.holds(), 2);
    inner.release().await?;
    assert_eq!(outer.holds(), 1);
    let before = chaos.count(Kind::Renew);
    eventually(async || {
        assert!(outer.is_valid(), "the keeper stopped at a partial release");
        chaos.count(Kind::Renew) >= before + 4
    })
    .await?;
    Ok(outer.release().await?)
}

async fn a_released_lock_is_not_renewed(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
    eventually(async || chaos.count(Kind::Renew) >= 2).await?;
    guard.release().await?;
    world.quiet(&client).await?;
    let (before, began) = (chaos.count(Kind::Renew), Instant::now());
    // For longer than it takes to the next renewal.
    let other = granted(&world.client().await?.lock("a")?.lease(world.kept())).await?;
    soon("the other's end", other.lost()).await?;
    assert!(began.elapsed() >= world.kept() / 2);
    assert_eq!(chaos.count(Kind::Renew), before, "the keeper outlived the release");
    Ok(())
}

/// Renewals hang for ever: the clock tells the holder of the loss before another owner is granted the lock.
async fn lost_while_a_renewal_hangs(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let guard = granted(&client.lock("a")?.keep(world.told())).await?;
    chaos.every(Kind::Renew, Fault::Hang);
    let signal = guard.lost_signal();
    let next = granted(&other.lock("a")?).await?;
    assert!(!guard.is_valid(), "two are valid");
    assert!(signal.is_lost(), "another was granted before the holder was told");
    assert_eq!(soon("lost", guard.lost()).await?, Loss::TimeEnded);
    chaos.calm();
    eventually(async || client.in_use() <= 1).await?;
    assert!(next.is_valid(), "a late renewal took the lock back");
    assert_eq!(guard.release().await.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    assert!(next.is_valid());
    next.release().await?;
    world.quiet(&client).await
}

async fn rides_out_failed_renewals(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let guard = granted(&client.lock("a")?.keep(world.kept() * 2)).await?;
    for fault in [Fault::LoseReply, Fault::LoseRequest(leasehold::Outcome::Unknown)] {
        chaos.next(Kind::Renew, 2, fault);
        let before = chaos.count(Kind::Renew);
        eventually(async || chaos.count(Kind::Renew) >= before + 4).await?;
        assert!(guard.is_valid());
    }
    Ok(guard.release().await?)
}

async fn told_when_the_store_has_it_no_more(world: World) -> Checked {
    let client = world.client().await?;
    let hand = Hand::new(&world).await?;
    let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
    hand.break_lock("a", leasehold::Break::Now).await?;
    assert_eq!(soon("lost", guard.lost()).await?, Loss::Gone);
    assert!(!guard.is_valid());
    assert!(hand.inspect("a").await?.holders.is_empty(), "a renewal made it again");
    Ok(())
}

async fn not_longer_than_max_hold(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let (keep, limit) = (world.kept(), world.kept() * 2);
    let began = Instant::now();
    let guard = granted(&client.lock("a")?.keep(keep).max_hold(limit)).await?;
    assert_eq!(soon("lost", guard.lost()).await?, Loss::TimeEnded);
    assert!(began.elapsed() >= limit - world.kept() / 2, "lost after {:?}", began.elapsed());
    assert!(!guard.is_valid());
    Ok(granted(&other.lock("a")?).await?.release().await?)
}

/// The keeper has a thread of its own.
fn while_the_runtime_is_blocked(world: &World) -> Checked {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, other) = (world.client().await?, world.client().await?);
        let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
        let waiting = tokio::spawn(async move { other.lock("a")?.acquire().await });
        tokio::task::yield_now().await;
        std::thread::sleep(world.kept() * 2);
        assert!(guard.is_valid(), "a blocked runtime starved the keeper");
        assert!(!guard.lost_signal().is_lost());
        guard.release().await?;
        assert!(soon("the waiter", waiting).await???.is_valid());
        Ok(())
    })
}
