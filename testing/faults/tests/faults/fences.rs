//! What becomes of fences where many tasks hand one lock on and the server forgets it, or its clock is set, at the moment of a grant.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use leasehold::{Client, Event, FenceGate, How};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use tokio::task::JoinSet;

use crate::{Case, Checked, Layout, url, wait};

pub(crate) const CASES: &[Case] = &[("no_fence_is_handed_out_twice", no_fence_is_handed_out_twice)];

/// Rounds of each kind, and tasks in a round: few, for a build that is not optimized.
const ROUNDS: u64 = 2;
const TASKS: usize = 300;
/// Set for more of them, with `cargo test --release`: `LEASEHOLD_ROUNDS=20 LEASEHOLD_TASKS=3000`.
const ROUNDS_SET: &str = "LEASEHOLD_ROUNDS";
const TASKS_SET: &str = "LEASEHOLD_TASKS";
const CLIENTS: usize = 3;
/// Grants by the server before it forgets.
const GRANTS_BEFORE: u64 = 6;
/// Grants by the server after that.
const GRANTS_AFTER: u64 = 12;
/// How many of the numbers that came twice are printed.
const SHOWN: usize = 5;
/// How late something may be that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happens to the server, at the moment of a grant.
#[derive(Clone, Copy, Debug)]
struct Blow {
    flushed: bool,
    /// How far its clock is set forward, or back, in seconds.
    step: i64,
    clock_first: bool,
}

const HOUR: i64 = 3_600;

fn blows() -> Vec<Blow> {
    let mut blows = vec![Blow { flushed: true, step: 0, clock_first: false }; 4];
    for step in [3, -3, 5 * HOUR, -5 * HOUR] {
        blows.push(Blow { flushed: false, step, clock_first: true });
        blows.extend([true, false].map(|clock_first| Blow { flushed: true, step, clock_first }));
    }
    blows
}

/// A grant, as the client reports it.
struct GrantRecord {
    client: usize,
    fence: u64,
    how: How,
    at: Instant,
    /// When the store was asked for the lease.
    asked: Instant,
}

impl GrantRecord {
    /// For people: with its times, counted from the blow.
    fn since(&self, blow: Instant) -> String {
        let from_blow = |moment: Instant| match moment.checked_duration_since(blow) {
            Some(after) => format!("{after:?} after"),
            None => format!("{:?} before", blow.duration_since(moment)),
        };
        let Self { client, fence, how, at, asked } = self;
        format!(
            "{fence} to client {client} ({how:?}), asked {}, granted {} the blow",
            from_blow(*asked),
            from_blow(*at)
        )
    }
}

/// What a round saw.
#[derive(Default)]
struct Seen {
    told: Mutex<Vec<GrantRecord>>,
    asked: Mutex<[Option<Instant>; CLIENTS]>,
    by_store: AtomicU64,
    /// Writes that the fenced resource let through.
    written: Mutex<Vec<(u64, String)>>,
    refused: AtomicU64,
}

#[derive(Default)]
struct Counts {
    rounds: u64,
    grants: usize,
    twice: usize,
    smaller: usize,
    smaller_late: usize,
    let_through: usize,
    refused: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, grants, twice, smaller, smaller_late, let_through, refused } = self;
        write!(
            f,
            "{rounds} rounds, {grants} grants: {twice} fences handed out twice, {smaller} smaller than one before (of leases asked for \
             after the blow: {smaller_late}); stale writes let through: {let_through}, refused: {refused}"
        )
    }
}

fn no_fence_is_handed_out_twice(layout: Layout) -> Checked {
    Redis::clock_is_settable()?;
    let server = Redis::with(Settings::default().settable_clock())?;
    let (rounds, tasks) = (number(ROUNDS_SET, ROUNDS)?, number(TASKS_SET, TASKS as u64)? as usize);
    let mut whole = Counts::default();
    for (kind, blow) in blows().into_iter().enumerate() {
        let mut counts = Counts::default();
        for round in 0..rounds {
            let name = format!("hot-{kind}-{round}");
            server.set_clock(0)?;
            wait(one_round(&server, layout, &name, tasks, blow, &mut counts))?;
        }
        println!("{layout} {blow:?}: {counts}");
        whole.rounds += counts.rounds;
        whole.grants += counts.grants;
        whole.twice += counts.twice;
        whole.smaller += counts.smaller;
        whole.smaller_late += counts.smaller_late;
        whole.let_through += counts.let_through;
        whole.refused += counts.refused;
    }
    println!("{layout}, all: {whole}");
    if whole.twice + whole.smaller_late + whole.let_through > 0 {
        return Err(whole.to_string().into());
    }
    Ok(())
}

