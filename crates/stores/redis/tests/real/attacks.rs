//! What an adversary found: each of these once broke a promise.

use std::future::{Future, poll_fn};
use std::task::Poll;

use leasehold::port::{ClientId, Hint, Release, ReleaseScope, Released, RequestId, StoreOwner};
use leasehold::{Break, Client, ErrorKind, Name, Owner, Store};
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use leasehold_redis::Config;

use crate::scene::{Case, Checked, LIMIT, S, block_on, client, eventually, number, url};

pub(crate) const CASES: &[Case] = &[
    ("attacks::one_that_connects_and_is_not_polled_stops_nobody", || block_on(one_that_connects_and_is_not_polled())),
    ("attacks::runtimes_without_sockets_and_timers_will_do", runtimes_without_sockets_and_timers),
    ("attacks::a_runtime_that_stands_still_stops_nobody", a_runtime_that_stands_still),
    ("attacks::one_that_blocks_when_it_is_told_stops_no_keeper", || block_on(one_that_blocks_when_it_is_told())),
    ("attacks::a_withdrawal_takes_no_hold_of_redissons", || block_on(a_withdrawal_takes_no_hold_of_redissons())),
    ("attacks::keys_beside_a_lock_are_no_names", || block_on(keys_beside_a_lock_are_no_names())),
    ("attacks::a_fault_beside_the_lock_fails_no_call", || block_on(a_fault_beside_the_lock_fails_no_call())),
    ("attacks::a_damaged_record_is_as_good_as_none", || block_on(a_damaged_record_is_none())),
    ("attacks::a_user_without_channels_releases", || block_on(a_user_without_channels_releases())),
    ("attacks::a_user_without_expiry_leaves_nothing_for_ever", || block_on(a_user_without_expiry_leaves_nothing())),
    ("attacks::a_user_without_a_right_leaves_no_second_hold", || block_on(no_second_hold())),
    ("attacks::a_release_without_a_right_changes_nothing", || block_on(no_half_of_a_release())),
    ("attacks::a_user_without_a_right_is_told_so_by_list", || block_on(no_empty_list_for_lack_of_a_right())),
    ("attacks::a_break_without_a_right_changes_nothing", || block_on(no_half_of_a_break())),
    ("attacks::large_hashes_of_others_are_passed_over", || block_on(large_hashes_of_others_are_passed_over())),
    ("attacks::numbers_of_others_are_not_counts", || block_on(numbers_of_others_are_not_counts())),
    ("attacks::tokens_beyond_counting_are_refused", || block_on(tokens_beyond_counting_are_refused())),
    ("attacks::scripts_are_forgotten_all_the_time", || block_on(scripts_are_forgotten_all_the_time())),
];

/// As `select!` leaves a future that has lost.
async fn polled_once<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|task| Poll::Ready(std::pin::Pin::new(&mut *future).poll(task).is_ready())).await
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT / 6, future).await.expect("it ends in time")
}

fn cut_all(server: &Redis) -> Checked {
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
    }
    Ok(())
}

async fn one_that_connects_and_is_not_polled() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    for _ in 0..20 {
        cut_all(&server)?;
        let (lock, other) = (client.lock("a")?, client.lock("b")?);
        let mut first = Box::pin(lock.acquire());
        polled_once(&mut first).await;
        soon(other.acquire()).await?.release().await?;
        soon(client.inspect("c")).await?;
        drop(first);
    }
    Ok(())
}

fn runtimes_without_sockets_and_timers() -> Checked {
    let server = Redis::start()?;
    for runtime in [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()] {
        let (mut runtime, url) = (runtime, url(&server));
        runtime.worker_threads(1).build()?.block_on(async {
            let client = Client::connect(&url).await?;
            client.lock("a")?.acquire().await?.release().await
        })?;
    }
    Ok(())
}

/// The task that connected first stops driving its runtime.
fn a_runtime_that_stands_still() -> Checked {
    let server = Redis::start()?;
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (still, other) = (build()?, build()?);
    let client = still.block_on(client(&server))?;
    still.block_on(async { client.lock("a")?.acquire().await?.release().await })?;
    other.block_on(async {
        soon(client.inspect("a")).await?;
        soon(client.lock("b")?.acquire()).await?.release().await
    })?;
    Ok(())
}

