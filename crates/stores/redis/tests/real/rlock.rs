//! RedissonLockTest for RLock, applied to leasehold on a server: the cases that the conformance suite does not have
//! already.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Instant;

use leasehold::{Break, Client, ErrorKind, Owner, blocking};
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::Reply;
use tokio::task::JoinSet;

use crate::scene::{
    Case, Checked, LIMIT, MS, S, block_on, client, count, eventually, left, number, until_waiting, url,
};

pub(crate) const CASES: &[Case] = &[
    ("rlock::subscriptions_do_not_run_out_and_are_ended", || block_on(subscriptions_do_not_run_out_and_are_ended())),
    ("rlock::two_connections_do_for_every_name", || block_on(two_connections_do_for_every_name())),
    ("rlock::a_dead_server_is_an_error", || block_on(a_dead_server_is_an_error())),
    ("rlock::a_partial_release_leaves_the_lease_alone", || block_on(a_partial_release_leaves_the_lease_alone())),
    ("rlock::a_false_hint_does_not_end_a_wait", || block_on(a_false_hint_does_not_end_a_wait())),
    ("rlock::a_broken_lock_is_free", || block_on(a_broken_lock_is_free())),
    ("rlock::the_time_to_live_is_the_lease", || block_on(the_time_to_live_is_the_lease())),
    ("rlock::holds_are_counted", || block_on(holds_are_counted())),
    ("rlock::who_holds_it", who_holds_it),
    ("rlock::many_tries_and_then_kept", || block_on(many_tries_and_then_kept())),
    ("rlock::a_hundred_clients", || block_on(a_hundred_clients())),
    ("rlock::others_hear_of_the_key", || block_on(others_hear_of_the_key())),
];

