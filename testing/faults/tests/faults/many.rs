//! Very many names, on one server.

use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Outcome};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::TESTER;
use leasehold_faults::servers::resp::Reply;
use tokio::task::JoinSet;

use crate::{Case, Checked, Layout, url, wait};

pub(crate) const CASES: &[Case] =
    &[("names_waited_for_at_once", names_waited_for_at_once), ("names_used_once", names_used_once)];

/// How many names are waited for at once, and how many are used once: few enough for a build that is not optimized.
const WAITED_FOR: usize = 1_000;
const USED_ONCE: usize = 5_000;
/// Set for other numbers of them, with `cargo test --release`: ten thousand that are waited for, a million that are used once.
const NAMES: &str = "LEASEHOLD_NAMES";
/// How many are under way at a time.
const AT_A_TIME: usize = 256;
/// A client has one for callers, and one of the keeper's own.
const CONNECTIONS: usize = 2;
/// How late something may be that must happen.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(20);

/// Keys that do not begin so; keys that never expire; the longest time in days until one does.
const LEFT: &str = "
    local others, forever, days, at = 0, 0, 0, '0'
    repeat
        local page = redis.call('SCAN', at, 'COUNT', 1000)
        at = page[1]
        for _, key in ipairs(page[2]) do
            local left = redis.call('TTL', key)
            if left == -1 then forever = forever + 1 end
            days = math.max(days, left / 86400)
            if string.sub(key, 1, #ARGV[1]) ~= ARGV[1] then others = others + 1 end
        end
    until at == '0'
    return {others, forever, math.ceil(days)}";

fn names_waited_for_at_once(layout: Layout) -> Checked {
    wait(async {
        let names = many(WAITED_FOR);
        let server = Redis::start()?;
        let (holder, waiter) = (connect(&server, layout).await?, connect(&server, layout).await?);
        let began = Instant::now();
        let held = all(&holder, names).await?;
        let took = began.elapsed();
        let began = Instant::now();
        let waiting = tokio::spawn({
            let waiter = waiter.clone();
            async move { all(&waiter, names).await }
        });
        let in_line = || server.command(&["EVAL", "return #redis.call('KEYS', 'leasehold_line:*')", "0"])?.number();
        if let Err(error) = eventually("all wait", async || Ok(usize::try_from(in_line()?)? == names)).await {
            let stats = server.command(&["INFO", "stats"])?;
            let made = stats.text()?.lines().find(|line| line.starts_with("total_connections_received")).unwrap_or("");
            return Err(format!("{error}: {} of {names} names, {made}", in_line()?).into());
        }
        println!("{names} taken in {took:?}, waited for after {:?}", began.elapsed());
        let clients = server.command(&["CLIENT", "LIST"])?;
        let ours = clients.text()?.lines().filter(|client| !client.contains(TESTER)).count();
        assert!(ours <= 2 * CONNECTIONS, "{}", clients.text()?);
        let began = Instant::now();
        let fences: Vec<u64> = held.iter().map(|guard| guard.fence().get()).collect();
        for guard in held {
            guard.release().await?;
        }
        let next = tokio::time::timeout(PATIENCE, waiting).await???;
        println!("handed over in {:?}", began.elapsed());
        assert!(next.iter().zip(&fences).all(|(guard, fence)| guard.fence().get() > *fence), "a fence did not grow");
        assert!(next.iter().all(Guard::is_valid), "one was lost");
        drop(next);
        waiter.close().await?;
        holder.close().await?;
        nothing_is_left(&server).await
    })
}

/// Takes all names, and has them in their order.
async fn all(client: &Client, names: usize) -> Result<Vec<Guard>, Failure> {
    let mut tasks = JoinSet::new();
    for number in 0..names {
        let lock = client.lock(format!("name {number}"))?;
        tasks.spawn(async move { lock.acquire().await.map(|guard| (number, guard)) });
    }
    let mut guards = Vec::with_capacity(names);
    while let Some(done) = tasks.join_next().await {
        guards.push(done??);
    }
    guards.sort_by_key(|(number, _)| *number);
    Ok(guards.into_iter().map(|(_, guard)| guard).collect())
}

fn names_used_once(layout: Layout) -> Checked {
    wait(async {
        let names = many(USED_ONCE);
        let server = Redis::start()?;
        let client = connect(&server, layout).await?;
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..AT_A_TIME {
            let client = client.clone();
            tasks.spawn(async move {
                let mut unknown = 0;
                for number in (task..names).step_by(AT_A_TIME) {
                    let guard = client.lock(format!("name {number}"))?.acquire().await?;
                    match guard.release().await {
                        // The client goes on giving it back; that must leave nothing either.
                        Err(error) if error.outcome() == Outcome::Unknown => unknown += 1,
                        released => released?,
                    }
                }
                Ok::<u32, leasehold::Error>(unknown)
            });
        }
        let mut unknown = 0;
        while let Some(done) = tasks.join_next().await {
            unknown += done??;
        }
        let took = began.elapsed();
        nothing_is_left(&server).await?;
        eventually("the client has forgotten them", async || Ok(client.in_use() == 0)).await?;
        let memory = server.command(&["INFO", "memory"])?;
        let used = memory.text()?.lines().find(|line| line.starts_with("used_memory_human")).map(str::to_owned);
        println!("{names} names in {took:?}, {unknown} releases unknown at first, {used:?}");
        Ok(())
    })
}

fn many(names: usize) -> usize {
    std::env::var(NAMES).ok().and_then(|names| names.parse().ok()).unwrap_or(names)
}

async fn connect(server: &Redis, layout: Layout) -> Result<Client, Failure> {
    // A machine that is busy with this much answers later than usual.
    Ok(Client::connect(&format!("{}&timeout=30s", url(server.address(), layout))).await?)
}

/// No lock, no waiter; nothing that stays for ever, and the fences for days, not for weeks.
async fn nothing_is_left(server: &Redis) -> Checked {
    let mut left = Vec::new();
    let only_fences = async || {
        let reply = server.command(&["EVAL", LEFT, "0", "leasehold_fence:"])?;
        let Reply::List(numbers) = reply else { return Err("no list".into()) };
        left = numbers.iter().map(|number| number.number()).collect::<Result<Vec<i64>, _>>()?;
        Ok(left[0] == 0)
    };
    eventually("nothing but fences is left", only_fences).await?;
    assert_eq!(left[1], 0, "{} keys never expire", left[1]);
    assert!((7..=9).contains(&left[2]), "the last fence expires after {} days", left[2]);
    Ok(())
}

/// Waits for a condition without an event.
async fn eventually(what: &str, mut happened: impl AsyncFnMut() -> Result<bool, Failure>) -> Checked {
    let began = Instant::now();
    while !happened().await? {
        if began.elapsed() > PATIENCE {
            return Err(format!("{what}: not within {PATIENCE:?}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