/// A user's code may run where hints arrive: renewals must not wait for it.
async fn one_that_blocks_when_it_is_told() -> Checked {
    let server = Redis::start()?;
    let config = Config::new("redis", &format!("//{}", server.address()), &[], None)?;
    let (callers, keepers) = (leasehold_redis::Redis::new(&config)?, leasehold_redis::Redis::for_keeper(&config)?);
    let (told, is_told) = std::sync::mpsc::channel();
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let sink: leasehold::port::HintSink = std::sync::Arc::new(move |hint| {
        // A first connection reports that anything may be free, and only after that is a client subscribed.
        if hint == Hint::All {
            return;
        }
        told.send(()).expect("somebody hears it");
        let _ = waits.lock().expect("one at a time").recv_timeout(LIMIT);
    });
    let me = ClientId([7, 8]);
    callers.watch(me, Name::new("a")?, sink).await?;
    server.command(&["PUBLISH", &format!("leasehold_hint:{me}"), "a"])?;
    is_told.recv_timeout(LIMIT)?;
    soon(keepers.clock()).await?;
    drop(go_on);
    soon(callers.clock()).await?;
    Ok(())
}

async fn a_withdrawal_takes_no_hold_of_redissons() -> Checked {
    let server = Redis::start()?;
    let place = format!("//{}", server.address());
    let store = leasehold_redis::Redis::new(&Config::new("redis", &place, &[], None)?)?;
    let id = RequestId { client: ClientId([1, 2]), number: 3 };
    let release = |scope| Release {
        client: id.client,
        name: Name::new("x").expect("a name"),
        owner: StoreOwner::Shared("app:1".into()),
        fence: None,
        scope,
        last_used: None,
        cooldown: std::time::Duration::ZERO,
        rejoin: false,
    };
    server.command(&["HSET", "x", "app:1", "2"])?;
    server.command(&["PEXPIRE", "x", "60000"])?;
    assert_eq!(store.release(release(ReleaseScope::Hold(id))).await?.result, Released::NotHeld);
    // Nor is it recognisably a lock, whatever owner asks.
    assert_eq!(store.release(release(ReleaseScope::One(id))).await?.result, Released::NotHeld);
    assert_eq!(store.release(release(ReleaseScope::All)).await?.result, Released::NotHeld);
    assert_eq!(server.command(&["HGET", "x", "app:1"])?.text()?, "2");
    assert!(number(&server, &["PTTL", "x"])? > 50_000);
    Ok(())
}

async fn keys_beside_a_lock_are_no_names() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    for beside in ["leasehold_lock:{a}", "leasehold_fence:{a}", "leasehold_line:{a}", "leasehold_heard::{a}"] {
        let error = client.lock(beside)?.acquire().await.expect_err("it is no name");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    }
    assert_eq!(number(&server, &["DBSIZE"])?, 0);
    Ok(())
}

async fn a_fault_beside_the_lock_fails_no_call() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for beside in ["leasehold_line:{b}", "leasehold_heard:{b}", "leasehold_lock:{b}"] {
            server.command(&["DEL", beside])?;
            server.command(&["RPUSH", beside, "not what it should be"])?;
            let both = client.lock_all(["a", "b"])?.acquire().await?;
            server.command(&["DEL", beside])?;
            server.command(&["RPUSH", beside, "nor this"])?;
            both.release().await?;
            assert_eq!(number(&server, &["EXISTS", "a", "b"])?, 0, "{layout} {beside}");
            server.command(&["DEL", beside])?;
        }
    }
    Ok(())
}

/// Of the holder whose record it seems to be, only what people are shown is less.
async fn a_damaged_record_is_none() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let of = async || Client::connect(&format!("{}?layout={layout}", url(&server))).await;
        let (one, other) = (of().await?, of().await?);
        let held = one.lock("a")?.acquire().await?;
        let found = server.command(&["GET", "leasehold_fence:{a}"])?;
        let owner = found.text()?.split(' ').nth(3).ok_or("an owner")?.to_owned();
        for record in ["3 9 30000 OWNER p\n1\n\n", "0 1 30000 OWNER p\n", "+5 OWNER", "5 OWNER p", ""] {
            server.command(&["SET", "leasehold_fence:{a}", &record.replace("OWNER", &owner), "EX", "600"])?;
            assert!(other.lock("a")?.try_acquire().await?.is_busy(), "{layout} {record:?}");
            assert_eq!(other.inspect("a").await?.holders.len(), 1, "{layout} {record:?}");
        }
        held.release().await?;
        assert_eq!(number(&server, &["EXISTS", "a"])?, 0, "{layout}");
    }
    Ok(())
}

