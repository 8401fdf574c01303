//! An owner that holds a lock takes it again; it is free after as many releases.

use std::time::Duration;

use leasehold::{Owner, blocking};

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async of_a_guards_owner;
    async costs_no_call;
    async of_an_explicit_owner_here;
    async of_an_explicit_owner_in_two_clients needs [Need::SharedReentrance];
    async of_an_explicit_owner_takes_the_longer_lease needs [Need::SharedReentrance];
    async never_by_accident;
    async that_needs_longer_asks_the_store;
    async ends_with_the_lease;
    async leaves_no_lease_beyond_the_guards_that_are_left;
    blocking of_a_thread;
}

async fn of_a_guards_owner(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let outer = granted(&client.lock("a")?).await?;
    let again = client.lock("a")?.owned_by(outer.owner());
    let guards = [granted(&again).await?, granted(&again).await?];
    let third = again.try_acquire().await?.granted().ok_or("it is the holder")?;
    assert_eq!(outer.holds(), 4);
    for guard in guards.into_iter().chain([third]) {
        assert_eq!(guard.fence(), outer.fence());
        guard.release().await?;
        assert!(other.lock("a")?.try_acquire().await?.is_busy(), "free before the last release");
    }
    assert_eq!(outer.holds(), 1);
    let fence = outer.fence();
    outer.release().await?;
    assert!(granted(&other.lock("a")?).await?.fence() > fence);
    Ok(())
}

async fn costs_no_call(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let outer = granted(&client.lock("a")?).await?;
    let before = chaos.total();
    for _ in 0..100 {
        drop(granted(&client.lock("a")?.owned_by(outer.owner())).await?);
        granted(&client.lock("a")?.owned_by(outer.owner()).lease(Duration::from_secs(5))).await?.release().await?;
    }
    assert_eq!(chaos.total(), before, "a local re-entry asked the store");
    outer.release().await?;
    assert_eq!(chaos.count(Kind::Release), 1);
    Ok(())
}

async fn of_an_explicit_owner_here(world: World) -> Checked {
    let client = world.client().await?;
    let (me, you) = (Owner::explicit("me")?, Owner::explicit("you")?);
    let outer = granted(&client.lock("a")?.owned_by(&me)).await?;
    let inner = granted(&client.lock("a")?.owned_by(&me)).await?;
    assert_eq!((outer.fence(), outer.holds()), (inner.fence(), 2));
    assert!(client.lock("a")?.owned_by(&you).try_acquire().await?.is_busy());
    assert!(client.lock("a")?.try_acquire().await?.is_busy());
    outer.release().await?;
    assert!(client.lock("a")?.owned_by(&you).try_acquire().await?.is_busy());
    inner.release().await?;
    assert!(!client.lock("a")?.owned_by(&you).try_acquire().await?.is_busy());
    world.quiet(&client).await
}

