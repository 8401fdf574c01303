//! A fixed lease ends when it ends: its holder hears of it first, then another may come.

use std::time::Instant;

use leasehold::port::Renewed;
use leasehold::{ErrorKind, Loss};

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::hand::{Hand, is_busy};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async a_fixed_lease_ends;
    async lost_comes_before_the_next_owner needs [Need::LostBefore];
    async counted_from_before_the_sending;
    async counted_from_the_sending_that_was_granted;
    async a_renewal_revives_nothing;
    async a_late_guard_harms_nobody;
    async the_store_frees_a_dead_holders_lock;
    async a_lease_is_not_shorter_than_asked;
    async leaves_nothing_behind;
}

async fn a_fixed_lease_ends(world: World) -> Checked {
    let client = world.client().await?;
    let began = Instant::now();
    let guard = granted(&client.lock("a")?.lease(world.short())).await?;
    assert!(guard.time_left().is_none_or(|left| left <= world.short()));
    let loss = soon("lost", guard.lost()).await?;
    let took = began.elapsed();
    assert_eq!(loss, Loss::TimeEnded);
    assert!(took >= world.short() / 2, "lost after {took:?} of {:?}", world.short());
    assert!(!guard.is_valid());
    assert_eq!(guard.time_left(), None);
    assert_eq!(guard.holds(), 0);
    assert_eq!(guard.release().await.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    world.quiet(&client).await
}

/// Strict on safety: at the moment of the next grant the signal has been given.
async fn lost_comes_before_the_next_owner(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let first = granted(&one.lock("a")?.lease(world.told())).await?;
    let signal = first.lost_signal();
    let second = granted(&two.lock("a")?).await?;
    assert!(!first.is_valid(), "two are valid");
    assert!(signal.is_lost(), "another was granted before the first was told");
    assert!(second.is_valid());
    Ok(second.release().await?)
}

/// The answer took its time: that time is gone from the lease, of a grant and of an extension.
async fn counted_from_before_the_sending(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let (late, lease) = (world.short(), world.told());
    chaos.next(Kind::Acquire, 1, Fault::DelayReply(late));
    let guard = granted(&client.lock("a")?.lease(lease)).await?;
    assert!(guard.time_left().is_none_or(|left| left <= lease - late), "{:?} of {lease:?}", guard.time_left());
    chaos.next(Kind::Renew, 1, Fault::DelayReply(late));
    guard.extend(lease).await?;
    assert!(guard.time_left().is_none_or(|left| left <= lease - late), "{:?} of {lease:?}", guard.time_left());
    guard.release().await?;
    chaos.next(Kind::Acquire, 1, Fault::DelayReply(late * 3));
    let kept = granted(&client.lock("a")?.keep(lease)).await?;
    assert!(kept.time_left().is_none_or(|left| left <= lease - late * 3), "{:?} of {lease:?}", kept.time_left());
    Ok(kept.release().await?)
}

/// A grant that is found by sending the request again counts from the sending that made it.
async fn counted_from_the_sending_that_was_granted(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let lease = world.short() * 8;
    // So that the first sending is not held up by what a client does only once.
    drop(granted(&client.lock("before")?).await?);
    chaos.next(Kind::Acquire, 1, Fault::LoseReply);
    chaos.next(Kind::Acquire, 4, Fault::LoseRequest(leasehold::Outcome::Unknown));
    let began = Instant::now();
    let guard = granted(&client.lock("a")?.lease(lease)).await?;
    let took = began.elapsed();
    let left = guard.time_left().unwrap_or_default();
    assert!(left + took <= lease, "{left:?} of {lease:?} left after {took:?}");
    Ok(())
}

/// An expired lease is not revived, even if no other client came.
async fn a_renewal_revives_nothing(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let mut request = hand.asking("a");
    request.lease = world.short();
    let fence = hand.take(&request).await?.block.first;
    eventually(async || hand.inspect("a").await.is_ok_and(|found| found.holders.is_empty())).await?;
    let renewed = loop {
        match hand.renew(&request, fence, world.short() * 5).await {
            // A busy machine may be silent for longer than a call lasts.
            Err(error) if error.is_retryable() => {}
            renewed => break renewed?,
        }
    };
    assert_eq!(renewed, Renewed::Lost);
    assert!(hand.inspect("a").await?.holders.is_empty());
    let next = hand.asking("a");
    assert!(hand.take(&next).await?.block.first > fence);
    Ok(())
}

async fn a_late_guard_harms_nobody(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let late = granted(&one.lock("a")?.lease(world.short())).await?;
    let dropped = granted(&one.lock("b")?.lease(world.short())).await?;
    let (a, b) = (granted(&two.lock("a")?).await?, granted(&two.lock("b")?).await?);
    drop(dropped);
    assert_eq!(late.release().await.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    world.quiet(&one).await?;
    for guard in [a, b] {
        assert!(guard.is_valid());
        assert_eq!(two.inspect(guard.name().as_str()).await?.holders[0].fence, Some(guard.fence()));
        guard.release().await?;
    }
    Ok(())
}

/// Without a renewal or a release, the store itself lets others in.
async fn the_store_frees_a_dead_holders_lock(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let mut dead = hand.asking("a");
    dead.lease = world.short();
    hand.take(&dead).await?;
    let client = world.client().await?;
    let guard = granted(&client.lock("a")?).await?;
    assert!(guard.is_valid());
    Ok(())
}

/// The store may hold it longer than asked, never shorter.
async fn a_lease_is_not_shorter_than_asked(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let mut first = hand.asking("a");
    first.lease = world.short();
    // From before it was sent: however late an answer is read, the lease is not shorter than from here to when it was found free.
    let sent = Instant::now();
    hand.take(&first).await?;
    let next = hand.asking("a");
    while is_busy(&hand.acquire(&next).await?) {
        tokio::time::sleep(world.short() / 50).await;
    }
    assert!(sent.elapsed() >= world.short() * 98 / 100, "free after {:?}", sent.elapsed());
    Ok(())
}

/// Names that were used once and whose lease ran out are forgotten.
async fn leaves_nothing_behind(world: World) -> Checked {
    let client = world.client().await?;
    let mut guards = Vec::new();
    for at in 0..50 {
        guards.push(granted(&client.lock(format!("once-{at}"))?.lease(world.short())).await?);
    }
    for guard in &guards {
        soon("lost", guard.lost()).await?;
    }
    eventually(async || client.list("").await.is_ok_and(|held| held.is_empty())).await?;
    drop(guards);
    world.quiet(&client).await?;
    world.empty().await
}
