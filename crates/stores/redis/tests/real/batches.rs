//! Acquires and releases of one moment share a call: that they do, and that none of them feels the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::{Attempt, Client, Error, ErrorKind, Guard};
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use tokio::task::JoinSet;

use crate::scene::{Case, Checked, KEPT_LONG, LIMIT, block_on, client, eventually, number, url};

/// Far more than go at once.
const MANY: usize = 400;
pub(crate) const LAYOUTS: [&str; 2] = ["redisson", "plain"];

pub(crate) const CASES: &[Case] = &[
    ("batches::many_of_one_moment_share_calls", || block_on(many_of_one_moment_share_calls())),
    ("batches::what_is_not_ordinary_hurts_no_other", || block_on(what_is_not_ordinary_hurts_no_other())),
    ("batches::whoever_lacks_rights_for_one_name_gets_the_others", || block_on(rights_for_some_names())),
    ("batches::whoever_waits_is_told_of_each", || block_on(whoever_waits_is_told())),
    ("batches::what_is_dropped_is_taken_back", || block_on(what_is_dropped_is_taken_back())),
    ("batches::fences_go_on_from_larger_ones", || block_on(fences_go_on_from_larger_ones())),
    ("batches::scripts_that_are_forgotten_are_sent_again", || block_on(scripts_that_are_forgotten())),
    ("batches::a_server_that_goes_leaves_nobody_waiting", || block_on(a_server_that_goes())),
];

async fn with(server: &Redis, layout: &str) -> Result<Client, leasehold_faults::Failure> {
    Ok(Client::connect(&format!("{}?layout={layout}&{KEPT_LONG}", url(server))).await?)
}

/// Tries for all of these at once; what came of each.
async fn all(client: &Client, names: impl IntoIterator<Item = String>) -> Vec<(String, Result<Attempt, Error>)> {
    let mut asking = JoinSet::new();
    for name in names {
        let lock = client.lock(&name).expect("a name");
        asking.spawn(async move { (name, lock.try_acquire().await) });
    }
    tokio::time::timeout(LIMIT, asking.join_all()).await.expect("all are answered")
}

async fn release_all(guards: Vec<Guard>) -> Checked {
    let mut giving: JoinSet<_> = guards.into_iter().map(Guard::release).collect();
    while let Some(given) = giving.join_next().await {
        given??;
    }
    Ok(())
}

fn names() -> impl Iterator<Item = String> {
    (0..MANY).map(|at| format!("n{at}"))
}

/// Scripts that were called by clients.
pub(crate) fn calls(server: &Redis) -> Result<usize, leasehold_faults::Failure> {
    calls_of(server, "evalsha")
}

/// How often a command was called, by clients and by scripts.
pub(crate) fn calls_of(server: &Redis, command: &str) -> Result<usize, leasehold_faults::Failure> {
    let said = server.command(&["INFO", "commandstats"])?;
    let (said, head) = (said.text()?, format!("cmdstat_{command}:calls="));
    let calls = said.lines().find_map(|line| line.strip_prefix(&head)?.split(',').next()?.parse().ok());
    Ok(calls.unwrap_or(0))
}

async fn many_of_one_moment_share_calls() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let client = with(&server, layout).await?;
        let mut last = Vec::new();
        for round in 0..3 {
            let before = calls(&server)?;
            let mut guards = Vec::new();
            for (name, taken) in all(&client, names()).await {
                guards.push(taken?.granted().ok_or(name)?);
            }
            guards.sort_by(|one, other| one.name().cmp(other.name()));
            let fences: Vec<_> = guards.iter().map(Guard::fence).collect();
            let grew = fences.iter().zip(&last).all(|(now, before)| now > before);
            assert!(grew, "{layout}: fences went back in round {round}");
            // The holder is reported as that of a lock that was acquired alone.
            let first = guards[0].name().clone();
            let held = client.inspect(first.as_str()).await?.holders;
            assert_eq!(held.len(), 1, "{layout}");
            assert_eq!((held[0].fence, held[0].pid), (Some(fences[0]), Some(std::process::id())), "{layout}");
            let since = held[0].since.expect("it is known").elapsed()?;
            assert!(since < LIMIT, "{layout}: it is held for {since:?}");
            last = fences;
            release_all(guards).await?;
            assert!(client.inspect(first.as_str()).await?.holders.is_empty(), "{layout}");
            let calls = calls(&server)? - before;
            // The first ones find no script.
            assert!(round == 0 || calls < MANY, "{layout}: {calls} calls for {MANY} takes and releases");
        }
        let held: Vec<String> = names().collect();
        let held: Vec<&str> = ["EXISTS"].into_iter().chain(held.iter().map(String::as_str)).collect();
        assert_eq!(number(&server, &held)?, 0, "{layout}");
    }
    Ok(())
}