async fn a_user_without_channels_releases() -> Checked {
    let server = Redis::with(Settings::default().users("user default on nopass ~* resetchannels +@all"))?;
    let client = client(&server).await?;
    client.lock("a")?.acquire().await?.release().await?;
    assert_eq!(number(&server, &["EXISTS", "a"])?, 0);
    Ok(())
}

async fn a_user_without_expiry_leaves_nothing() -> Checked {
    let some = "+@read +@string +@hash +@sortedset +@scripting +@pubsub +@connection +time";
    for rights in ["+@all -pexpire", "+@all -pexpire -del", "+@all -pexpire -pttl", "+@all -pexpire -hdel -del", some] {
        let server = Redis::with(Settings::default().users(&format!("user default on nopass ~* &* {rights}")))?;
        let client = client(&server).await?;
        for lock in [client.lock("a")?, client.lock("a")?.owned_by(&Owner::explicit("me")?)] {
            let error = lock.acquire().await.expect_err("it may not");
            assert_eq!(error.kind(), ErrorKind::Unfit, "{rights}: {error}");
            assert_eq!(number(&server, &["PTTL", "a"])?, -2, "{rights}: a lock was left for ever");
        }
    }
    Ok(())
}

/// Two processes share an owner, and one of them may not do all that it takes to enter.
async fn no_second_hold() -> Checked {
    let server = Redis::start()?;
    let me = Owner::explicit("me")?;
    let first = client(&server).await?;
    for lacking in ["pexpire", "set", "hset", "hdel", "pttl"] {
        let rights = ["+@all".to_owned(), format!("-{lacking}")];
        server.command(&["ACL", "SETUSER", lacking, "on", ">x", "~*", "&*", &rights[0], &rights[1]])?;
        let second = Client::connect(&format!("redis://{lacking}:x@{}", server.address())).await?;
        let held = first.lock("a")?.owned_by(&me).lease(600 * S).acquire().await?;
        let entered = second.lock("a")?.owned_by(&me).lease(60 * S).try_acquire().await;
        let is_entered = entered.is_ok();
        if let Ok(entered) = entered {
            assert_eq!(lacking, "hdel", "it may enter without it");
            let _ = entered.granted().ok_or("it is busy")?.release().await;
        }
        held.release().await?;
        let left = number(&server, &["EXISTS", "a"])?;
        assert!(left == 0 || is_entered, "-{lacking}: a hold is left that nobody has");
        server.command(&["DEL", "a"])?;
    }
    Ok(())
}

/// Redisson holds it under the same owner, which only the count shows: a failed release must not change that count.
async fn no_half_of_a_release() -> Checked {
    let server = Redis::start()?;
    let me = Owner::explicit("me")?;
    let first = client(&server).await?;
    for lacking in ["pexpire", "set"] {
        server.command(&["ACL", "SETUSER", lacking, "on", ">x", "~*", "&*", "+@all", &format!("-{lacking}")])?;
        let second = Client::connect(&format!("redis://{lacking}:x@{}", server.address())).await?;
        let held = first.lock("a")?.owned_by(&me).lease(600 * S).acquire().await?;
        server.command(&["HINCRBY", "a", "me", "1"])?;
        let failed = second.detached("a", &me)?.release(None).await.expect_err("it may not");
        assert_eq!(failed.kind(), ErrorKind::Unfit, "-{lacking}: {failed}");
        assert_eq!(number(&server, &["HINCRBY", "a", "me", "0"])?, 2, "-{lacking}: the failed release was counted");
        held.release().await?;
        assert_eq!(number(&server, &["HINCRBY", "a", "me", "0"])?, 1, "-{lacking}: Redisson's hold is gone");
        server.command(&["DEL", "a"])?;
    }
    Ok(())
}

