//! What an adversary found in calls that are shared, and in records that stand beside a fence.

use std::time::Instant;

use leasehold::port::{Acquire, Acquired, ClientId, Lease, Mode, Names, Renew, Renewed, RequestId, StoreOwner};
use leasehold::{Client, Fence, Name, Owner, Store};
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use leasehold_redis::Config;

use tokio::task::JoinSet;

use crate::scene::{Case, Checked, KEPT_LONG, LIMIT, MS, S, block_on, client, eventually, number, url};

pub(crate) const CASES: &[Case] = &[
    ("crowds::labels_over_a_long_line", || block_on(labels_over_a_long_line())),
    ("crowds::tries_over_a_long_line", || block_on(tries_over_a_long_line())),
    ("crowds::one_behind_many_labels", || block_on(one_behind_many_labels())),
    ("crowds::short_leases_over_a_long_line", || block_on(short_leases_over_a_long_line())),
    ("crowds::who_came_later_is_not_failed", || block_on(who_came_later_is_not_failed())),
    ("crowds::a_release_behind_many_labels", || block_on(a_release_behind_many_labels())),
    ("crowds::close_behind_many_labels", || block_on(close_behind_many_labels())),
    ("crowds::dropped_behind_many_labels", || block_on(dropped_behind_many_labels())),
    ("crowds::storms_over_a_server_that_stops", || block_on(storms_over_a_server_that_stops())),
    ("crowds::storms_over_a_line_that_is_cut", || block_on(storms_over_a_line_that_is_cut())),
    ("crowds::out_of_memory_for_all_at_once", || block_on(out_of_memory_for_all_at_once())),
    ("crowds::odd_labels_and_owners", || block_on(odd_labels_and_owners())),
    ("clock::a_fence_outlives_a_lock_that_is_held_for_long", || block_on(a_fence_outlives_a_lock())),
    ("crowds::a_name_that_is_asked_for_twice_at_once", || block_on(a_name_that_is_asked_for_twice())),
    ("crowds::everything_at_once", || block_on(everything_at_once())),
    ("crowds::a_holder_is_told_beside_an_old_record", || block_on(a_holder_is_told_beside_an_old_record())),
    ("crowds::a_fence_does_not_go_back_after_a_forced_unlock", || block_on(a_fence_does_not_go_back())),
    ("crowds::a_lease_is_not_renewed_after_another_had_it", || block_on(a_lease_is_not_renewed())),
    ("crowds::the_last_holder_is_told_beside_an_old_record", || block_on(the_last_holder_is_told())),
];

async fn through(proxy: &Proxy, options: &str) -> Result<Client, leasehold_faults::Failure> {
    Ok(Client::connect(&format!("redis://{}{options}", proxy.address())).await?)
}

/// A server 100 ms away. Every one of a thousand free locks has a label of its own.
async fn labels_over_a_long_line() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = through(&proxy, "").await?;
    client.lock("warm")?.acquire().await?.release().await?;
    proxy.delay(50 * MS);
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for at in 0..1_000 {
        let lock = client.lock(format!("n{at}"))?.label(format!("job {at}"));
        asking.spawn(async move { lock.acquire().await });
    }
    let (mut guards, mut failed) = (Vec::new(), Vec::new());
    while let Ok(Some(taken)) = tokio::time::timeout(LIMIT.saturating_sub(began.elapsed()), asking.join_next()).await {
        match taken? {
            Ok(guard) => guards.push(guard),
            Err(error) => failed.push(error.to_string()),
        }
    }
    assert_eq!(
        (guards.len(), failed.len()),
        (1_000, 0),
        "of a thousand free locks in {:?}; {:?}",
        began.elapsed(),
        failed.first()
    );
    Ok(())
}

/// An ordinary acquire, after many with labels of their own.
async fn one_behind_many_labels() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = through(&proxy, "").await?;
    let held = client.lock("warm")?.acquire().await?;
    proxy.delay(50 * MS);
    let mut asking = JoinSet::new();
    for at in 0..1_000 {
        let lock = client.lock(format!("n{at}"))?.label(format!("job {at}"));
        asking.spawn(async move { lock.acquire().await });
    }
    tokio::time::sleep(100 * MS).await;
    let taken = tokio::time::timeout(LIMIT, client.lock("free")?.acquire_within(LIMIT / 2)).await?;
    let released = tokio::time::timeout(LIMIT, held.release()).await;
    assert!(taken?.granted().is_some(), "a free lock was not granted");
    released??;
    Ok(())
}