async fn what_is_not_ordinary_hurts_no_other() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let (client, other) = (with(&server, layout).await?, with(&server, layout).await?);
        let held = other.lock("n3")?.acquire().await?;
        server.command(&["RPUSH", "n5", "no lock"])?;
        server.command(&["SET", "leasehold_fence:{n7}", "no fence"])?;
        server.command(&["RPUSH", "leasehold_fence:{n8}", "nor this"])?;
        server.command(&["RPUSH", "leasehold_line:{n9}", "nor that"])?;
        for _ in 0..3 {
            let mut guards = Vec::new();
            for (name, taken) in all(&client, names()).await {
                match (name.as_str(), taken) {
                    ("n3", taken) => assert!(taken?.is_busy(), "{layout}"),
                    ("n5" | "n7" | "n8", Err(error)) => assert_eq!(error.kind(), ErrorKind::Unfit, "{layout}: {error}"),
                    (_, taken) => guards.push(taken?.granted().ok_or(name)?),
                }
            }
            assert_eq!(guards.len(), MANY - 4, "{layout}");
            release_all(guards).await?;
        }
        assert_eq!(server.command(&["GET", "leasehold_fence:{n7}"])?.text()?, "no fence", "{layout}");
        assert_eq!(number(&server, &["LLEN", "leasehold_fence:{n8}"])?, 1, "{layout}");
        assert_eq!(number(&server, &["LLEN", "n5"])?, 1, "{layout}: it was left as it was");
        held.release().await?;
        assert_eq!(number(&server, &["EXISTS", "n3", "n9", "n11"])?, 0, "{layout}");
    }
    Ok(())
}

async fn rights_for_some_names() -> Checked {
    let rights = "user default on nopass ~n* ~*:{n* &* +@all";
    let server = Redis::with(Settings::default().users(rights))?;
    let client = client(&server).await?;
    for _ in 0..2 {
        let mut guards = Vec::new();
        for (name, taken) in all(&client, names().chain(["forbidden".to_owned()])).await {
            match taken {
                Err(error) => assert_eq!((name.as_str(), error.kind()), ("forbidden", ErrorKind::Unfit), "{error}"),
                taken => guards.push(taken?.granted().ok_or(name)?),
            }
        }
        assert_eq!(guards.len(), MANY);
        release_all(guards).await?;
    }
    Ok(())
}

/// Releases in a batch notify the first waiter of each lock, as a single one does, and report the waiters.
async fn whoever_waits_is_told() -> Checked {
    for options in ["layout=redisson", "layout=plain", "layout=redisson&prefix=app1:"] {
        let server = Redis::start()?;
        let of = async || Client::connect(&format!("{}?{options}", url(&server))).await;
        let (holder, other) = (of().await?, of().await?);
        let mut guards = Vec::new();
        for (name, taken) in all(&holder, names()).await {
            guards.push(taken?.granted().ok_or(name)?);
        }
        let mut waiting = JoinSet::new();
        for name in names().step_by(2) {
            let lock = other.lock(&name)?;
            waiting.spawn(async move { lock.acquire().await });
        }
        let in_line = || Ok(server.command(&["KEYS", "*leasehold_line:*"])?.texts()?.len() == MANY / 2);
        eventually("all stand in line", in_line).await?;
        let mut hears = redis::Client::open(url(&server))?.get_connection()?;
        hears.set_read_timeout(Some(LIMIT))?;
        let mut hints = hears.as_pubsub();
        hints.psubscribe("*leasehold_hint:*")?;
        release_all(guards).await?;
        // Each second they ask by themselves, and on a busy machine many have the lock by that. One hint a call would be far fewer.
        let mut told = BTreeSet::new();
        while told.len() < MANY / 8 {
            let hint = hints.get_message();
            let hint = hint.map_err(|error| format!("{options}: only {} are told: {error}", told.len()))?;
            told.insert(hint.get_payload::<String>()?);
        }
        let mut got = Vec::new();
        while let Some(granted) = tokio::time::timeout(LIMIT, waiting.join_next()).await? {
            got.push(granted??);
        }
        release_all(got).await?;
    }
    Ok(())
}

