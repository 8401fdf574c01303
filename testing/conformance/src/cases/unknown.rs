//! A call whose answer is lost is sent again under the same id, or released; it is never forgotten or counted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::port::Acquired;
use leasehold::{ErrorKind, Outcome, Owner};
use leasehold_core::backoff::Rng;
use tokio::task::JoinSet;

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::deployment::Hook;
use crate::hand::{Hand, is_busy};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async the_reply_is_lost;
    async the_request_is_lost;
    async a_shared_owners_reply_is_lost needs [Need::SharedReentrance];
    async asked_once_and_the_reply_is_lost;
    async the_reply_to_a_release_is_lost;
    async the_request_to_release_is_lost;
    async an_acquire_that_comes_too_late;
    async a_cancelled_acquire_that_arrives_later;
    async a_cancelled_acquire_that_arrives_twice needs [Need::Hook(Hook::Unattended)];
    async a_cancelled_acquire_that_arrives_too_late;
    async a_storm;
}

async fn the_reply_is_lost(world: World) -> Checked {
    let (chaos, mut hand) = (Chaos::new(), Hand::new(&world).await?);
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Acquire, 3, Fault::LoseReply);
    let guard = granted(&client.lock("a")?).await?;
    assert_eq!(chaos.count(Kind::Acquire), 4);
    let holders = hand.inspect("a").await?.holders;
    assert_eq!((holders.len(), holders[0].holds, holders[0].fence), (1, 1, Some(guard.fence())));
    let other = hand.asking("a");
    assert!(is_busy(&hand.acquire(&other).await?));
    guard.release().await?;
    world.quiet(&client).await?;
    world.empty().await
}

async fn the_request_is_lost(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Acquire, 2, Fault::LoseRequest(Outcome::NotApplied));
    chaos.next(Kind::Acquire, 2, Fault::LoseRequest(Outcome::Unknown));
    let guard = granted(&client.lock("a")?).await?;
    assert_eq!(chaos.count(Kind::Acquire), 5);
    guard.release().await?;
    world.quiet(&client).await?;
    world.empty().await
}

async fn a_shared_owners_reply_is_lost(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let first = granted(&other.lock("a")?.owned_by(&me)).await?;
    chaos.next(Kind::Acquire, 2, Fault::LoseReply);
    let second = granted(&client.lock("a")?.owned_by(&me)).await?;
    assert_eq!(other.inspect("a").await?.holders[0].holds, Some(2), "a re-sent acquire counted twice");
    chaos.next(Kind::Release, 1, Fault::LoseReply);
    assert_eq!(second.release().await.map_err(|error| error.outcome()), Err(Outcome::Unknown));
    world.quiet(&client).await?;
    assert_eq!(other.inspect("a").await?.holders[0].holds, Some(1), "a re-sent release counted twice");
    assert!(first.is_valid());
    first.release().await?;
    world.empty().await
}

async fn asked_once_and_the_reply_is_lost(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Acquire, 1, Fault::LoseReply);
    let error = client.lock("a")?.try_acquire().await.err().ok_or("it cannot know that it has it")?;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::Unknown));
    assert_eq!(error.lock(), Some("a"));
    let guard = granted(&world.client().await?.lock("a")?).await?;
    assert!(guard.is_valid());
    guard.release().await?;
    world.quiet(&client).await?;
    world.empty().await
}

async fn the_reply_to_a_release_is_lost(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let guard = granted(&client.lock("a")?).await?;
    chaos.next(Kind::Release, 2, Fault::LoseReply);
    assert_eq!(guard.release().await.map_err(|error| error.outcome()), Err(Outcome::Unknown));
    let next = granted(&other.lock("a")?).await?;
    world.quiet(&client).await?;
    assert!(chaos.count(Kind::Release) >= 3, "it was not asked again");
    assert!(next.is_valid());
    assert_eq!(other.inspect("a").await?.holders[0].fence, Some(next.fence()), "a repeated release took it away");
    Ok(())
}