async fn short_leases_over_a_long_line() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = through(&proxy, "").await?;
    client.lock("warm")?.acquire().await?.release().await?;
    proxy.delay(50 * MS);
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for at in 0..200 {
        let lock = client.lock(format!("n{at}"))?.label(format!("job {at}")).lease(500 * MS);
        asking.spawn(async move { lock.acquire().await });
    }
    let mut granted = 0;
    while let Ok(Some(taken)) = tokio::time::timeout(LIMIT.saturating_sub(began.elapsed()), asking.join_next()).await {
        granted += usize::from(taken?.is_ok());
    }
    assert_eq!(granted, 200, "of 200 free locks in {:?}", began.elapsed());
    Ok(())
}

/// The server stands still for little longer than a call may take. An acquire sent just before it continues waits for
/// less than that.
async fn who_came_later_is_not_failed() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let held = client.lock("held")?.acquire().await?;
    let warm: JoinSet<_> = (0..64)
        .map(|at| client.lock(format!("w{at}")).expect("a name"))
        .map(|lock| async move { lock.acquire().await })
        .collect();
    for guard in warm.join_all().await {
        guard?.release().await?;
    }
    server.stop()?;
    let mut early = JoinSet::new();
    for at in 0..16 {
        let lock = client.lock(format!("n{at}"))?.label(format!("job {at}"));
        early.spawn(async move { lock.try_acquire().await });
    }
    tokio::time::sleep(1_300 * MS).await;
    let lock = client.lock("late")?;
    let late = tokio::spawn(async move { lock.try_acquire().await });
    let late_release = tokio::spawn(held.release());
    // Those that came early have waited for as long as a call may take.
    early.join_all().await;
    server.go_on()?;
    let (late, released) = (late.await?, late_release.await?);
    assert!(late?.granted().is_some(), "it asked shortly before the server answered again");
    released?;
    Ok(())
}

/// What an owner that several share left behind, when its lock was taken away by hand, says nothing of the next holder.
async fn a_holder_is_told_beside_an_old_record() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let me = Owner::explicit("me")?;
    let _before = client.lock("x")?.owned_by(&me).lease(60 * S).acquire().await?;
    // As an operator does, or Redisson's forceUnlock.
    server.command(&["DEL", "x"])?;
    let other = Client::connect(&url(&server)).await?;
    let held = other.lock("x")?.acquire().await?;
    let found = other.inspect("x").await?.holders;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].fence, found[0].pid), (Some(held.fence()), Some(std::process::id())));
    Ok(())
}

/// Many ask for locks of their own, each with its own label.
fn ask_for_many(client: &Client) -> JoinSet<Result<leasehold::Guard, leasehold::Error>> {
    let mut asking = JoinSet::new();
    for at in 0..1_000 {
        let lock = client.lock(format!("n{at}")).expect("a name").label(format!("job {at}"));
        asking.spawn(async move { lock.acquire().await });
    }
    asking
}

/// Another process waits for a lock whose release comes after many acquires.
async fn a_release_behind_many_labels() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let (busy, other) = (through(&proxy, &format!("?{KEPT_LONG}")).await?, client(&server).await?);
    let held = busy.lock("warm")?.acquire().await?;
    proxy.delay(50 * MS);
    let _asking = ask_for_many(&busy);
    tokio::time::sleep(100 * MS).await;
    drop(held);
    let taken = other.lock("warm")?.acquire_within(LIMIT).await?;
    assert!(!taken.is_busy(), "it was given back, and the server is 100 ms away");
    Ok(())
}

async fn close_behind_many_labels() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = through(&proxy, "").await?;
    client.lock("warm")?.acquire().await?.release().await?;
    proxy.delay(50 * MS);
    let asking = ask_for_many(&client);
    tokio::time::sleep(100 * MS).await;
    let closed = tokio::time::timeout(LIMIT, client.close()).await;
    closed??;
    let results = asking.join_all().await;
    drop(results);
    assert_eq!(
        number(
            &server,
            &["EVAL", "local n = 0 for at = 0, 999 do n = n + redis.call('EXISTS', 'n' .. at) end return n", "0"]
        )?,
        0
    );
    Ok(())
}

