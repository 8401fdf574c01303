//! Several names together: all or none, and while one is waited for no other is held.

use std::time::Duration;

use leasehold::{Break, ErrorKind, Loss, Owner};
use tokio::task::JoinSet;

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, granted_all, soon};

crate::cases! {
    async all needs [Need::SeveralNames];
    async or_none needs [Need::SeveralNames];
    async waiting_holds_no_other needs [Need::SeveralNames];
    async duplicates_count_once needs [Need::SeveralNames];
    async an_owner_that_holds_one needs [Need::SeveralNames];
    async an_owner_that_holds_one_elsewhere needs [Need::SeveralNames, Need::SharedReentrance];
    async an_owner_that_holds_all_elsewhere needs [Need::SeveralNames, Need::SharedReentrance];
    async lost_with_any_of_them needs [Need::SeveralNames];
    async the_signal_ends_with_the_release needs [Need::SeveralNames];
    async crossing_groups_do_not_deadlock needs [Need::SeveralNames];
    async the_reply_is_lost needs [Need::SeveralNames];
    async cancelled_while_waiting needs [Need::SeveralNames];
    async kept_together needs [Need::SeveralNames];
}

async fn all(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let guard = granted_all(&client.lock_all(["c", "a", "b"])?).await?;
    let names: Vec<&str> = guard.fences().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        assert!(other.lock(name)?.try_acquire().await?.is_busy());
    }
    assert!(other.lock_all(["x", "b"])?.try_acquire().await?.is_busy());
    guard.release().await?;
    drop(granted_all(&other.lock_all(["a", "b", "c", "x"])?).await?);
    world.quiet(&client).await?;
    world.quiet(&other).await?;
    world.empty().await
}

async fn or_none(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let held = granted(&other.lock("b")?).await?;
    for holder in [&client, &other] {
        assert!(holder.lock_all(["a", "b", "c"])?.try_acquire().await?.is_busy());
        let within =
            soon("waiting", holder.lock_all(["a", "b", "c"])?.acquire_within(Duration::from_millis(30))).await??;
        assert!(within.is_busy());
    }
    world.quiet(&client).await?;
    for name in ["a", "c"] {
        assert!(!client.lock(name)?.try_acquire().await?.is_busy(), "{name} was taken without the others");
    }
    held.release().await?;
    world.quiet(&other).await?;
    world.empty().await
}

/// Neither a hold nor a waitlist entry for the others, in the store and in the client.
async fn waiting_holds_no_other(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let held = granted(&other.lock("b")?).await?;
    let lock = client.lock_all(["a", "b", "c"])?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually(async || chaos.count(Kind::Acquire) >= 2).await?;
    for name in ["a", "c"] {
        for anyone in [&client, &other] {
            let guard = granted(&anyone.lock(name)?).await?;
            guard.release().await?;
        }
    }
    assert!(!waiting.is_finished());
    held.release().await?;
    let guard = soon("the group", waiting).await???;
    assert!(guard.is_valid());
    guard.release().await?;
    world.quiet(&client).await?;
    world.empty().await
}

async fn duplicates_count_once(world: World) -> Checked {
    let client = world.client().await?;
    let guard = granted_all(&client.lock_all(["a", "b", "a", "a"])?).await?;
    assert_eq!(guard.fences().count(), 2);
    assert!(guard.guards().iter().all(|guard| guard.holds() == 1));
    guard.release().await?;
    let single = granted_all(&client.lock_all(["a", "a"])?).await?;
    assert_eq!(single.fences().count(), 1);
    single.release().await?;
    world.quiet(&client).await?;
    world.empty().await
}

async fn an_owner_that_holds_one(world: World) -> Checked {
    let client = world.client().await?;
    let held = granted(&client.lock("b")?).await?;
    let lock = client.lock_all(["a", "b"])?.owned_by(held.owner());
    for error in [soon("refusal", lock.acquire()).await?.err(), lock.try_acquire().await.err()] {
        let error = error.ok_or("it cannot have it twice")?;
        assert_eq!((error.kind(), error.lock()), (ErrorKind::AlreadyHeld, Some("b")), "{error}");
    }
    assert!(held.is_valid());
    assert!(!client.lock("a")?.try_acquire().await?.is_busy());
    held.release().await?;
    world.quiet(&client).await
}

