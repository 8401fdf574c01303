//! Values of other programs, and damaged records, at the keys beside a lock: nothing writes to them, and an operator can repair them.

use leasehold::port::BreakOptions;
use leasehold::{Break, Client, ErrorKind, Owner};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;

use crate::scene::{Case, Checked, MS, S, block_on, number, url};

pub(crate) const CASES: &[Case] = &[
    ("beside::no_value_of_another_program_is_touched", || block_on(untouched())),
    ("beside::a_value_that_can_be_no_fence_is_not_deleted", || block_on(no_fence())),
    ("beside::a_lock_of_another_prefix_is_not_deleted", || block_on(another_prefix())),
    ("beside::a_large_string_is_not_read_whole", || block_on(large_strings())),
    ("beside::a_foreign_birth_is_unfit", || block_on(a_foreign_birth())),
    ("beside::a_damaged_record_is_shown_and_repaired", || block_on(damaged_records())),
];

const RECORD: &str = "leasehold_lock:{x}";

/// A digest of what stands at a key, and how long it is there for.
fn seen(server: &Redis, key: &str) -> Result<(String, i64), Failure> {
    let digest = "return redis.sha1hex(redis.call('DUMP', KEYS[1]) or '')";
    Ok((server.command(&["EVAL", digest, "1", key])?.text()?.to_owned(), number(server, &["PTTL", key])?))
}

async fn untouched() -> Checked {
    let server = Redis::start()?;
    let me = Owner::explicit("me")?;
    for layout in ["redisson", "plain"] {
        let at = format!("{}?layout={layout}", url(&server));
        // Two clients: a task that waits behind its own client is not put on the waitlist.
        let (client, waiter) = (Client::connect(&at).await?, Client::connect(&at).await?);
        for key in [RECORD, "leasehold_line:{x}", "leasehold_heard:{x}"] {
            for (word, rest) in [
                ("SET", &["hello"][..]),
                ("SET", &[""]),
                ("HSET", &["a", "1"]),
                ("RPUSH", &["a"]),
                ("ZADD", &["1", "a", "2", ""]),
            ] {
                server.command(&["FLUSHALL"])?;
                server.command(&[&[word, key], rest].concat())?;
                let (what, before) = (format!("{layout}: {word} {key} {rest:?}"), seen(&server, key)?);
                let held = client.lock("x")?.acquire().await?;
                for waited in [
                    waiter.lock("x")?.acquire_within(50 * MS).await?,
                    waiter.lock("x")?.owned_by(&me).acquire_within(50 * MS).await?,
                ] {
                    assert!(waited.granted().is_none(), "{what}");
                }
                assert_eq!(seen(&server, key)?, before, "{what}: a wait");
                held.release().await?;
                assert_eq!(seen(&server, key)?, before, "{what}: a plain lock");
                let shared = client.lock("x")?.owned_by(&me).lease(60 * S).try_acquire().await;
                match shared {
                    Ok(shared) => shared.granted().ok_or("it is busy")?.release().await?,
                    Err(error) => {
                        assert!(key == RECORD && layout == "redisson", "{what}: {error}");
                        assert_eq!(error.kind(), ErrorKind::Unfit, "{what}: {error}");
                        assert!(error.to_string().contains(RECORD), "{what}: {error}");
                    }
                }
                assert_eq!(seen(&server, key)?, before, "{what}: a shared owner");
                client.break_lock("x", Break::Now).await?;
                assert_eq!(seen(&server, key)?, before, "{what}: a break");
                client.break_lock("x", BreakOptions::from(Break::Now).foreign().reset_fence()).await?;
                assert_eq!(seen(&server, key)?, before, "{what}: a break that resets the fences");
                assert_eq!(number(&server, &["EXISTS", "x"])?, 0, "{what}");
            }
        }
    }
    Ok(())
}

async fn another_prefix() -> Checked {
    let server = Redis::start()?;
    let name = "p:leasehold_lock:{p:a}";
    let victim = Client::connect(&url(&server)).await?.lock(name)?.acquire().await?;
    let neighbour = Client::connect(&format!("{}?prefix=p:", url(&server))).await?;
    let held = neighbour.lock("a")?.acquire().await?;
    assert!(neighbour.lock("a")?.acquire_within(50 * MS).await?.granted().is_none());
    held.release().await?;
    neighbour.break_lock("a", BreakOptions::from(Break::Now).reset_fence()).await?;
    assert_eq!(number(&server, &["EXISTS", name])?, 1, "another lock is gone");
    victim.release().await?;
    Ok(())
}

async fn no_fence() -> Checked {
    let server = Redis::start()?;
    let key = "leasehold_fence:{x}";
    for layout in ["redisson", "plain"] {
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for making in [&["RPUSH", key, "a"][..], &["HSET", key, "a", "1"], &["ZADD", key, "1", "a"]] {
            for how in [Break::AtLeaseEnd, Break::Now] {
                server.command(&["FLUSHALL"])?;
                let held = client.lock("x")?.lease(600 * S).acquire().await?;
                server.command(&["DEL", key])?;
                server.command(making)?;
                let before = (seen(&server, key)?, seen(&server, "x")?.0);
                let error = client.break_lock("x", BreakOptions::from(how).reset_fence()).await.expect_err("deleted");
                assert_names_the_key(&error, key);
                let after = (seen(&server, key)?, seen(&server, "x")?.0);
                assert_eq!(after, before, "{layout} {making:?} {how:?}");
                held.release().await?;
                client.break_lock("x", how).await?;
                for tried in
                    [client.lock_all(["x"])?.try_acquire().await, client.lock_all(["w", "x"])?.try_acquire().await]
                {
                    assert_names_the_key(&tried.expect_err("it has no fence"), key);
                }
                assert_eq!(seen(&server, key)?, before.0, "{layout} {making:?} {how:?}: without reset_fence");
            }
        }
    }
    Ok(())
}

