//! `hold`: one process holds many locks. Acquires them, keeps them, and counts the losses and the cost of keeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind, Guard};
use serde::Serialize;
use tokio::task::JoinSet;

use super::calls::Calls;
use super::stop::Stop;
use super::tally::Tally;
use super::{Plan, report, tasks};

/// Number of tasks that acquire and release in parallel.
const PARALLEL_TASKS: usize = 64;

/// Results of the workload.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct HoldResult {
    /// Maximum number of locks held at the same time.
    pub(crate) held: u64,
    /// How many were lost before they were released.
    pub(crate) lost: u64,
    pub(crate) take_seconds: f64,
    pub(crate) hold_seconds: f64,
    pub(crate) release_seconds: f64,
    /// Processor time while they were held, in percent of one core.
    pub(crate) cpu_percent: f64,
    /// Calls to the store while they were held.
    pub(crate) hold_calls: u64,
}

impl HoldResult {
    /// Time to acquire, keep and release.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.take_seconds + self.hold_seconds + self.release_seconds)
    }
}

/// A guard, and how long its acquire took.
type Taken = (Guard, Duration);

/// Acquires the locks, keeps them, releases them.
pub(crate) async fn run(
    client: &Client,
    prefix: &str,
    plan: &Plan,
    tally: &Arc<Tally>,
    stop: &Arc<Stop>,
    calls: &Calls,
) -> HoldResult {
    let began = Instant::now();
    let taken = take(client, prefix, plan.tasks, tally, stop).await;
    let held = taken.iter().map(Vec::len).sum::<usize>() as u64;
    let taking = began.elapsed();
    let (cpu, calls_before) = (leasehold_clock::cpu(), calls.count());
    stop.after(plan.span).await;
    let holding = began.elapsed() - taking;
    let (cpu, hold_calls) = (leasehold_clock::cpu() - cpu, calls.count() - calls_before);
    let lost = release(taken, tally).await;
    HoldResult {
        held,
        lost,
        take_seconds: report::seconds(taking),
        hold_seconds: report::seconds(holding),
        release_seconds: report::seconds(began.elapsed() - taking - holding),
        cpu_percent: report::rounded(100.0 * cpu.as_secs_f64() / holding.as_secs_f64().max(1e-9)),
        hold_calls,
    }
}

async fn take(client: &Client, prefix: &str, count: usize, tally: &Arc<Tally>, stop: &Arc<Stop>) -> Vec<Vec<Taken>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut hands = JoinSet::new();
    for _ in 0..PARALLEL_TASKS.min(count) {
        let (client, next, prefix) = (client.clone(), next.clone(), prefix.to_owned());
        let (tally, stop) = (tally.clone(), stop.clone());
        hands.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count || stop.is_set() {
                    return taken;
                }
                let began = Instant::now();
                let acquired = async { client.lock(format!("{prefix}{number}"))?.acquire().await };
                match acquired.await {
                    Ok(guard) => {
                        taken.push((guard, began.elapsed()));
                        tally.hold();
                    }
                    Err(error) => tasks::pause_after(&tally, error).await,
                }
                tokio::task::yield_now().await;
            }
        });
    }
    hands.join_all().await
}

/// Releases everything; returns how many were lost.
async fn release(taken: Vec<Vec<Taken>>, tally: &Arc<Tally>) -> u64 {
    let mut hands = JoinSet::new();
    for (hand, taken) in taken.into_iter().enumerate() {
        let tally = tally.clone();
        hands.spawn(async move {
            let mut lost = 0;
            for (guard, took) in taken {
                let began = Instant::now();
                match guard.release().await {
                    Ok(()) => tally.op(hand, took + began.elapsed()),
                    Err(error) if error.kind() == ErrorKind::Lost => {
                        lost += 1;
                        tally.error(error);
                    }
                    Err(error) => tally.error(error),
                }
                tokio::task::yield_now().await;
            }
            lost
        });
    }
    hands.join_all().await.into_iter().sum()
}