async fn an_owner_that_holds_one_elsewhere(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let held = granted(&other.lock("b")?.owned_by(&me)).await?;
    let refused = soon("refusal", client.lock_all(["a", "b"])?.owned_by(&me).acquire()).await?;
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::AlreadyHeld));
    assert!(held.is_valid());
    assert_eq!(other.inspect("b").await?.holders[0].holds, Some(1));
    world.quiet(&client).await?;
    held.release().await?;
    world.empty().await
}

/// They are re-entered with their fences, all or some of them, and stay held until the last hold is released.
async fn an_owner_that_holds_all_elsewhere(world: World) -> Checked {
    let (client, other, stranger) = (world.client().await?, world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let held = granted_all(&other.lock_all(["a", "b", "c"])?.owned_by(&me)).await?;
    let fences: Vec<_> = held.fences().map(|(name, fence)| (name.clone(), fence)).collect();
    for names in [&["a", "b", "c"][..], &["c", "a"]] {
        let inner = granted_all(&client.lock_all(names)?.owned_by(&me)).await?;
        assert_eq!(inner.fences().count(), names.len());
        for (name, fence) in inner.fences() {
            assert!(fences.contains(&(name.clone(), fence)), "{name} has another fence: {fence}");
        }
        assert_eq!(other.inspect("a").await?.holders[0].holds, Some(2));
        inner.release().await?;
        assert_eq!(other.inspect("a").await?.holders[0].holds, Some(1));
    }
    let inner = granted_all(&client.lock_all(["a", "b"])?.owned_by(&me)).await?;
    held.release().await?;
    assert!(stranger.lock("a")?.try_acquire().await?.is_busy());
    assert!(!stranger.lock("c")?.try_acquire().await?.is_busy());
    inner.release().await?;
    for client in [&client, &other, &stranger] {
        world.quiet(client).await?;
    }
    world.empty().await
}

async fn lost_with_any_of_them(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let guard = granted_all(&client.lock_all(["a", "b", "c"])?.keep(world.kept())).await?;
    other.break_lock("b", Break::Now).await?;
    let lost = soon("lost", guard.lost()).await?;
    assert_eq!((lost.name.as_str(), lost.loss), ("b", Loss::Gone));
    assert!(!guard.is_valid());
    assert_eq!(guard.time_left(), None);
    assert_eq!(guard.release().await.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    world.quiet(&client).await?;
    world.empty().await
}

/// A watcher is notified once that nothing was lost, even though the names are released one after another.
async fn the_signal_ends_with_the_release(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    chaos.every(Kind::Release, Fault::Delay(Duration::from_millis(5)));
    let guard = granted_all(&client.lock_all(["a", "b", "c"])?).await?;
    let signal = guard.lost_signal();
    let watching = tokio::spawn(async move { signal.wait().await });
    tokio::task::yield_now().await;
    guard.release().await?;
    assert_eq!(soon("the signal", watching).await??, None);
    world.quiet(&client).await
}

/// Groups that overlap in every order, in two clients: all get their turn.
async fn crossing_groups_do_not_deadlock(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?];
    let groups: [&[&str]; 6] = [&["a", "b"], &["b", "a"], &["b", "c"], &["c", "a"], &["a", "b", "c"], &["b"]];
    let mut set = JoinSet::new();
    for at in 0..12 {
        let lock = clients[at % 2].lock_all(groups[at / 2])?;
        set.spawn(async move {
            for _ in 0..5 {
                let guard = granted_all(&lock).await?;
                tokio::task::yield_now().await;
                assert!(guard.is_valid());
                guard.release().await?;
            }
            Checked::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    for client in &clients {
        world.quiet(client).await?;
    }
    world.empty().await
}

async fn the_reply_is_lost(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    chaos.next(Kind::Acquire, 2, Fault::LoseReply);
    let guard = granted_all(&client.lock_all(["a", "b"])?).await?;
    assert!(guard.is_valid());
    guard.release().await?;
    world.quiet(&client).await?;
    world.empty().await
}

async fn cancelled_while_waiting(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let held = granted(&other.lock("b")?).await?;
    for wait in 0..10 {
        let lock = client.lock_all(["a", "b", "c"])?;
        let limit = Duration::from_millis(wait);
        let _ = tokio::time::timeout(limit, lock.acquire()).await;
        world.quiet(&client).await?;
    }
    held.release().await?;
    world.empty().await
}

async fn kept_together(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let guard = granted_all(&client.lock_all(["a", "b", "c"])?.keep(world.kept())).await?;
    eventually(async || {
        assert!(guard.is_valid());
        chaos.count(Kind::Renew) >= 4
    })
    .await?;
    Ok(guard.release().await?)
}
