//! Locks of several clients taken together: all or none, one guard, and nothing left over.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod hooked;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use hooked::{MS, Meets, hooked};
use leasehold::{Attempt, Break, Client, Error, ErrorKind, Loss, Outcome, Owner, lock_all};

type Checked = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Two stores of this process, of a test's own.
async fn two(test: &str) -> Result<(Client, Client), Error> {
    Ok((Client::connect(&format!("memory:{test}-a")).await?, Client::connect(&format!("memory:{test}-b")).await?))
}

/// Waits until it is so.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(90), "not so: {what}");
        tokio::time::sleep(MS).await;
    }
}

async fn quiet(clients: &[&Client]) {
    for client in clients {
        eventually("nothing is in use", async || client.in_use() == 0).await;
        eventually("nothing is held", async || client.list("").await.unwrap().is_empty()).await;
    }
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unreachable, "call", "the test says so").with_outcome(Outcome::Unknown)
}

#[tokio::test]
async fn all_or_none_and_fences_by_name() -> Checked {
    let (a, b) = two("all-or-none").await?;
    let both = lock_all([b.lock("z")?, a.lock("x")?, b.lock("y")?]);
    let guard = both.acquire().await?;
    assert!(guard.is_valid());
    let fences: Vec<_> = guard.guards().iter().map(|lock| format!("{} {}", lock.store_label(), lock.name())).collect();
    assert_eq!(fences, ["memory:all-or-none-b y", "memory:all-or-none-b z", "memory:all-or-none-a x"]);
    let status = a.inspect("x").await?;
    assert_eq!(guard.fence("x"), status.holders[0].fence);
    assert!(guard.get_on("memory:all-or-none-a", "x").is_some() && guard.get_on("memory:all-or-none-a", "y").is_none());
    let Attempt::Busy(holder) = both.try_acquire().await? else { panic!("granted twice") };
    assert_eq!(holder.name.as_str(), "x");
    guard.release().await?;

    let held = b.lock("y")?.acquire().await?;
    let Attempt::Busy(holder) = both.try_acquire().await? else { panic!("granted in part") };
    assert_eq!(holder.name.as_str(), "y");
    assert!(!a.inspect("x").await?.is_held() && !b.inspect("z").await?.is_held());
    held.release().await?;
    drop(both.try_acquire().await?.granted().unwrap());
    quiet(&[&a, &b]).await;
    Ok(())
}

#[tokio::test]
async fn whoever_waits_holds_nothing_and_is_in_one_line() -> Checked {
    let (a, b) = two("waits").await?;
    let (other_a, other_b) = two("waits").await?;
    for busy in ["a", "b"] {
        let blocker = if busy == "a" { &other_a } else { &other_b };
        let held = blocker.lock(busy)?.acquire().await?;
        let both = lock_all([a.lock("a")?, b.lock("b")?]);
        let waiting = tokio::spawn(async move { both.acquire().await });
        let (full, free, name) = if busy == "a" { (&other_a, &other_b, "b") } else { (&other_b, &other_a, "a") };
        eventually("it waits", async || full.inspect(busy).await.unwrap().waiters == Some(1)).await;
        let status = free.inspect(name).await?;
        assert!(!status.is_held() && status.waiters == Some(0), "{status:?}");
        let meanwhile = free.lock(name)?.try_acquire().await?.granted().expect("nobody is in the way");
        held.release().await?;
        // Now it waits for the other one, and for that alone.
        eventually("it waits there", async || free.inspect(name).await.unwrap().waiters == Some(1)).await;
        let status = full.inspect(busy).await?;
        assert!(!status.is_held() && status.waiters == Some(0), "{status:?}");
        meanwhile.release().await?;
        waiting.await??.release().await?;
        quiet(&[&a, &b, &other_a, &other_b]).await;
    }
    Ok(())
}

#[tokio::test]
async fn stores_are_told_apart_by_what_they_are_and_not_by_their_url() -> Checked {
    let (one, two) = (Client::connect("memory:same?keep=20s").await?, Client::connect("memory:same").await?);
    let error = lock_all([one.lock("a")?, two.lock("a")?]).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    let error =
        lock_all([one.lock("a")?, one.lock("a")?.lease(Duration::from_secs(1))]).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    assert_eq!(lock_all([] as [leasehold::Lock; 0]).acquire().await.unwrap_err().kind(), ErrorKind::BadArgument);
    let error = two.lock("").unwrap_err();
    assert_eq!((error.kind(), error.store()), (ErrorKind::BadArgument, Some("memory:same")), "{error}");
    lock_all([one.lock("a")?, two.lock("b")?]).acquire().await?.release().await?;
    let other = Client::connect("memory:another").await?;
    lock_all([one.lock("a")?, other.lock("a")?]).acquire().await?.release().await?;
    quiet(&[&one, &two, &other]).await;
    Ok(())
}