fn number(variable: &str, usual: u64) -> Result<u64, Failure> {
    Ok(std::env::var(variable).ok().map(|set| set.parse()).transpose()?.unwrap_or(usual))
}

async fn one_round(
    server: &Redis,
    layout: Layout,
    name: &str,
    tasks: usize,
    blow: Blow,
    counts: &mut Counts,
) -> Checked {
    let (seen, gate, ended) = (Arc::new(Seen::default()), Arc::new(FenceGate::new()), Arc::new(AtomicBool::new(false)));
    let (strike, struck) = mpsc::channel();
    let mut clients = Vec::new();
    for at in 0..CLIENTS {
        let (seen, strike) = (seen.clone(), strike.clone());
        let listener = move |event: &Event<'_>| seen.hear(at, event, &strike);
        clients.push(Client::builder(url(server.address(), layout)).listener(listener).connect().await?);
    }
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (client, seen, gate, ended) = (clients[task % CLIENTS].clone(), seen.clone(), gate.clone(), ended.clone());
        let name = name.to_owned();
        running.spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let Ok(guard) = client.lock(&*name).expect("a name").acquire().await else { continue };
                seen.write(&gate, guard.fence(), guard.owner());
                // That it was lost is what this is about.
                let _ = guard.release().await;
            }
        });
    }
    let mut connection = server.connection()?;
    let waited = tokio::task::spawn_blocking(move || struck.recv_timeout(PATIENCE)).await?;
    waited.map_err(|_| "there was no grant to strike at")?;
    if blow.clock_first {
        server.set_clock(blow.step)?;
    }
    if blow.flushed {
        connection.command(&["FLUSHALL"])?;
    }
    server.set_clock(blow.step)?;
    let forgot = Instant::now();
    let enough = seen.by_store.load(Ordering::Relaxed) + GRANTS_AFTER;
    while seen.by_store.load(Ordering::Relaxed) < enough && forgot.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ended.store(true, Ordering::Relaxed);
    while running.join_next().await.transpose()?.is_some() {}
    for client in clients {
        client.close().await?;
    }
    seen.count(forgot, counts);
    Ok(())
}

impl Seen {
    fn hear(&self, client: usize, event: &Event<'_>, strike: &mpsc::Sender<()>) {
        match event {
            Event::Asked { .. } => held(&self.asked)[client] = Some(Instant::now()),
            Event::Granted { fence, how, .. } => {
                let asked = held(&self.asked)[client].expect("somebody asked before");
                held(&self.told).push(GrantRecord { client, fence: fence.get(), how: *how, at: Instant::now(), asked });
                if *how == How::Asked && self.by_store.fetch_add(1, Ordering::Relaxed) == GRANTS_BEFORE {
                    // The receiver is gone when the round is over.
                    let _ = strike.send(());
                }
            }
            _ => {}
        }
    }

    fn write(&self, gate: &FenceGate, fence: leasehold::Fence, owner: &leasehold::Owner) {
        // The check and the write are one step.
        let mut written = held(&self.written);
        match gate.pass(fence, owner) {
            Ok(()) => written.push((fence.get(), owner.to_string())),
            Err(_) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn count(&self, forgot: Instant, counts: &mut Counts) {
        let told = held(&self.told);
        let (mut fences, mut largest, mut shown) = (HashMap::new(), 0, 0);
        for grant in told.iter() {
            let GrantRecord { client, fence, how, at, asked } = grant;
            if let Some(before) = fences.insert(*fence, grant) {
                counts.twice += 1;
                shown += 1;
                if shown <= SHOWN {
                    println!("handed out twice: {}, then {}", before.since(forgot), grant.since(forgot));
                }
            }
            if *fence < largest {
                counts.smaller += 1;
                if *asked > forgot {
                    counts.smaller_late += 1;
                    let late = at.duration_since(forgot);
                    println!("client {client} was told {fence} ({how:?}) after {largest}, {late:?} after the blow");
                }
            }
            largest = largest.max(*fence);
        }
        let written = held(&self.written);
        let stale =
            written.windows(2).filter(|pair| pair[1].0 < pair[0].0 || pair[1].0 == pair[0].0 && pair[1].1 != pair[0].1);
        counts.let_through += stale.count();
        counts.rounds += 1;
        counts.grants += told.len();
        counts.refused += self.refused.load(Ordering::Relaxed);
    }
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