const HELD: &str = "local n = 0 for at = 0, 9999 do n = n + redis.call('EXISTS', 'n' .. at) end return n";

async fn dropped_behind_many_labels() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = through(&proxy, &format!("?{KEPT_LONG}")).await?;
    client.lock("warm")?.acquire().await?.release().await?;
    proxy.delay(50 * MS);
    let mut asking = ask_for_many(&client);
    tokio::time::sleep(300 * MS).await;
    asking.shutdown().await;
    eventually("nothing is held", || Ok(number(&server, &["EVAL", HELD, "0"])? == 0)).await?;
    // And it stays so.
    for _ in 0..40 {
        tokio::time::sleep(100 * MS).await;
        let held = number(&server, &["EVAL", HELD, "0"])?;
        if held > 0 {
            eventually("nothing is held", || Ok(number(&server, &["EVAL", HELD, "0"])? == 0)).await?;
        }
    }
    Ok(())
}

async fn storms_over_a_server_that_stops() -> Checked {
    for (layout, stop) in [("redisson", 1_000), ("plain", 3_000), ("plain", 1_600), ("redisson", 10_000)] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}&{KEPT_LONG}", url(&server))).await?;
        let mut asking = JoinSet::new();
        for at in 0..10_000 {
            let lock = client.lock(format!("n{at}"))?;
            asking.spawn(async move { lock.acquire().await });
        }
        tokio::time::sleep(30 * MS).await;
        server.stop()?;
        tokio::time::sleep(stop * MS).await;
        server.go_on()?;
        let taken = tokio::time::timeout(LIMIT, asking.join_all()).await?;
        let granted: Vec<_> = taken.into_iter().filter_map(Result::ok).collect();
        let valid = granted.iter().filter(|guard| guard.is_valid()).count();
        assert_eq!(valid, granted.len());
        drop(granted);
        eventually("nothing is held", || Ok(number(&server, &["EVAL", HELD, "0"])? == 0)).await?;
        tokio::time::sleep(3 * S).await;
        assert_eq!(number(&server, &["EVAL", HELD, "0"])?, 0);
    }
    Ok(())
}

async fn storms_over_a_line_that_is_cut() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let proxy = Proxy::before(server.address())?;
        let client = through(&proxy, &format!("?layout={layout}&{KEPT_LONG}")).await?;
        let mut last = std::collections::BTreeMap::new();
        for round in 0..30_usize {
            let mut asking = JoinSet::new();
            for at in 0..500 {
                let lock = client.lock(format!("n{at}"))?;
                let lock = if at % 7 == 0 { lock.label(format!("{at}")) } else { lock };
                asking.spawn(async move { (at, lock.try_acquire().await) });
            }
            proxy.cut_after((round * 7_919) % 6_000);
            let mut guards = Vec::new();
            for (at, taken) in asking.join_all().await {
                if let Ok(taken) = taken
                    && let Some(guard) = taken.granted()
                {
                    let before = last.insert(at, guard.fence());
                    assert!(before.is_none_or(|before| before < guard.fence()), "{layout}: a fence went back");
                    guards.push(guard);
                }
            }
            proxy.cut_after((round * 104_729) % 4_000);
            drop(guards);
        }
        proxy.cut_after(usize::MAX);
        eventually("nothing is held", || Ok(number(&server, &["EVAL", HELD, "0"])? == 0)).await?;
    }
    Ok(())
}

async fn out_of_memory_for_all_at_once() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        let mut guards = Vec::new();
        for at in 0..300 {
            guards.push(client.lock(format!("n{at}"))?.keep(6 * S).acquire().await?);
        }
        server.command(&["CONFIG", "SET", "maxmemory", "1"])?;
        let asking: JoinSet<_> = (300..600)
            .map(|at| client.lock(format!("n{at}")).expect("a name"))
            .map(|lock| async move { lock.try_acquire().await })
            .collect();
        let taken = asking.join_all().await;
        assert!(
            taken.iter().all(|taken| taken.as_ref().is_err_and(|error| error.kind() == leasehold::ErrorKind::Unfit))
        );
        assert_eq!(number(&server, &["EVAL", HELD, "0"])?, 300, "{layout}");
        tokio::time::sleep(7 * S).await;
        assert!(guards.iter().all(leasehold::Guard::is_valid), "{layout}");
        let mut giving: JoinSet<_> = guards.into_iter().map(leasehold::Guard::release).collect();
        while let Some(given) = giving.join_next().await {
            given??;
        }
        assert_eq!(number(&server, &["EVAL", HELD, "0"])?, 0, "{layout}");
    }
    Ok(())
}