async fn of_an_explicit_owner_in_two_clients(world: World) -> Checked {
    let (one, two, other) = (world.client().await?, world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let first = granted(&one.lock("a")?.owned_by(&me)).await?;
    let second = granted(&two.lock("a")?.owned_by(&me)).await?;
    let third = granted(&two.lock("a")?.owned_by(&me)).await?;
    assert_eq!((first.fence(), first.fence()), (second.fence(), third.fence()));
    for guard in [first, third, second] {
        assert!(guard.is_valid());
        assert!(other.lock("a")?.try_acquire().await?.is_busy(), "free before the last release");
        guard.release().await?;
    }
    assert!(!other.lock("a")?.try_acquire().await?.is_busy());
    world.quiet(&one).await?;
    world.quiet(&two).await
}

/// The shorter lease of a second process does not cut the first one's short.
async fn of_an_explicit_owner_takes_the_longer_lease(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let long = granted(&one.lock("a")?.owned_by(&me).lease(Duration::from_secs(600))).await?;
    let short = granted(&two.lock("a")?.owned_by(&me).lease(world.short())).await?;
    assert!(short.time_left().is_none_or(|left| left <= world.short()), "a guard goes by what was asked");
    soon("the shorter end", short.lost()).await?;
    assert!(long.is_valid());
    drop(short);
    world.quiet(&two).await?;
    let holders = one.inspect("a").await?.holders;
    assert!(holders[0].left.is_some_and(|left| left > Duration::from_secs(300)), "{holders:?}");
    Ok(long.release().await?)
}

/// A generated owner re-enters in its own client only, and a fresh one nowhere.
async fn never_by_accident(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let guard = granted(&one.lock("a")?).await?;
    assert!(one.lock("a")?.try_acquire().await?.is_busy());
    assert!(two.lock("a")?.owned_by(guard.owner()).try_acquire().await?.is_busy());
    let twin = Owner::explicit(guard.owner().to_string())?;
    assert!(one.lock("a")?.owned_by(&twin).try_acquire().await?.is_busy());
    assert!(two.lock("a")?.owned_by(&twin).try_acquire().await?.is_busy());
    Ok(())
}

async fn that_needs_longer_asks_the_store(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let outer = granted(&client.lock("a")?.lease(world.kept())).await?;
    let inner = granted(&client.lock("a")?.owned_by(outer.owner()).lease(Duration::from_secs(600))).await?;
    assert_eq!(chaos.count(Kind::Renew), 1);
    assert!(inner.time_left().is_some_and(|left| left > Duration::from_secs(300)));
    soon("the outer one's end", outer.lost()).await?;
    assert!(inner.is_valid(), "the inner one ended with the outer one");
    assert!(world.client().await?.lock("a")?.try_acquire().await?.is_busy());
    inner.release().await?;
    drop(outer);
    world.quiet(&client).await
}

/// An owner whose lease ended does not re-enter it, but acquires a new one.
async fn ends_with_the_lease(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let guard = granted(&client.lock("a")?.lease(world.short())).await?;
    soon("lost", guard.lost()).await?;
    let taken = granted(&other.lock("a")?).await?;
    let again = client.lock("a")?.owned_by(guard.owner());
    assert!(again.try_acquire().await?.is_busy(), "it re-entered a lease that was over");
    let fence = taken.fence();
    taken.release().await?;
    assert!(granted(&again).await?.fence() > fence);
    eventually(async || client.in_use() <= 1).await
}

/// A lease that was extended for one guard is released with the last guard, even if the extension has time left.
async fn leaves_no_lease_beyond_the_guards_that_are_left(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let long = Duration::from_secs(600);
    let owners = [None, Some(Owner::explicit("me")?)];
    for owner in &owners {
        let first = owner.iter().fold(client.lock("a")?, |lock, owner| lock.owned_by(owner));
        let outer = granted(&first.clone().lease(world.kept())).await?;
        granted(&client.lock("a")?.owned_by(outer.owner()).keep(long)).await?.release().await?;
        soon("the outer one's end", outer.lost()).await?;
        soon("another's turn", other.lock("a")?.acquire()).await??.release().await?;
        drop(outer);
        // The other way round: the one that is left came later.
        let outer = granted(&first.keep(long)).await?;
        let inner = granted(&client.lock("a")?.owned_by(outer.owner()).lease(world.kept())).await?;
        outer.release().await?;
        soon("the inner one's end", inner.lost()).await?;
        soon("another's turn", other.lock("a")?.acquire()).await??.release().await?;
    }
    world.quiet(&client).await
}

fn of_a_thread(world: &World) -> Checked {
    let client = blocking::Client::connect(&world.url())?;
    let outer = client.lock("a")?.acquire()?;
    let inner = client.lock("a")?.acquire()?;
    assert_eq!((outer.fence(), outer.holds()), (inner.fence(), 2));
    drop(outer);
    assert!(inner.is_valid());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| client.lock("a")?.try_acquire().map(|attempt| attempt.granted().is_some()));
        assert!(!other.join().map_err(|_| "the thread panicked")??, "another thread re-entered");
        Checked::Ok(())
    })?;
    Ok(inner.release()?)
}