/// testSubscriptionsPerConnection: 32 threads lock and unlock 5,000 times on 5 names, and in the end nothing is subscribed to.
async fn subscriptions_do_not_run_out_and_are_ended() -> Checked {
    let server = Redis::start()?;
    let clients = [client(&server).await?, client(&server).await?, client(&server).await?, client(&server).await?];
    let rounds = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let (client, rounds) = (clients[task % clients.len()].clone(), rounds.clone());
        tasks.spawn(async move {
            while rounds.fetch_add(1, SeqCst) < 5_000 {
                let name = format!("name-{}", rounds.load(SeqCst) % 5);
                client.lock(name)?.acquire().await?.release().await?;
            }
            Ok::<(), leasehold::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    // A client that has waited once keeps a channel of its own; of the names, nothing is left.
    let none_of_a_name = || {
        let found = server.command(&["PUBSUB", "CHANNELS"])?;
        let found = found.texts()?;
        Ok(found.len() <= clients.len() && found.iter().all(|channel| channel.starts_with("leasehold_hint:")))
    };
    eventually("no name is subscribed to", none_of_a_name).await?;
    for client in &clients {
        client.close().await?;
    }
    let nothing = || Ok(server.command(&["PUBSUB", "CHANNELS"])?.texts()?.is_empty());
    eventually("nothing is subscribed to", nothing).await
}

/// testSinglePubSub: two names and two waiters each, where there is hardly a connection. Ours has two, whatever it waits for.
async fn two_connections_do_for_every_name() -> Checked {
    let server = Redis::start()?;
    let (holder, waiter) = (client(&server).await?, client(&server).await?);
    let names: Vec<String> = (0..300).map(|name| format!("name-{name}")).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(holder.lock(name)?.acquire().await?);
    }
    let mut waiting = JoinSet::new();
    for name in &names {
        let lock = waiter.lock(name)?;
        waiting.spawn(async move { lock.acquire().await?.release().await });
    }
    for name in &names {
        until_waiting(&server, name, 1).await?;
    }
    let clients = server.command(&["CLIENT", "LIST"])?;
    // Two of each client, and the one that queries.
    assert!(clients.text()?.lines().count() <= 5, "{clients:?}");
    drop(held);
    while let Some(ended) = waiting.join_next().await {
        ended??;
    }
    Ok(())
}

/// testRedisFailed: the server is gone; a wait of 5 s ends with an error, and does not hang.
async fn a_dead_server_is_an_error() -> Checked {
    let mut server = Redis::start()?;
    let client = client(&server).await?;
    server.kill()?;
    let began = Instant::now();
    let error = client.lock("a")?.acquire_within(5 * S).await.expect_err("there is no server");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(began.elapsed() < LIMIT, "it took {:?}", began.elapsed());
    Ok(())
}

/// testRemainTimeToLive2: acquired three times for a minute, released twice: it stays for the rest of the minute, and
/// no longer.
async fn a_partial_release_leaves_the_lease_alone() -> Checked {
    let server = Redis::start()?;
    let owner = Owner::explicit("me")?;
    let mut guards = Vec::new();
    let began = Instant::now();
    for _ in 0..3 {
        let client = client(&server).await?;
        let guard = client.lock("a")?.owned_by(&owner).lease(60 * S).acquire().await?;
        guards.push((client, guard));
    }
    for many in [2, 1] {
        let (_client, guard) = guards.pop().ok_or("no guard")?;
        guard.release().await?;
        assert_eq!(count(&server, "a", "me")?, many);
        let left = left(&server, "a")?.ok_or("no lease")?;
        assert!(left <= 60 * S, "it was lengthened to {left:?}");
        assert!(left + began.elapsed() >= 60 * S, "it was shortened to {left:?} after {:?}", began.elapsed());
    }
    Ok(())
}

/// testLockUninterruptibly: what wakes a waiter up is no reason to come back without the lock.
async fn a_false_hint_does_not_end_a_wait() -> Checked {
    let server = Redis::start()?;
    let (holder, waiter) = (client(&server).await?, client(&server).await?);
    let held = holder.lock("a")?.acquire().await?;
    let mut waiting = tokio::spawn(async move { waiter.lock("a")?.acquire().await.map(|guard| (waiter, guard)) });
    until_waiting(&server, "a", 1).await?;
    let mut connection = server.connection()?;
    for _ in 0..50 {
        let line = connection.command(&["ZRANGE", "leasehold_line:{a}", "0", "-1"])?;
        for client in line.texts()? {
            connection.command(&["PUBLISH", &format!("leasehold_hint:{client}"), "a"])?;
        }
        for message in ["0", "1", "-0", "nonsense"] {
            connection.command(&["PUBLISH", "redisson_lock__channel:{a}", message])?;
        }
        let woken = tokio::time::timeout(10 * MS, &mut waiting).await;
        assert!(woken.is_err(), "it came back while another holds the lock");
    }
    let fence = held.fence();
    held.release().await?;
    let (_waiter, guard) = waiting.await??;
    assert!(guard.fence() > fence);
    Ok(())
}

/// testForceUnlock.
async fn a_broken_lock_is_free() -> Checked {
    let server = Redis::start()?;
    let (holder, other) = (client(&server).await?, client(&server).await?);
    let held = holder.lock("a")?.keep(S).acquire().await?;
    other.break_lock("a", Break::Now).await?;
    assert_eq!(number(&server, &["EXISTS", "a"])?, 0);
    assert!(!other.inspect("a").await?.is_held());
    tokio::time::timeout(LIMIT, held.lost()).await?;
    let guard = other.lock("a")?.try_acquire().await?.granted().ok_or("it is busy")?;
    assert!(held.release().await.is_err(), "it was not the holder's any more");
    assert!(guard.is_valid() && number(&server, &["EXISTS", "a"])? == 1, "a late release took it away");
    Ok(())
}

/// testRemainTimeToLive: an hour is an hour; released, it is gone; kept, it is 30 s.
async fn the_time_to_live_is_the_lease() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let began = Instant::now();
    let hour = client.lock("a")?.lease(3_600 * S).acquire().await?;
    let found = left(&server, "a")?.ok_or("no lease")?;
    assert!(found <= 3_600 * S && found + began.elapsed() >= 3_600 * S, "{found:?}");
    hour.release().await?;
    assert_eq!(number(&server, &["PTTL", "a"])?, -2);
    let _kept = client.lock("a")?.acquire().await?;
    let found = left(&server, "a")?.ok_or("no lease")?;
    assert!(found <= 30 * S && found > 20 * S - MS, "{found:?}");
    Ok(())
}