/// Whatever goes in one call: of all that ask for a name one is granted, and what the others ask for again alone is refused.
async fn a_name_that_is_asked_for_twice() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let options = [("layout".to_owned(), layout.to_owned())];
        let config = Config::new("redis", &format!("//{}", server.address()), &options, None)?;
        let store = leasehold_redis::Redis::new(&config)?;
        let mut number = 0;
        for _ in 0..5 {
            let at = store.clock().await?.at;
            let mut asked = JoinSet::new();
            for name in 0..300 {
                // Three for each name, next to one another.
                let name = Name::new(format!("n{}", name / 3))?;
                number += 1;
                let (id, request) = (number, asking(&name, number, 60 * S, at));
                let store = store.clone();
                asked.spawn(async move { (name, id, store.acquire(request).await.map(|answer| answer.result)) });
            }
            let mut granted = std::collections::BTreeMap::new();
            for (name, id, answer) in asked.join_all().await {
                if let Acquired::Granted(_) = answer? {
                    assert_eq!(granted.insert(name.clone(), id), None, "{layout}: {name} was granted twice");
                }
            }
            assert_eq!(granted.len(), 100, "{layout}");
            server.command(&["EVAL", "for i = 0, 99 do redis.call('DEL', 'n' .. i) end", "0"])?;
        }
    }
    Ok(())
}

async fn odd_labels_and_owners() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let url = format!("{}?layout={layout}", url(&server));
        let (client, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
        let long = "x".repeat(256);
        for (at, label) in
            [" ", "a b", "%d %s", "1 2 3", "\u{2028}", "\u{feff}", "/", "a/b", "'\"", long.as_str()].iter().enumerate()
        {
            let held = client.lock("x")?.label(label).acquire().await?;
            let found = other.inspect("x").await?.holders;
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[0].fence, found[0].label.as_deref()),
                (Some(held.fence()), Some(*label)),
                "{layout} {at}"
            );
            held.release().await?;
            let owner = Owner::explicit(label)?;
            let held = client.lock("x")?.owned_by(&owner).lease(20 * S).acquire().await?;
            let found = other.inspect("x").await?.holders;
            assert_eq!(found[0].fence, Some(held.fence()), "{layout} {at} {found:?}");
            assert_eq!(other.list("").await?.len(), 1, "{layout} {at}");
            let inner = client.lock("x")?.owned_by(&owner).lease(40 * S).acquire().await?;
            assert_eq!(inner.fence(), held.fence(), "{layout} {at}");
            inner.release().await?;
            held.release().await?;
            assert!(!other.inspect("x").await?.is_held(), "{layout} {at}");
        }
    }
    Ok(())
}