#[cfg(feature = "file")]
#[tokio::test]
async fn a_file_is_the_same_by_whichever_path() -> Checked {
    let folder = tempfile::tempdir()?;
    let (path, link) = (folder.path().join("locks.db"), folder.path().join("link.db"));
    let file = Client::connect(&format!("file:{}", path.display())).await?;
    std::os::unix::fs::symlink(&path, &link)?;
    let linked = Client::connect(&format!("file:{}", link.display())).await?;
    let folder_link = folder.path().join("elsewhere");
    std::os::unix::fs::symlink(folder.path(), &folder_link)?;
    let through = Client::connect(&format!("file:{}", folder_link.join("locks.db").display())).await?;
    let memory = Client::connect("memory:whichever").await?;
    for other in [&linked, &through] {
        let error = lock_all([file.lock("a")?, memory.lock("a")?, other.lock("a")?]).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    }
    let guard = lock_all([file.lock("a")?, memory.lock("a")?, linked.lock("b")?]).acquire().await?;
    assert_eq!(guard.fences().count(), 3);
    guard.release().await?;
    quiet(&[&file, &memory, &linked]).await;
    Ok(())
}

#[tokio::test]
async fn an_owner_that_holds_a_member_gets_an_error() -> Checked {
    let (a, b) = two("already").await?;
    let elsewhere = two("already").await?.1;
    let me = Owner::explicit("me")?;
    let both = lock_all([a.lock("a")?, b.lock("b")?]).owned_by(&me);
    for client in [&b, &elsewhere] {
        let held = client.lock("b")?.owned_by(&me).acquire().await?;
        for error in [both.acquire().await.unwrap_err(), both.try_acquire().await.unwrap_err()] {
            assert_eq!((error.kind(), error.lock()), (ErrorKind::AlreadyHeld, Some("b")), "{error}");
        }
        assert!(held.is_valid() && !a.inspect("a").await?.is_held());
        held.release().await?;
    }
    let guard = both.acquire().await?;
    assert_eq!(both.acquire().await.unwrap_err().kind(), ErrorKind::AlreadyHeld);
    guard.release().await?;
    // A generated owner is known in the client that made it.
    let held = a.lock("a")?.acquire().await?;
    let again = lock_all([a.lock("a")?.owned_by(held.owner()), b.lock("b")?]);
    assert_eq!(again.acquire().await.unwrap_err().kind(), ErrorKind::AlreadyHeld);
    held.release().await?;
    quiet(&[&a, &b, &elsewhere]).await;
    Ok(())
}