/// testGetHoldCount: 0, 1, 0, and nested 2, 1, 0; in one client it is counted in memory, over several at the server.
async fn holds_are_counted() -> Checked {
    let server = Redis::start()?;
    let (one, other) = (client(&server).await?, client(&server).await?);
    let owner = Owner::explicit("me")?;
    let lock = one.lock("a")?.owned_by(&owner);
    assert_eq!(count(&server, "a", "me")?, 0);
    let first = lock.acquire().await?;
    assert_eq!((first.holds(), count(&server, "a", "me")?), (1, 1));
    let nested = lock.acquire().await?;
    assert_eq!((nested.holds(), count(&server, "a", "me")?), (2, 1));
    let elsewhere = other.lock("a")?.owned_by(&owner).acquire().await?;
    assert_eq!(count(&server, "a", "me")?, 2);
    elsewhere.release().await?;
    nested.release().await?;
    assert_eq!((first.holds(), count(&server, "a", "me")?), (1, 1));
    first.release().await?;
    assert_eq!(count(&server, "a", "me")?, 0);
    Ok(())
}

/// testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread, testIsLocked, testIsLockedOtherThread, testLockUnlock,
/// testReentrancy: by thread, as there.
fn who_holds_it() -> Checked {
    let server = Redis::start()?;
    let client = blocking::Client::connect(&url(&server))?;
    let is_held = || Ok::<bool, leasehold::Error>(client.inspect("a")?.is_held());
    // A guard of theirs is released before they answer.
    let try_it = || match client.lock("a")?.try_acquire()?.granted() {
        Some(guard) => guard.release().map(|()| true),
        None => Ok(false),
    };
    let others_may = || std::thread::scope(|scope| scope.spawn(try_it).join().expect("no panic"));
    for _ in 0..2 {
        assert!(!is_held()?);
        let guard = client.lock("a")?.acquire()?;
        assert!(is_held()? && guard.is_valid() && !others_may()?);
        let again = client.lock("a")?.try_acquire()?.granted().ok_or("this thread holds it")?;
        again.release()?;
        assert!(is_held()? && guard.is_valid() && !others_may()?, "one of two was given back");
        guard.release()?;
        assert!(!is_held()? && others_may()?);
    }
    Ok(())
}

/// testConcurrencyTryLockUnLock: 16 threads try and unlock 10,000 times each; the last holder is renewed, which fails
/// if renewals start and end in another order than locks are acquired and released.
async fn many_tries_and_then_kept() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (lock, inside) = (client.lock("a")?.keep(60 * S), inside.clone());
        tasks.spawn(async move {
            for _ in 0..10_000 {
                if let Some(guard) = lock.try_acquire().await?.granted() {
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
                    inside.fetch_sub(1, SeqCst);
                    guard.release().await?;
                }
            }
            Ok::<(), leasehold::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let guard = client.lock("a")?.keep(3 * S).acquire().await?;
    let held = tokio::time::timeout(7 * S, guard.lost()).await;
    assert!(held.is_err() && guard.is_valid(), "it was not kept");
    Ok(())
}

/// testConcurrency_MultiInstance: 100 clients, once each.
async fn a_hundred_clients() -> Checked {
    let server = Redis::start()?;
    let (inside, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (url, inside, done) = (url(&server), inside.clone(), done.clone());
        tasks.spawn(async move {
            let client = Client::connect(&url).await?;
            let guard = client.lock("a")?.acquire().await?;
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            done.fetch_add(1, SeqCst);
            inside.fetch_sub(1, SeqCst);
            guard.release().await
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    assert_eq!(done.load(SeqCst), 100);
    Ok(())
}

/// testLockListener: keys are like Redisson's, so its listeners for expiry and deletion receive ours too.
async fn others_hear_of_the_key() -> Checked {
    let server = Redis::start()?;
    server.command(&["CONFIG", "SET", "notify-keyspace-events", "Egx"])?;
    let mut listening = redis::Client::open(url(&server))?.get_connection()?;
    listening.set_read_timeout(Some(LIMIT))?;
    let mut events = listening.as_pubsub();
    events.subscribe(&["__keyevent@0__:del", "__keyevent@0__:expired"])?;
    let mut next_of_the_lock = || loop {
        let message = events.get_message()?;
        if message.get_payload::<String>()? == "a" {
            return Ok::<String, redis::RedisError>(message.get_channel_name().to_owned());
        }
    };
    let client = client(&server).await?;
    client.lock("a")?.acquire().await?.release().await?;
    assert_eq!(next_of_the_lock()?, "__keyevent@0__:del");
    let _short = client.lock("a")?.lease(200 * MS).acquire().await?;
    assert_eq!(next_of_the_lock()?, "__keyevent@0__:expired");
    assert_eq!(server.command(&["EXISTS", "a"])?, Reply::Number(0));
    Ok(())
}