/// An acquire that is dropped while it waits for its turn, while it is under way, or when it is answered, leaves nothing held.
async fn what_is_dropped_is_taken_back() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let client = with(&server, layout).await?;
        for round in 0..20_u32 {
            let mut asking = JoinSet::new();
            for (at, name) in names().enumerate() {
                let lock = client.lock(&name)?;
                let patience = Duration::from_micros((at as u64 * 7919 + u64::from(round) * 104_729) % 8_000);
                asking.spawn(async move {
                    tokio::time::timeout(patience, lock.acquire()).await.is_ok_and(|taken| taken.is_ok())
                });
            }
            tokio::time::timeout(LIMIT, asking.join_all()).await?;
        }
        // Nothing of this is waited out.
        let held: Vec<String> = names().collect();
        let held: Vec<&str> = ["EXISTS"].into_iter().chain(held.iter().map(String::as_str)).collect();
        eventually("nothing is held", || Ok(number(&server, &held)? == 0)).await?;
    }
    Ok(())
}

async fn fences_go_on_from_larger_ones() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let client = with(&server, layout).await?;
        // As a clock leaves them that was days ahead.
        let ahead = client.lock("now")?.acquire().await?.fence().get() + 6 * 24 * 3_600 * 8_000_000;
        for at in (0..MANY).step_by(3) {
            server.command(&[
                "SET",
                &format!("leasehold_fence:{{n{at}}}"),
                &(ahead + at as u64).to_string(),
                "PX",
                "600000",
            ])?;
        }
        let mut last = BTreeMap::new();
        for _ in 0..3 {
            let mut guards = Vec::new();
            for (name, taken) in all(&client, names()).await {
                let guard = taken?.granted().ok_or_else(|| name.clone())?;
                let at: usize = name[1..].parse()?;
                let least = if at.is_multiple_of(3) { ahead + at as u64 } else { 0 };
                assert!(guard.fence().get() > last.get(&at).copied().unwrap_or(least), "{layout}: {name}");
                last.insert(at, guard.fence().get());
                guards.push(guard);
            }
            release_all(guards).await?;
        }
    }
    Ok(())
}

async fn scripts_that_are_forgotten() -> Checked {
    let server = Redis::start()?;
    let client = client(&server).await?;
    for _ in 0..5 {
        server.command(&["SCRIPT", "FLUSH"])?;
        let mut guards = Vec::new();
        for (name, taken) in all(&client, names()).await {
            guards.push(taken?.granted().ok_or(name)?);
        }
        server.command(&["SCRIPT", "FLUSH"])?;
        release_all(guards).await?;
    }
    Ok(())
}

/// Each acquire learns in time that the server is gone, or that its earlier request is still being withdrawn; and all
/// continue when it is back.
async fn a_server_that_goes() -> Checked {
    let told = |(name, taken): (String, Result<Attempt, Error>)| match taken {
        Ok(attempt) => assert!(attempt.is_busy(), "{name} was granted by nobody"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{name}: {error}"),
    };
    let mut server = Redis::start()?;
    let client = client(&server).await?;
    for (name, taken) in all(&client, names()).await {
        taken?.granted().ok_or(name)?.release().await?;
    }
    server.stop()?;
    all(&client, names()).await.into_iter().for_each(told);
    server.go_on()?;
    server.kill()?;
    all(&client, names()).await.into_iter().for_each(told);
    server.restart_empty()?;
    let mut asking: JoinSet<_> = names()
        .map(|name| client.lock(&name).expect("a name"))
        .map(|lock| async move { lock.acquire().await })
        .collect();
    let mut guards = Vec::new();
    while let Some(taken) = tokio::time::timeout(LIMIT, asking.join_next()).await? {
        guards.push(taken??);
    }
    release_all(guards).await
}