/// Two that are the same owner look at the same time, see nothing, and go: one of them has it, and nobody both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_comes_twice_at_the_same_time_enters_once() -> Checked {
    let clients = [two("twice-at-once").await?, two("twice-at-once").await?];
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for (a, b) in clients.clone() {
        let inside = inside.clone();
        tasks.push(tokio::spawn(async move {
            let both = lock_all([a.lock("a")?, b.lock("b")?]).owned_by(&Owner::explicit("me")?);
            for _ in 0..200 {
                match both.acquire().await {
                    Ok(guard) => {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().await?;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}"),
                }
            }
            Checked::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    for (a, b) in &clients {
        quiet(&[a, b]).await;
    }
    Ok(())
}

#[tokio::test]
async fn the_earliest_deadline_counts() -> Checked {
    let (a, b) = two("earliest").await?;
    let guard = lock_all([a.lock("a")?.lease(Duration::from_secs(60)), b.lock("b")?.lease(300 * MS)]).acquire().await?;
    assert!(guard.time_left().is_none_or(|left| left <= 300 * MS));
    let lost = guard.lost().await;
    assert_eq!((&*lost.store, lost.name.as_str(), lost.loss), ("memory:earliest-b", "b", Loss::TimeEnded));
    assert!(!guard.is_valid() && guard.lost_signal().is_lost());
    assert_eq!(guard.protect(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Lost, Some("b")));
    quiet(&[&a, &b]).await;
    Ok(())
}

#[tokio::test]
async fn lost_when_one_is_lost_and_the_others_are_given_back() -> Checked {
    let (a, b) = two("one-lost").await?;
    let guard = lock_all([a.lock("a")?, b.lock("b")?.keep(3_000 * MS)]).acquire().await?;
    b.break_lock("b", Break::Now).await?;
    let lost = tokio::time::timeout(Duration::from_secs(90), guard.lost()).await?;
    assert_eq!((lost.name.as_str(), lost.loss), ("b", Loss::Gone));
    assert!(a.inspect("a").await?.is_held());
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.failures().len()), (ErrorKind::Lost, 0));
    quiet(&[&a, &b]).await;
    Ok(())
}

#[tokio::test]
async fn every_failure_of_a_release_is_told_and_the_others_are_released() -> Checked {
    let fails = |what| if what == "release" { Meets::Error(unreachable()) } else { Meets::Nothing };
    let a = hooked("memory:failures-a", fails).connect().await?;
    let b = Client::connect("memory:failures-b").await?;
    let c = hooked("memory:failures-c", fails).connect().await?;
    let short = 3_000 * MS;
    let guard = lock_all([a.lock("a")?.lease(short), b.lock("b")?, c.lock("c")?.lease(short)]).acquire().await?;
    let error = guard.release().await.unwrap_err();
    let told: Vec<_> = error.failures().iter().map(|failure| (failure.kind(), failure.lock())).collect();
    assert_eq!(told, [(ErrorKind::Unreachable, Some("a")), (ErrorKind::Unreachable, Some("c"))]);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(!b.inspect("b").await?.is_held());
    let guard = lock_all([a.lock("d")?.lease(short), b.lock("b")?]).acquire().await?;
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.lock(), error.failures().len()), (ErrorKind::Unreachable, Some("d"), 0));
    assert!(!b.inspect("b").await?.is_held());
    // What could not be given back ends with its lease.
    quiet(&[&a, &b, &c]).await;
    Ok(())
}

#[tokio::test]
async fn names_of_one_client_are_taken_in_one_step() -> Checked {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let counted = move |what| {
        count.fetch_add(u32::from(what == "acquire"), Ordering::SeqCst);
        Meets::Nothing
    };
    let a = hooked("memory:one-step-a", counted).connect().await?;
    let b = Client::connect("memory:one-step-b").await?;
    let guard = lock_all([a.lock_all(["x", "z"])?, b.lock("y")?.into(), a.lock_all(["p", "q"])?]).acquire().await?;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(guard.guards().len(), 5);
    guard.release().await?;
    let guard = lock_all([a.lock("x")?, a.lock("z")?.label("another")]).acquire().await?;
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    guard.release().await?;
    quiet(&[&a, &b]).await;
    Ok(())
}

#[tokio::test]
async fn limits_on_waiting_are_kept() -> Checked {
    let (a, b) = two("limits").await?;
    let held = b.lock("b")?.acquire().await?;
    let both = lock_all([a.lock("a")?, b.lock("b")?]);
    let began = Instant::now();
    let Attempt::Busy(holder) = both.acquire_within(200 * MS).await? else { panic!("granted") };
    assert_eq!(holder.name.as_str(), "b");
    assert!(began.elapsed() >= 200 * MS, "{:?}", began.elapsed());
    assert!(both.acquire_within(Duration::ZERO).await?.is_busy());
    assert_eq!(both.acquire_within(Duration::MAX).await.unwrap_err().kind(), ErrorKind::BadArgument);
    drop(held);
    both.acquire_within(Duration::from_secs(90)).await?.granted().unwrap().release().await?;
    quiet(&[&a, &b]).await;
    Ok(())
}

/// The answer of one store is lost: nothing stays held, and whoever waits gets it all the same.
#[tokio::test]
async fn an_unknown_outcome_leaves_nothing_behind() -> Checked {
    let losing = Arc::new(AtomicU32::new(0));
    let left = losing.clone();
    let b = hooked("memory:unknown-b", move |what| {
        let lost = |left: u32| left.checked_sub(1);
        match what == "acquire" && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost).is_ok() {
            true => Meets::Lost(unreachable()),
            false => Meets::Nothing,
        }
    });
    let (a, b) = (Client::connect("memory:unknown-a").await?, b.connect().await?);
    let both = lock_all([a.lock("a")?, b.lock("b")?, b.lock("c")?]);
    losing.store(1, Ordering::SeqCst);
    let error = both.try_acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::Unknown));
    assert!(!a.inspect("a").await?.is_held());
    quiet(&[&a, &b]).await;
    losing.store(2, Ordering::SeqCst);
    let guard = both.acquire().await?;
    assert!(guard.is_valid());
    guard.release().await?;
    quiet(&[&a, &b]).await;
    Ok(())
}