/// No command of leasehold deletes such a value, so no hint may send a user there.
fn assert_names_the_key(error: &leasehold::Error, key: &str) {
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    assert!(error.message().contains(key), "{error}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("server's own tools") && !hint.contains("reset_fence"), "{error}: {hint}");
}

/// A string of any size at the keys beside a lock costs the server no copy of it.
async fn large_strings() -> Checked {
    const LARGE: i64 = 64 << 20;
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        let held = client.lock("held")?.acquire().await?;
        for key in ["leasehold_fence:{x}", "redisson_lock_token:{x}", "leasehold_fence:{held}"] {
            server.command(&["SETRANGE", key, &(LARGE - 1).to_string(), "x"])?;
        }
        let before = number_in(server.command(&["INFO", "memory"])?.text()?, "used_memory_peak")?;
        assert_eq!(
            client.lock("x")?.try_acquire().await.expect_err("it is no fence").kind(),
            ErrorKind::Unfit,
            "{layout}"
        );
        held.release().await.ok();
        client.break_lock("x", BreakOptions::from(Break::Now).reset_fence()).await?;
        client.lock("x")?.try_acquire().await?.granted().ok_or("it is busy")?.release().await?;
        let after = number_in(server.command(&["INFO", "memory"])?.text()?, "used_memory_peak")?;
        assert!(after - before < LARGE / 2, "{layout}: {before} before, {after} after");
    }
    Ok(())
}

fn number_in(info: &str, field: &str) -> Result<i64, Failure> {
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(line.ok_or("no such field")?.trim().parse()?)
}

async fn a_foreign_birth() -> Checked {
    let servers = [Redis::start()?, Redis::start()?, Redis::start()?];
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    for quarantine in ["0s", "1s"] {
        let at = format!("redlock://{}?quarantine={quarantine}&limit=5s&timeout=10s", places.join(","));
        for making in [["SET", "leasehold_birth", "note 1 2 3"], ["RPUSH", "leasehold_birth", "a"]] {
            for server in &servers {
                server.command(&["FLUSHALL"])?;
                server.command(&making)?;
            }
            let before = seen(&servers[0], "leasehold_birth")?;
            let client = Client::connect(&at).await?;
            let error = client.lock("x")?.try_acquire().await.expect_err("it is granted");
            assert_eq!(error.kind(), ErrorKind::Unfit, "{making:?}: {error}");
            assert_eq!(seen(&servers[0], "leasehold_birth")?, before, "{making:?}");
        }
    }
    Ok(())
}

async fn damaged_records() -> Checked {
    let server = Redis::start()?;
    let client = Client::connect(&url(&server)).await?;
    let me = Owner::explicit("me")?;
    let other = client.lock("other")?.acquire().await?;
    for record in [
        "{'sme'}",
        "{'sme', 8, 1, 9, 9, '', 'text', {}, 0}",
        "{'sme', 8, 1, 9, 9, '', {'a', 'b', 'c'}, {}, 0}",
        "{'sme', 8, 1, 9, 1/0, '', {}, {}, 0}",
        "{'sme', 8, 1, 1/0, 9, '', {}, {}, 0}",
        "{'sme', 8, 1, 0/0, 0/0, '', {}, {}, 0}",
        "{'sme', 8, 1, 9, 9, '', {'a', 1/0}, {}, 1/0}",
        "{'sme', -8, 1, 9, 9, '', {}, {}, 0}",
        "{'sme', true, 1, 9, 9, {}, {}, {}, 'x'}",
    ] {
        let plant = format!("redis.call('SET', KEYS[1], cmsgpack.pack({record}))");
        server.command(&["HSET", "x", "me", "1"])?;
        server.command(&["PEXPIRE", "x", "600000"])?;
        server.command(&["EVAL", &plant, "1", RECORD])?;
        let shown = client.inspect("x").await?;
        assert_eq!(shown.holders.len(), 1, "{record}");
        assert!(shown.holders[0].fence.is_none() && shown.holders[0].since.is_none(), "{record}: {shown:?}");
        assert!(client.lock("x")?.owned_by(&me).try_acquire().await?.granted().is_none(), "{record}");
        server.command(&["DEL", "x"])?;
        let error = client.lock("x")?.owned_by(&me).try_acquire().await.expect_err("there is no record");
        assert_eq!(error.kind(), ErrorKind::Unfit, "{record}: {error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("reset_fence")), "{record}: {error}");
        server.command(&["HSET", "x", "me", "1"])?;
        client.break_lock("x", BreakOptions::from(Break::Now).reset_fence()).await?;
        client.lock("x")?.owned_by(&me).try_acquire().await?.granted().ok_or("it is busy")?.release().await?;
    }
    other.release().await?;
    Ok(())
}
