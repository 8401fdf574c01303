//! Keys behind a prefix, for a user without any other rights.

use std::time::Instant;

use leasehold::{Break, Client, ErrorKind, Owner};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::scene::{Case, Checked, LIMIT, S, block_on, eventually, number, url};

pub(crate) const CASES: &[Case] = &[
    ("prefix::whoever_may_touch_nothing_else_keeps_locks", || block_on(whoever_may_touch_nothing_else_keeps_locks())),
    ("prefix::a_waiter_behind_it_is_told", || block_on(a_waiter_behind_it_is_told())),
    ("prefix::prefixes_are_apart", || block_on(prefixes_are_apart())),
    ("prefix::the_lock_is_what_others_make", || block_on(the_lock_is_what_others_make())),
];

const LAYOUTS: [&str; 2] = ["redisson", "plain"];
const PREFIXES: [&str; 3] = ["app1:", "{app}", "a*[b]"];

/// A server with a user `app` whose keys and channels are limited to this prefix.
fn server_for(prefix: &str) -> Result<Redis, Failure> {
    let pattern = prefix.replace('*', "\\*").replace('[', "\\[").replace(']', "\\]");
    let lines = format!("user default off\nuser app on nopass ~{pattern}* resetchannels &{pattern}* +@all");
    Redis::with(Settings::default().users(&lines))
}

async fn client(server: &Redis, layout: &str, prefix: &str) -> Result<Client, Failure> {
    Ok(Client::connect(&format!("redis://app@{}?layout={layout}&prefix={prefix}", server.address())).await?)
}

fn all_behind(server: &Redis, prefix: &str) -> Checked {
    for asked in [&["KEYS", "*"][..], &["PUBSUB", "CHANNELS"]] {
        let found = server.command(asked)?;
        let found = found.texts()?;
        assert!(found.iter().all(|key| key.starts_with(prefix)), "not behind {prefix:?}: {found:?}");
    }
    Ok(())
}

async fn whoever_may_touch_nothing_else_keeps_locks() -> Checked {
    for (layout, prefix) in LAYOUTS.into_iter().flat_map(|layout| PREFIXES.map(|prefix| (layout, prefix))) {
        let server = server_for(prefix)?;
        let client = client(&server, layout, prefix).await?;
        let held = client.lock("a")?.keep(3 * S).acquire().await?;
        let tagged = client.lock("{a}")?.acquire().await?;
        let explicit = client.lock("b")?.owned_by(&Owner::explicit("me")?).acquire().await?;
        let several = client.lock_all(["c", "d"])?.acquire().await?;
        client.lock("e")?.at_least(60 * S).acquire().await?.release().await?;
        client.break_lock("d", Break::AtLeaseEnd).await?;
        let listed = client.list("").await?;
        let names: Vec<&str> = listed.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e", "{a}"], "{layout} behind {prefix}");
        let listed = client.list("{").await?;
        assert_eq!((listed.len(), listed[0].name.as_str()), (1, "{a}"));
        assert_eq!(client.inspect("a").await?.holders.len(), 1);
        all_behind(&server, prefix)?;
        // It is renewed there as well.
        tokio::time::sleep(4 * S).await;
        assert!(held.is_valid());
        held.release().await?;
        tagged.release().await?;
        explicit.release().await?;
        // One of the two was broken.
        let _ = several.release().await;
        client.break_lock("d", Break::Now).await?;
        client.break_lock("e", Break::Now).await?;
        client.close().await?;
        let fences = format!("{prefix}leasehold_fence:");
        eventually("only fences are left", || {
            let left = server.command(&["KEYS", "*"])?;
            Ok(left.texts()?.iter().all(|key| key.starts_with(&fences)))
        })
        .await?;
        let refused = server.command(&["ACL", "LOG"])?;
        assert_eq!(refused, leasehold_faults::servers::resp::Reply::List(Vec::new()), "it tried what it may not");
    }
    Ok(())
}

async fn a_waiter_behind_it_is_told() -> Checked {
    for layout in LAYOUTS {
        let server = server_for("app1:")?;
        let (one, other) = (client(&server, layout, "app1:").await?, client(&server, layout, "app1:").await?);
        let mut quickest = LIMIT;
        for _ in 0..5 {
            let held = one.lock("a")?.acquire().await?;
            let waiter = other.lock("a")?;
            let waiting = tokio::spawn(async move {
                let guard = waiter.acquire().await?;
                let at = Instant::now();
                guard.release().await.map(|()| at)
            });
            let line = "app1:leasehold_line:{app1:a}";
            eventually("it waits", || Ok(number(&server, &["ZCARD", line])? == 1)).await?;
            // Long enough for the subscription, and far from the next look.
            eventually("it listens", || Ok(!server.command(&["PUBSUB", "CHANNELS"])?.texts()?.is_empty())).await?;
            all_behind(&server, "app1:")?;
            let released = Instant::now();
            held.release().await?;
            quickest = quickest.min(waiting.await??.duration_since(released));
        }
        // Without a hint it would ask nine tenths of a second after it began to wait.
        assert!(quickest < S / 2, "{layout}: nobody told it, it asked by itself after {quickest:?}");
    }
    Ok(())
}

async fn prefixes_are_apart() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let of =
            async |prefix: &str| Client::connect(&format!("{}?layout={layout}&prefix={prefix}", url(&server))).await;
        let (bare, one, other) = (of("").await?, of("app1:").await?, of("app2:").await?);
        let (a, b, c) =
            (bare.lock("a")?.acquire().await?, one.lock("a")?.acquire().await?, other.lock("a")?.acquire().await?);
        assert!(bare.lock("app1:a")?.try_acquire().await?.is_busy(), "it is the same key");
        for client in [&one, &other] {
            let listed = client.list("").await?;
            assert_eq!((listed.len(), listed[0].name.as_str()), (1, "a"), "{layout}");
        }
        one.break_lock("a", Break::Now).await?;
        assert!(a.is_valid() && c.is_valid());
        drop(b);
        // A name behind a prefix may not stand where something of another lock stands.
        let error = one.lock("leasehold_fence:{app1:a}")?.acquire().await.expect_err("it is a fence's key");
        assert_eq!(error.kind(), ErrorKind::BadArgument);
    }
    Ok(())
}

async fn the_lock_is_what_others_make() -> Checked {
    let server = Redis::start()?;
    for (layout, kind) in [("redisson", "hash"), ("plain", "string")] {
        let client = Client::connect(&format!("{}?layout={layout}&prefix={layout}:", url(&server))).await?;
        let guard = client.lock("a")?.acquire().await?;
        let found = server.command(&["TYPE", &format!("{layout}:a")])?;
        assert_eq!(found.text()?, kind);
        guard.release().await?;
        // Another program's lock at that key is busy to us.
        match kind {
            "hash" => server.command(&["HSET", "redisson:a", "b9a2c5a0-5f0b-4b8e-9d3c-0a1b2c3d4e5f:61", "1"])?,
            _ => server.command(&["SET", "plain:a", "somebody"])?,
        };
        assert!(client.lock("a")?.try_acquire().await?.is_busy());
    }
    Ok(())
}