/// A store is gone while it is tried: the others are not held meanwhile, and the error comes in time.
#[tokio::test]
async fn a_store_that_is_gone_holds_up_no_other() -> Checked {
    let a = Client::connect("memory:gone-a").await?;
    let gone = |what| if what == "acquire" { Meets::Error(unreachable()) } else { Meets::Nothing };
    let b = hooked("memory:gone-b", gone).connect().await?;
    let both = lock_all([a.lock("a")?, b.lock("b")?]);
    let waiting = tokio::spawn(async move { both.acquire_within(Duration::from_secs(1)).await });
    tokio::time::sleep(200 * MS).await;
    assert!(!a.inspect("a").await?.is_held());
    let error = waiting.await?.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    quiet(&[&a]).await;
    Ok(())
}

/// A fixed lease that has little left, because another took long, is not handed out: all are taken again, the slow one first.
#[tokio::test]
async fn what_is_handed_out_has_time_left() -> Checked {
    let slow = Arc::new(AtomicU32::new(0));
    let count = slow.clone();
    let b = hooked("memory:left-b", move |what| match what {
        "acquire" => {
            count.fetch_add(1, Ordering::SeqCst);
            Meets::Slow(1_000 * MS)
        }
        _ => Meets::Nothing,
    });
    let (a, b) = (Client::connect("memory:left-a").await?, b.connect().await?);
    let guard = lock_all([a.lock("a")?.lease(1_600 * MS), b.lock("b")?]).acquire().await?;
    assert!(guard.time_left().unwrap() >= 800 * MS, "{:?}", guard.time_left());
    assert!(slow.load(Ordering::SeqCst) >= 2, "it was handed out as it was");
    guard.release().await?;
    quiet(&[&a, &b]).await;
    Ok(())
}

#[tokio::test]
async fn a_guard_that_is_dropped_gives_all_back() -> Checked {
    let (a, b) = two("dropped").await?;
    let guard = lock_all([a.lock("a")?, b.lock("b")?]).acquire().await?;
    let signal = guard.lost_signal();
    drop(guard);
    assert_eq!(signal.wait().await, None);
    quiet(&[&a, &b]).await;
    Ok(())
}

/// Ten thousand acquires that are dropped after any number of polls, while others come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_at_any_moment_nothing_is_left() -> Checked {
    let polls = Arc::new(AtomicU32::new(1));
    let slowly = move |_: &'static str| {
        let number = polls.fetch_add(1, Ordering::Relaxed).wrapping_mul(2_654_435_761) >> 16;
        Meets::Polls(number % 4)
    };
    let (a, b) = (hooked("memory:cancel-a", slowly.clone()), hooked("memory:cancel-b", slowly));
    let (a, b) = (a.connect().await?, b.connect().await?);
    let wants = [
        lock_all([a.lock("a")?, b.lock("b")?]),
        lock_all([b.lock("b")?, a.lock("c")?, b.lock("d")?]),
        lock_all([a.lock("a")?, a.lock("c")?.lease(Duration::from_secs(1)), b.lock("d")?]),
    ];
    let stop = Arc::new(AtomicU32::new(0));
    let others: Vec<_> = wants
        .iter()
        .map(|want| {
            let (want, stop) = (want.clone(), stop.clone());
            tokio::spawn(async move {
                while stop.load(Ordering::SeqCst) == 0 {
                    let guard = want.acquire().await.unwrap();
                    tokio::task::yield_now().await;
                    drop(guard);
                }
            })
        })
        .collect();
    let mut granted = 0;
    for number in 0..10_000_u32 {
        let mut acquire = Box::pin(wants[number as usize % wants.len()].acquire());
        let polls = number.wrapping_mul(2_654_435_761) >> 16;
        for _ in 0..polls % 60 {
            if acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                granted += 1;
                break;
            }
            if polls.is_multiple_of(7) {
                tokio::task::yield_now().await;
            }
        }
    }
    println!("{granted} of 10000 were granted before they were dropped");
    stop.store(1, Ordering::SeqCst);
    for other in others {
        other.await?;
    }
    quiet(&[&a, &b]).await;
    Ok(())
}
