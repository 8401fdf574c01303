//! The keys that are made: which, for how long, and what is left.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::port::{Acquire, Acquired, Break, Release};
use leasehold::{Client, ErrorKind, Fence, Owner, Store};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::Reply;

use crate::scene::{Case, Checked, MS, S, block_on, client, eventually, left, number, until_waiting, url};
use crate::stale::{asking, giving, store};

pub(crate) const CASES: &[Case] = &[
    ("keys::all_that_are_made_beside_a_lock_expire", || block_on(all_that_are_made_beside_a_lock_expire())),
    ("keys::the_token_of_redisson_is_raised_where_it_is", || block_on(the_token_of_redisson_is_raised_where_it_is())),
    ("keys::a_token_that_was_raised_meanwhile_stays", || block_on(a_token_that_was_raised_meanwhile_stays())),
    ("keys::a_broken_lock_leaves_no_holds", || block_on(a_broken_lock_leaves_no_holds())),
    ("keys::a_lock_without_expiry_is_busy_and_stays", || block_on(a_lock_without_expiry_is_busy_and_stays())),
    ("keys::a_look_at_the_server_leaves_none", || block_on(a_look_at_the_server_leaves_none())),
    ("keys::the_plain_layout_is_the_recipe", || block_on(the_plain_layout_is_the_recipe())),
];

/// Every key, with how long it is there for.
fn keys(server: &Redis) -> Result<Vec<(String, i64)>, Failure> {
    let Reply::List(keys) = server.command(&["KEYS", "*"])? else { return Err("no list".into()) };
    let with_left = |key: &Reply| Ok((key.text()?.to_owned(), number(server, &["PTTL", key.text()?])?));
    keys.iter().map(with_left).collect()
}

async fn all_that_are_made_beside_a_lock_expire() -> Checked {
    const WEEK: i64 = 7 * 24 * 60 * 60 * 1_000;
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let url = format!("{}?layout={layout}", url(&server));
        let (one, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
        let held = one.lock("a")?.acquire().await?;
        let explicit = one.lock("b")?.owned_by(&Owner::explicit("me")?).acquire().await?;
        let several = one.lock_all(["c", "d"])?.acquire().await?;
        let cooldown = one.lock("e")?.at_least(5 * S).acquire().await?;
        cooldown.release().await?;
        let waiting = tokio::spawn(async move { other.lock("a")?.acquire().await.map(|guard| (other, guard)) });
        until_waiting(&server, "a", 1).await?;
        one.break_lock("d", Break::AtLeaseEnd).await?;
        let found = keys(&server)?;
        let mut kinds = BTreeSet::new();
        for (key, left) in &found {
            assert!(*left > 0, "{layout}: {key} is there for ever");
            let kind = key.split_once(':').map_or("the lock", |(kind, _)| kind);
            if kind == "leasehold_fence" {
                assert!(*left > WEEK, "{layout}: a fence is kept for {left} ms only");
            }
            kinds.insert(kind);
        }
        let mut known = BTreeSet::from(["leasehold_fence", "leasehold_heard", "leasehold_line", "the lock"]);
        // Only there several clients share an owner.
        known.extend((layout == "redisson").then_some("leasehold_lock"));
        assert_eq!(kinds, known, "{layout}: docs/redis.md tells of these alone");
        held.release().await?;
        let (other, passed) = waiting.await??;
        passed.release().await?;
        explicit.release().await?;
        // One of the two was broken.
        let _ = several.release().await;
        one.close().await?;
        other.close().await?;
        let only_fences = || {
            let left = keys(&server)?;
            Ok(left.iter().all(|(key, _)| key.starts_with("leasehold_fence:")))
        };
        eventually("only fences are left", only_fences).await?;
    }
    Ok(())
}

async fn the_token_of_redisson_is_raised_where_it_is() -> Checked {
    let server = Redis::start()?;
    let client = crate::scene::client(&server).await?;
    client.lock("without")?.acquire().await?.release().await?;
    assert_eq!(number(&server, &["EXISTS", "redisson_lock_token:{without}"])?, 0);
    // Larger than any clock of the next days: it has to be gone on from.
    let token = guard_fence(&client).await? + 6 * 24 * 3_600 * 8_000_000;
    server.command(&["SET", "redisson_lock_token:{with}", &token.to_string()])?;
    let guard = client.lock("with")?.acquire().await?;
    assert_eq!(guard.fence().get(), token + 1);
    let raised = server.command(&["GET", "redisson_lock_token:{with}"])?;
    assert_eq!(raised, Reply::Text((token + 1).to_string()), "Redisson would give out the same number again");
    assert_eq!(number(&server, &["PTTL", "redisson_lock_token:{with}"])?, -1, "it is Redisson's, and stays");
    Ok(())
}