/// Held for nine days, and the clock is set back by a little more after that.
async fn a_fence_outlives_a_lock() -> Checked {
    const DAY: i64 = 24 * 3_600;
    let mut failed = Vec::new();
    // How far the clock was ahead when it was taken.
    let cases = [
        ("private", false, 0, false),
        ("private, clock was ahead", false, 6 * DAY, false),
        ("shared", true, 0, false),
        // The acquire of a client that has seen a fence ahead of the clock, on another name.
        ("private, ahead by what was seen", false, 0, true),
    ];
    for (what, shared, ahead, has_seen) in cases {
        let server = Redis::with(Settings::default().settable_clock())?;
        let config = Config::new("redis", &format!("//{}", server.address()), &[], None)?;
        let store = leasehold_redis::Redis::new(&config)?;
        let name = Name::new("x")?;
        server.set_clock(ahead)?;
        let at = store.clock().await?.at;
        let id = |number| RequestId { client: ClientId([1, 2]), number };
        let owner = if shared { StoreOwner::Shared("me".into()) } else { StoreOwner::Private(id(1)) };
        let days = 6 * DAY.unsigned_abs() * 8_000_000;
        let seen = if has_seen { Fence::new(at.as_nanos() / 125 + days) } else { Fence::NONE };
        let day = 24 * 3_600 * S;
        let first =
            fence_of(store.acquire(Acquire { owner: owner.clone(), seen, ..asking(&name, 1, day, at) }).await?.result)?;
        server.set_clock(0)?;
        for step in 1..=20 {
            server.set_clock(step * DAY / 2)?;
            let lease = Lease { name: name.clone(), owner: owner.clone(), fence: first };
            let renew = Renew { lease, hold: Some(id(1)), term: day, kept: false };
            let renewed = store.renew(vec![renew]).await?.result;
            assert!(matches!(renewed[0], Renewed::Kept { .. }), "{what}: {renewed:?} in step {step}");
        }
        server.set_clock(-3_600)?;
        server.command(&["DEL", "x", "leasehold_lock:{x}"])?;
        let at = store.clock().await?.at;
        let next = fence_of(store.acquire(asking(&name, 2, day, at)).await?.result)?;
        if next <= first {
            failed.push(format!("{what}: {first} then {next}"));
        }
    }
    assert!(failed.is_empty(), "fences went back: {failed:?}");
    Ok(())
}

/// Every `try_acquire` is answered, whatever other tasks do. Leases differ here, not labels.
async fn tries_over_a_long_line() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    let client = through(&proxy, "").await?;
    client.lock("warm")?.acquire().await?.release().await?;
    proxy.delay(50 * MS);
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for at in 0..1_000 {
        let lock = client.lock(format!("n{at}"))?.lease(60 * S + at * MS);
        asking.spawn(async move { lock.try_acquire().await });
    }
    let mut answered = 0;
    while let Ok(Some(taken)) = tokio::time::timeout(LIMIT.saturating_sub(began.elapsed()), asking.join_next()).await {
        // That it failed is an answer too.
        drop(taken?);
        answered += 1;
    }
    assert_eq!(answered, 1_000, "were answered in {:?}, of a thousand that tried", began.elapsed());
    Ok(())
}

/// The same for a lock that lingers.
async fn the_last_holder_is_told() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let _before = client.lock("x")?.owned_by(&Owner::explicit("me")?).lease(60 * S).acquire().await?;
    server.command(&["DEL", "x"])?;
    let other = Client::connect(&url(&server)).await?;
    let held = other.lock("x")?.at_least(20 * S).acquire().await?;
    let fence = held.fence();
    held.release().await?;
    let last = other.inspect("x").await?.cooldown.ok_or("it does not linger")?;
    assert_eq!(last.fence, Some(fence), "another is told to have held it last: {last:?}");
    Ok(())
}

/// Clients that contend, drop, linger and share an owner, while scripts are forgotten and connections are cut.
async fn everything_at_once() -> Checked {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    const NAMES: usize = 40;
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let inside: Arc<Vec<(AtomicUsize, AtomicU64)>> = Arc::new((0..NAMES).map(|_| Default::default()).collect());
        let done = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = Client::connect(&format!("{}?layout={layout}&{KEPT_LONG}", url(&server))).await?;
            clients.push(client.clone());
            for task in 0..120_u64 {
                let (client, inside, done) = (client.clone(), inside.clone(), done.clone());
                tasks.spawn(async move {
                    let mut seed = task * 7_919 + std::ptr::from_ref(&done) as u64;
                    let mut random = move |below: u64| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (seed >> 33) % below
                    };
                    let began = Instant::now();
                    while began.elapsed() < 8 * S {
                        let at = random(NAMES as u64) as usize;
                        let mut lock = client.lock(format!("n{at}")).expect("a name");
                        if random(3) == 0 {
                            lock = lock.label(format!("{task}"));
                        }
                        if random(5) == 0 {
                            lock = lock.lease(600 * S + random(9) as u32 * 100 * MS);
                        }
                        let patience = std::time::Duration::from_micros(random(60_000));
                        let taken = match random(3) {
                            0 => lock.try_acquire().await.ok().and_then(leasehold::Attempt::granted),
                            1 => tokio::time::timeout(patience, lock.acquire()).await.ok().and_then(Result::ok),
                            _ => lock.acquire_within(50 * MS).await.ok().and_then(leasehold::Attempt::granted),
                        };
                        let Some(guard) = taken else { continue };
                        let (holders, fence) = &inside[at];
                        if guard.is_valid() {
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "{layout}: two hold n{at}");
                            let before = fence.swap(guard.fence().get(), Ordering::SeqCst);
                            assert!(
                                before < guard.fence().get(),
                                "{layout}: n{at} had {before}, now {:?}",
                                guard.fence()
                            );
                            if random(4) == 0 {
                                tokio::time::sleep(std::time::Duration::from_micros(random(2_000))).await;
                            }
                            holders.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        if random(2) == 0 {
                            let _ = guard.release().await;
                        }
                    }
                });
            }
        }
        let began = Instant::now();
        while began.elapsed() < 8 * S {
            tokio::time::sleep(300 * MS).await;
            server.command(&["SCRIPT", "FLUSH"])?;
            tokio::time::sleep(200 * MS).await;
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        }
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        eventually("nothing is held", || Ok(number(&server, &["EVAL", HELD, "0"])? == 0)).await?;
        tokio::time::sleep(3 * S).await;
        assert_eq!(number(&server, &["EVAL", HELD, "0"])?, 0, "{layout}");
    }
    Ok(())
}

