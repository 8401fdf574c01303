//! For operators: inspecting locks and breaking them.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{Break, ErrorKind, Loss, Owner};

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async inspect_a_free_name;
    async inspect_a_held_name;
    async labels_and_machines;
    async waiters_are_counted needs [Need::Waiters];
    async list_by_prefix;
    async list_more_than_a_page;
    async break_now;
    async break_at_lease_end;
    async break_tells_the_waiters needs [Need::Hints];
    async break_a_free_name;
}

async fn inspect_a_free_name(world: World) -> Checked {
    let client = world.client().await?;
    let status = client.inspect("never").await?;
    assert!(!status.is_held());
    assert_eq!(status.waiters.unwrap_or_default(), 0);
    assert_eq!(status.name.as_str(), "never");
    world.empty().await
}

async fn inspect_a_held_name(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let lease = Duration::from_secs(600);
    let guard = granted(&client.lock("a")?.owned_by(&me).lease(lease)).await?;
    let status = other.inspect("a").await?;
    assert_eq!(status.holders.len(), 1);
    let holder = &status.holders[0];
    assert_eq!(holder.owner.as_deref(), Some("me"));
    assert_eq!(holder.fence, Some(guard.fence()));
    assert_eq!(holder.holds, Some(1));
    assert!(holder.left.is_some_and(|left| left <= lease && left > lease / 2), "{holder:?}");
    let since = holder.since.ok_or("since when is not known")?;
    let apart = SystemTime::now().duration_since(since).unwrap_or_else(|error| error.duration());
    assert!(apart < lease / 2, "since {apart:?}");
    Ok(guard.release().await?)
}

async fn labels_and_machines(world: World) -> Checked {
    let (client, other) = (world.builder().host("here").connect().await?, world.client().await?);
    let guard = granted(&client.lock("a")?.label("nightly, 🔒 {x}")).await?;
    let holder = &other.inspect("a").await?.holders[0];
    assert_eq!(holder.label.as_deref(), Some("nightly, 🔒 {x}"));
    assert_eq!(holder.host.as_deref(), Some("here"));
    assert_eq!(holder.pid, Some(std::process::id()));
    guard.release().await?;
    let plain = granted(&client.lock("a")?).await?;
    assert_eq!(other.inspect("a").await?.holders[0].label, None);
    Ok(plain.release().await?)
}

async fn waiters_are_counted(world: World) -> Checked {
    let holder = world.client().await?;
    let held = granted(&holder.lock("a")?).await?;
    let mut waiting = Vec::new();
    for at in 1..=3 {
        let client = world.client().await?;
        waiting.push(tokio::spawn(async move { client.lock("a")?.acquire().await.map(drop) }));
        eventually(async || holder.inspect("a").await.is_ok_and(|status| status.waiters == Some(at))).await?;
    }
    waiting.remove(1).abort();
    eventually(async || holder.inspect("a").await.is_ok_and(|status| status.waiters == Some(2))).await?;
    held.release().await?;
    for task in waiting {
        soon("a waiter", task).await???;
    }
    world.empty().await
}

async fn list_by_prefix(world: World) -> Checked {
    let client = world.client().await?;
    let mut guards = Vec::new();
    for name in ["jobs/b", "jobs/a", "job", "jobs%", "Jobs/c", "other"] {
        guards.push(granted(&client.lock(name)?).await?);
    }
    let names = async |prefix: &str| {
        let listed = client.list(prefix).await?;
        assert!(listed.iter().all(|status| status.holders.len() == 1));
        Ok::<_, leasehold::Error>(listed.into_iter().map(|status| status.name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(names("jobs/").await?, ["jobs/a", "jobs/b"]);
    assert_eq!(names("job").await?, ["job", "jobs%", "jobs/a", "jobs/b"]);
    assert_eq!(names("jobs%").await?, ["jobs%"]);
    assert_eq!(names("").await?.len(), 6);
    assert!(names("nothing").await?.is_empty());
    drop(guards);
    eventually(async || client.list("").await.is_ok_and(|held| held.is_empty())).await
}

async fn list_more_than_a_page(world: World) -> Checked {
    let client = world.client().await?;
    let mut guards = Vec::new();
    for at in 0..2_000 {
        guards.push(granted(&client.lock(format!("n{at:04}"))?).await?);
    }
    let names: Vec<String> = client.list("n").await?.into_iter().map(|status| status.name.to_string()).collect();
    assert_eq!(names, (0..2_000).map(|at| format!("n{at:04}")).collect::<Vec<_>>());
    Ok(())
}

async fn break_now(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
    let broken = other.break_lock("a", Break::Now).await?;
    assert_eq!(broken.holders[0].fence, Some(guard.fence()), "it answers who it was");
    let next = other.lock("a")?.try_acquire().await?.granted().ok_or("it was not broken")?;
    assert!(next.fence() > guard.fence());
    assert_eq!(soon("lost", guard.lost()).await?, Loss::Gone);
    assert_eq!(guard.release().await.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    assert!(next.is_valid());
    assert_eq!(client.inspect("a").await?.holders[0].fence, Some(next.fence()));
    Ok(next.release().await?)
}

/// The holder's next renewal reports the loss, and the lock is not granted again before its lease has run out.
async fn break_at_lease_end(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, other) = (world.client_over(&chaos).await?, world.client().await?);
    let guard = granted(&client.lock("a")?.keep(world.told())).await?;
    let signal = guard.lost_signal();
    assert!(!other.inspect("a").await?.holders[0].is_broken());
    other.break_lock("a", Break::AtLeaseEnd).await?;
    assert!(other.inspect("a").await?.holders[0].is_broken(), "it is shown as any other");
    let (before, began) = (chaos.count(Kind::Renew), Instant::now());
    assert!(other.lock("a")?.try_acquire().await?.is_busy(), "it was broken at once");
    let next = granted(&other.lock("a")?).await?;
    assert!(signal.is_lost(), "another was granted before the holder was told");
    assert_eq!(soon("lost", signal.wait()).await?, Some(Loss::Broken));
    assert_eq!(chaos.count(Kind::Renew), before + 1);
    assert!(began.elapsed() >= world.short(), "the next came after {:?}", began.elapsed());
    assert!(next.fence() > guard.fence());
    Ok(())
}

async fn break_tells_the_waiters(world: World) -> Checked {
    let chaos = Chaos::new();
    let (client, waiter) = (world.client().await?, world.client_over(&chaos).await?);
    let guard = granted(&client.lock("a")?).await?;
    let waiting = tokio::spawn(async move { waiter.lock("a")?.acquire().await.map(|guard| guard.fence()) });
    eventually(async || chaos.count(Kind::Acquire) >= 2).await?;
    client.break_lock("a", Break::Now).await?;
    assert!(soon("the waiter", waiting).await??? > guard.fence());
    Ok(())
}

async fn break_a_free_name(world: World) -> Checked {
    let client = world.client().await?;
    for how in [Break::Now, Break::AtLeaseEnd] {
        assert!(!client.break_lock("a", how).await?.is_held());
        granted(&client.lock("a")?).await?.release().await?;
    }
    world.empty().await
}