async fn guard_fence(client: &Client) -> Result<u64, Failure> {
    Ok(client.lock("without")?.acquire().await?.fence().get())
}

/// The rest of a block is taken back only where nothing was granted after it, by Redisson either.
async fn a_token_that_was_raised_meanwhile_stays() -> Checked {
    let server = Redis::start()?;
    let store = store(&server, "redisson")?;
    server.command(&["SET", "redisson_lock_token:{n1}", "1"])?;
    // Its first grant is a jump with one fence.
    let (alone, several) = (asking(1), Acquire { block: 5, ..asking(1) });
    let jumped = first_fence(&store, &alone).await?;
    store.release(giving(&alone, Some(jumped))).await?;
    let first = first_fence(&store, &several).await?;
    let raised = (first.get() + 1_000_000).to_string();
    server.command(&["SET", "redisson_lock_token:{n1}", &raised])?;
    store.release(Release { last_used: Some(first), ..giving(&several, Some(first)) }).await?;
    assert_eq!(server.command(&["GET", "redisson_lock_token:{n1}"])?, Reply::Text(raised));
    Ok(())
}

async fn first_fence(store: &leasehold_redis::Redis, request: &Acquire) -> Result<Fence, Failure> {
    match store.acquire(request.clone()).await?.result {
        Acquired::Granted(grants) => Ok(grants[0].block.first),
        other => Err(format!("not granted: {other:?}").into()),
    }
}

/// What another library takes under the same owner's name is not the broken lock's.
async fn a_broken_lock_leaves_no_holds() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    let ours = client.lock("a")?.owned_by(&Owner::explicit("me")?);
    let held = ours.lease(60 * S).acquire().await?;
    client.break_lock("a", Break::Now).await?;
    assert_eq!(number(&server, &["EXISTS", "a", "leasehold_lock:{a}"])?, 0);
    server.command(&["HSET", "a", "me", "1"])?;
    server.command(&["PEXPIRE", "a", "60000"])?;
    assert_eq!(held.release().await.expect_err("it was broken").kind(), ErrorKind::Lost);
    assert_eq!(number(&server, &["EXISTS", "a"])?, 1, "another library's lock was given back");
    Ok(())
}

async fn a_lock_without_expiry_is_busy_and_stays() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        match layout {
            "plain" => server.command(&["SET", "a", "somebody"])?,
            _ => server.command(&["HSET", "a", "b9a2c5a0-5f0b-4b8e-9d3c-0a1b2c3d4e5f:61", "1"])?,
        };
        assert!(client.lock("a")?.acquire_within(300 * MS).await?.is_busy());
        let status = client.inspect("a").await?;
        assert_eq!((status.holders.len(), status.holders[0].left), (1, None::<Duration>));
        assert_eq!(number(&server, &["PTTL", "a"])?, -1, "it was touched");
        // Once deleted, it is acquired within about a second: no message announces that.
        let waiting = tokio::spawn(async move { client.lock("a")?.acquire().await.map(|guard| (client, guard)) });
        until_waiting(&server, "a", 1).await?;
        server.command(&["DEL", "a"])?;
        let (_client, guard) = waiting.await??;
        assert!(guard.is_valid());
    }
    Ok(())
}

async fn the_plain_layout_is_the_recipe() -> Checked {
    let server = Redis::start()?;
    let client = Client::connect(&format!("{}?layout=plain", url(&server))).await?;
    let guard = client.lock("a")?.lease(60 * S).acquire().await?;
    assert_eq!(server.command(&["TYPE", "a"])?, Reply::Text("string".into()));
    assert!(left(&server, "a")?.is_some_and(|left| left <= 60 * S));
    assert_eq!(server.command(&["SET", "a", "another", "NX", "PX", "1000"])?, Reply::Nil);
    guard.release().await?;
    // The other way round: theirs is busy to us, and is not deleted by a release of ours.
    assert_eq!(server.command(&["SET", "a", "another", "NX", "PX", "60000"])?, Reply::Text("OK".into()));
    assert!(client.lock("a")?.try_acquire().await?.is_busy());
    assert_eq!(server.command(&["GET", "a"])?, Reply::Text("another".into()));
    Ok(())
}

async fn a_look_at_the_server_leaves_none() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        leasehold::examine(&format!("{}?layout={layout}", url(&server))).await?;
        assert_eq!(keys(&server)?, [], "{layout}");
    }
    Ok(())
}