fn asking(name: &Name, number: u64, lease: std::time::Duration, at: leasehold::port::StoreTime) -> Acquire {
    let request = RequestId { client: ClientId([1, 2]), number };
    Acquire {
        names: Names::One(name.clone()),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease,
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: at + 60 * S,
        enlist: false,
        kept: false,
        about: std::sync::Arc::default(),
    }
}

fn fence_of(acquired: Acquired) -> Result<Fence, String> {
    match acquired {
        Acquired::Granted(grants) => Ok(grants[0].block.first),
        other => Err(format!("{other:?}")),
    }
}

/// Redisson's forceUnlock breaks the lock of an owner that it shares with leasehold; another client holds it and
/// releases it; then Redisson takes it under the shared owner, and leasehold re-enters. That grant's fence is larger
/// than the one before.
async fn a_fence_does_not_go_back() -> Checked {
    let server = Redis::start()?;
    let one = client(&server).await?;
    let me = Owner::explicit("theirs-and-ours")?;
    let before = one.lock("x")?.owned_by(&me).lease(60 * S).acquire().await?;
    // As Redisson's forceUnlock.
    server.command(&["DEL", "x"])?;
    let between = Client::connect(&url(&server)).await?;
    let held = between.lock("x")?.acquire().await?;
    let fence = held.fence();
    assert!(before.fence() < fence);
    held.release().await?;
    // As Redisson's lock.
    server.command(&["HINCRBY", "x", "theirs-and-ours", "1"])?;
    server.command(&["PEXPIRE", "x", "30000"])?;
    let other = Client::connect(&url(&server)).await?;
    let entered = other.lock("x")?.owned_by(&me).lease(60 * S).acquire().await?;
    assert!(entered.fence() > fence, "{:?} was granted after {fence:?}", entered.fence());
    Ok(())
}

/// The same for the one whose lock was taken away: others have held it since, with a larger fence, so its lease is lost.
async fn a_lease_is_not_renewed() -> Checked {
    let server = Redis::start()?;
    let config = Config::new("redis", &format!("//{}", server.address()), &[], None)?;
    let store = leasehold_redis::Redis::new(&config)?;
    let name = Name::new("x")?;
    let at = store.clock().await?.at;
    let owner = StoreOwner::Shared("theirs-and-ours".into());
    let request = Acquire { owner: owner.clone(), ..asking(&name, 1, 60 * S, at) };
    let (id, fence) = (request.request, fence_of(store.acquire(request).await?.result)?);
    server.command(&["DEL", "x"])?;
    client(&server).await?.lock("x")?.acquire().await?.release().await?;
    server.command(&["HINCRBY", "x", "theirs-and-ours", "1"])?;
    server.command(&["PEXPIRE", "x", "30000"])?;
    let lease = Lease { name, owner, fence };
    let renewed = store.renew(vec![Renew { lease, hold: Some(id), term: 60 * S, kept: false }]).await?.result;
    assert_eq!(renewed, [Renewed::Lost]);
    Ok(())
}