async fn the_request_to_release_is_lost(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let guard = granted(&client.lock("a")?).await?;
    chaos.next(Kind::Release, 3, Fault::LoseRequest(Outcome::Unknown));
    drop(guard);
    let next = granted(&other.lock("a")?).await?;
    world.quiet(&client).await?;
    next.release().await?;
    world.empty().await
}

/// An acquire that sat in a dead socket until after its `not_after` is not executed.
async fn an_acquire_that_comes_too_late(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let mut late = hand.asking("a");
    late.not_after = hand.now().await? + Duration::from_millis(20);
    eventually(async || hand.now().await.is_ok_and(|now| now > late.not_after)).await?;
    assert!(matches!(hand.acquire(&late).await?, Acquired::TooLate));
    assert!(hand.inspect("a").await?.holders.is_empty());
    world.empty().await
}

/// The first sending is lost on its way, the caller goes, and only then the sending arrives and is granted.
async fn a_cancelled_acquire_that_arrives_later(world: World) -> Checked {
    arrives_later(&world, Fault::LoseRequest(Outcome::Unknown)).await
}

/// The same, while a second sending is on its way and arrives first.
async fn a_cancelled_acquire_that_arrives_twice(world: World) -> Checked {
    arrives_later(&world, Fault::Hang).await
}

async fn arrives_later(world: &World, then: Fault) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    loop {
        cancel_parked(&chaos, &client, then).await?;
        match chaos.deliver().await.as_slice() {
            [Ok(answered)] if matches!(answered.result, Acquired::Granted(_)) => break,
            // On a busy machine its `not_after` may be over; then it is tried once more.
            [Ok(answered)] if matches!(answered.result, Acquired::TooLate) => world.quiet(&client).await?,
            other => return Err(format!("it arrived, and: {other:?}").into()),
        }
    }
    let guard = granted(&other.lock("a")?).await?;
    world.quiet(&client).await?;
    assert!(guard.is_valid());
    guard.release().await?;
    world.empty().await
}

/// The same, but it arrives only after the client has stopped to look: then the store does not execute it.
async fn a_cancelled_acquire_that_arrives_too_late(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    cancel_parked(&chaos, &client, Fault::LoseRequest(Outcome::Unknown)).await?;
    world.quiet(&client).await?;
    assert!(matches!(chaos.deliver().await.as_slice(), [Ok(answered)] if matches!(answered.result, Acquired::TooLate)));
    world.empty().await
}

/// The first sending is parked, later ones meet another fault, and the caller goes.
async fn cancel_parked(chaos: &Chaos, client: &leasehold::Client, then: Fault) -> Checked {
    chaos.next(Kind::Acquire, 1, Fault::Park);
    chaos.every(Kind::Acquire, then);
    let (lock, before) = (client.lock("a")?, chaos.count(Kind::Acquire));
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    eventually(async || chaos.parked() == 1 && chaos.count(Kind::Acquire) >= before + 2).await?;
    waiting.abort();
    assert!(soon("the end of the task", waiting).await?.is_err_and(|error| error.is_cancelled()));
    chaos.calm();
    Ok(())
}

/// A third of all calls is lost or late; still one holder at a time, and nothing left over.
async fn a_storm(world: World) -> Checked {
    let chaos = Chaos::new();
    let clients = [world.client_over(&chaos).await?, world.client_over(&chaos).await?];
    chaos.storm(world.rng(), 33);
    let number = Arc::new(AtomicU64::new(0));
    let mut set = JoinSet::new();
    for (at, seed) in (0..8).zip(world.seed..) {
        let (client, number, mut rng) = (clients[at % 2].clone(), number.clone(), Rng::new(seed));
        set.spawn(async move {
            for _ in 0..10 {
                let guard = granted(&client.lock("a")?.budget(Duration::from_millis(rng.below(5)))).await?;
                let count = number.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                number.store(count + 1, Ordering::Relaxed);
                assert!(guard.is_valid());
                drop(guard);
            }
            Checked::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    assert_eq!(number.load(Ordering::Relaxed), 80);
    chaos.calm();
    world.quiet(&clients[0]).await?;
    world.quiet(&clients[1]).await?;
    world.empty().await
}
