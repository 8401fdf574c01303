//! Bad arguments: refused with their own reason before anything is sent.

use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, GroupLock, Outcome, Owner, WaitMode};

use crate::case::{Checked, Failure};
use crate::chaos::Chaos;
use crate::world::{World, granted};

crate::cases! {
    async names;
    async leases;
    async other_options;
    async owners;
    async waits;
    async names_to_operate_on;
    async urls;
    blocking the_blocking_client_inside_a_runtime;
}

const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The error is of its kind, says why, and took no effect.
fn is_bad(error: Option<Error>, why: &str) -> Checked {
    let error = error.ok_or_else(|| format!("accepted, though: {why}"))?;
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(!error.is_retryable());
    assert!(error.to_string().contains(why), "{error} does not say {why:?}");
    Ok(())
}

/// Every way to take the lock refuses it, and the store hears nothing.
async fn refused(client: &Client, chaos: &Chaos, lock: impl Into<GroupLock>, why: &str) -> Checked {
    let (lock, before) = (lock.into(), chaos.total());
    is_bad(lock.acquire().await.err(), why)?;
    is_bad(lock.try_acquire().await.err(), why)?;
    is_bad(lock.acquire_within(Duration::from_secs(1)).await.err(), why)?;
    assert_eq!(chaos.total(), before, "something was sent");
    assert_eq!(client.in_use(), 0);
    Ok(())
}

async fn connected(world: &World) -> Result<(Client, Chaos), Failure> {
    let chaos = Chaos::new();
    Ok((world.client_over(&chaos).await?, chaos))
}

async fn names(world: World) -> Checked {
    let (client, chaos) = connected(&world).await?;
    let (before, long) = (chaos.total(), "x".repeat(513));
    for (name, why) in [("", "empty"), (&*long, "513"), ("a\nb", "control"), ("\0", "control"), ("a\u{7f}", "control")]
    {
        is_bad(client.lock(name).err(), why)?;
        is_bad(client.lock_all(["good", name]).err(), why)?;
    }
    is_bad(client.lock_all([""; 0]).err(), "no name")?;
    assert_eq!(chaos.total(), before, "something was sent");
    Ok(())
}

async fn leases(world: World) -> Checked {
    let (client, chaos) = connected(&world).await?;
    let capability = world.capability;
    let (short, long) =
        (capability.lease_min - Duration::from_millis(1), capability.lease_max + Duration::from_millis(1));
    for wrong in [Duration::ZERO, short, long, Duration::MAX] {
        refused(&client, &chaos, client.lock("a")?.lease(wrong), "lease").await?;
        refused(&client, &chaos, client.lock("a")?.keep(wrong), "keep").await?;
    }
    let guard = granted(&client.lock("a")?.lease(capability.lease_max)).await?;
    let before = chaos.total();
    for wrong in [Duration::ZERO, short, long] {
        is_bad(guard.extend(wrong).await.err(), "lease")?;
    }
    assert_eq!(chaos.total(), before, "something was sent");
    assert!(guard.is_valid());
    guard.release().await?;
    drop(granted(&client.lock("a")?.lease(capability.lease_min)).await?);
    Ok(())
}

async fn other_options(world: World) -> Checked {
    let (client, chaos) = connected(&world).await?;
    let lock = || client.lock("a").expect("a name");
    let long = "x".repeat(257);
    for (lock, why) in [
        (lock().max_hold(Duration::ZERO), "max_hold"),
        (lock().max_hold(YEAR * 2), "max_hold"),
        (lock().lease(world.short()).max_hold(world.short()), "max_hold"),
        (lock().at_least(YEAR * 2), "at_least"),
        (lock().budget(Duration::from_secs(11)), "budget"),
        (lock().label("a\tb"), "label"),
        (lock().label(&long), "label"),
        (lock().label("\n").wait_mode(WaitMode::Spinning), "label"),
    ] {
        refused(&client, &chaos, lock, why).await?;
    }
    Ok(())
}

async fn owners(_world: World) -> Checked {
    let long = "x".repeat(257);
    for (owner, why) in [("", "empty"), ("a\u{1b}", "control"), (&*long, "256")] {
        is_bad(Owner::explicit(owner).err(), why)?;
    }
    Ok(())
}

async fn waits(world: World) -> Checked {
    let (client, chaos) = connected(&world).await?;
    let before = chaos.total();
    for limit in [YEAR * 2, Duration::MAX] {
        is_bad(client.lock("a")?.acquire_within(limit).await.err(), "year")?;
    }
    assert_eq!(chaos.total(), before, "something was sent");
    Ok(())
}

async fn names_to_operate_on(world: World) -> Checked {
    let (client, chaos) = connected(&world).await?;
    let before = chaos.total();
    is_bad(client.inspect("").await.err(), "empty")?;
    is_bad(client.inspect("a\rb").await.err(), "control")?;
    is_bad(client.break_lock("", leasehold::Break::Now).await.err(), "empty")?;
    assert_eq!(chaos.total(), before, "something was sent");
    Ok(())
}

async fn urls(world: World) -> Checked {
    is_bad(Client::connect("nowhere://host").await.err(), "memory:")?;
    is_bad(Client::connect("memory://host/x").await.err(), "memory:NAME")?;
    is_bad(Client::connect("").await.err(), "scheme")?;
    is_bad(Client::connect("user:secret@host").await.err(), "known")?;
    let url = world.url();
    let sep = if url.contains('?') { '&' } else { '?' };
    is_bad(Client::connect(&format!("{url}{sep}no-such-option=1")).await.err(), "no-such-option")?;
    is_bad(Client::connect(&format!("{url}{sep}keep=soon")).await.err(), "keep")?;
    is_bad(Client::connect(&format!("{url}{sep}keep=0s")).await.err(), "keep")?;
    let error = Client::connect("secret@host").await.err().ok_or("there is no such store")?;
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?} shows a password");
    Ok(())
}

fn the_blocking_client_inside_a_runtime(world: &World) -> Checked {
    let client = leasehold::blocking::Client::connect(&world.url())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        is_bad(client.lock("a")?.acquire().err(), "async")?;
        is_bad(client.inspect("a").err(), "async")
    })?;
    // Where tokio lets a thread block, it works.
    let other = client.clone();
    runtime.block_on(async { tokio::task::spawn_blocking(move || other.lock("a")?.acquire()?.release()).await })??;
    let guard = client.lock("a")?.acquire()?;
    Ok(guard.release()?)
}