/// A lock that this user may not read is held all the same.
async fn no_empty_list_for_lack_of_a_right() -> Checked {
    let server = Redis::start()?;
    let held = client(&server).await?.lock("a")?.owned_by(&Owner::explicit("me")?).lease(600 * S).acquire().await?;
    for lacking in ["hkeys", "hlen", "hstrlen", "getrange"] {
        server.command(&["ACL", "SETUSER", lacking, "on", ">x", "~*", "&*", "+@all", &format!("-{lacking}")])?;
        let looking = Client::connect(&format!("redis://{lacking}:x@{}", server.address())).await?;
        let error = looking.list("").await.expect_err("it may not");
        assert_eq!(error.kind(), ErrorKind::Unfit, "-{lacking}: {error}");
    }
    held.release().await?;
    Ok(())
}

async fn no_half_of_a_break() -> Checked {
    let server = Redis::start()?;
    let first = client(&server).await?;
    for lacking in ["hset", "hdel", "del"] {
        server.command(&["ACL", "SETUSER", lacking, "on", ">x", "~*", "&*", "+@all", &format!("-{lacking}")])?;
        let operator = Client::connect(&format!("redis://{lacking}:x@{}", server.address())).await?;
        for how in [Break::AtLeaseEnd, Break::Now] {
            let held = first.lock("a")?.lease(600 * S).acquire().await?;
            let before = server.command(&["HGETALL", "a"])?;
            if operator.break_lock("a", how).await.is_err() {
                assert_eq!(server.command(&["HGETALL", "a"])?.texts()?, before.texts()?, "-{lacking}: {how:?}");
                held.extend(600 * S).await?;
            }
            drop(held);
            server.command(&["DEL", "a"])?;
        }
    }
    Ok(())
}

async fn large_hashes_of_others_are_passed_over() -> Checked {
    let server = Redis::start()?;
    let fill = "for hash = 1, 100 do for field = 1, 20000 do redis.call('HSET', 'big-' .. hash, field, field) end end";
    server.command(&["EVAL", fill, "0"])?;
    let client = client(&server).await?;
    let held = client.lock("held")?.acquire().await?;
    let listed: Vec<_> = soon(client.list("")).await?.into_iter().map(|status| status.name.to_string()).collect();
    assert_eq!(listed, ["held"]);
    assert!(client.lock("big-1")?.try_acquire().await?.is_busy());
    assert!(client.inspect("big-1").await?.is_held());
    held.release().await?;
    Ok(())
}

async fn numbers_of_others_are_not_counts() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    for count in ["1763262000000", "inf", "nan", "-3", "0.5", "many", ""] {
        server.command(&["HSET", "x", "somebody", count])?;
        assert!(client.lock("x")?.try_acquire().await?.is_busy(), "{count:?}");
        assert!(client.inspect("x").await?.is_held(), "{count:?}");
        client.list("").await?;
    }
    Ok(())
}

async fn tokens_beyond_counting_are_refused() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    for token in ["9007199254740992", "1763262000000000001"] {
        server.command(&["SET", "redisson_lock_token:{x}", token])?;
        let error = client.lock("x")?.acquire().await.expect_err("it cannot be counted on");
        assert_eq!(error.kind(), ErrorKind::Unfit, "{token}: {error}");
        assert_eq!(server.command(&["GET", "redisson_lock_token:{x}"])?.text()?, token);
        assert_eq!(number(&server, &["EXISTS", "x"])?, 0);
    }
    for other in ["no number", "1e300", "inf", "0x1F", " 1e3", "-1", "+0 ", "01", ""] {
        server.command(&["SET", "redisson_lock_token:{x}", other])?;
        let held = client.lock("x")?.acquire().await?;
        assert!(held.fence().get() < 1 << 53, "{other:?}");
        held.release().await?;
        assert_eq!(server.command(&["GET", "redisson_lock_token:{x}"])?.text()?, other, "it is no token of Redisson's");
    }
    Ok(())
}

async fn scripts_are_forgotten_all_the_time() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let owner = Owner::explicit("me")?;
    for _ in 0..200 {
        server.command(&["SCRIPT", "FLUSH"])?;
        let guard = client.lock("a")?.owned_by(&owner).lease(60 * S).acquire().await?;
        server.command(&["SCRIPT", "FLUSH"])?;
        guard.release().await?;
    }
    eventually("nothing is held", || Ok(number(&server, &["EXISTS", "a"])? == 0)).await
}
