//! One task alone: what taking, releasing and re-entering cost.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::{Client, Lock};
use tokio::runtime::Runtime;

use crate::figure::Figure;
use crate::ratio::{Sample, SideBySide};

const ROUNDS: usize = 7;
const TIMES: u32 = 100_000;

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Times of this many repetitions, in nanoseconds.
pub(crate) async fn times(count: u32, mut measure: impl AsyncFnMut() -> Duration) -> Histogram<u64> {
    let mut times = no_times();
    for _ in 0..count {
        record(&mut times, measure().await);
    }
    times
}

/// The median of so many repetitions that block, in microseconds.
pub(crate) fn median(count: u32, mut measure: impl FnMut() -> Duration) -> f64 {
    let mut times = no_times();
    for _ in 0..count {
        record(&mut times, measure());
    }
    us(&times, 0.5)
}

pub(crate) fn no_times() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram")
}

pub(crate) fn record(times: &mut Histogram<u64>, took: Duration) {
    times.record(took.as_nanos() as u64).expect("within bounds");
}

pub(crate) fn us(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1_000.0
}

/// How long it takes to take and release.
pub(crate) async fn take_and_release(lock: &Lock) -> Duration {
    let began = Instant::now();
    let guard = lock.acquire().await.expect("a grant");
    guard.release().await.expect("a release");
    began.elapsed()
}

/// Acquires and releases an uncontended lock on `memory:`.
pub(crate) fn uncontended() -> Vec<Figure> {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect("memory:bench-uncontended")).expect("a client");
    let lock = client.lock("alone").expect("a name");
    let mut tails = Vec::new();
    let round = || {
        let times = runtime.block_on(times(TIMES, async || take_and_release(&lock).await));
        tails.push(us(&times, 0.99));
        us(&times, 0.5)
    };
    let medians = SideBySide::new("us").thing("memory:", round).run(ROUNDS).of("memory:");
    vec![
        Figure::quietest("uncontended take and release, memory:, median", &medians, "us").at_most(2.0),
        Figure::quietest("… 99th percentile", &Sample::new(tails), "us"),
    ]
}

/// Re-entering a lock that is held.
pub(crate) fn reentrance() -> Vec<Figure> {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect("memory:bench-reentrance")).expect("a client");
    let outer = runtime.block_on(client.lock("again").expect("a name").acquire()).expect("a grant");
    let lock = client.lock("again").expect("a name").owned_by(outer.owner());
    let round = || us(&runtime.block_on(times(TIMES, async || reenter(&lock).await)), 0.5);
    let medians = SideBySide::new("us").thing("re-entrance", round).run(ROUNDS).of("re-entrance");
    vec![Figure::quietest("re-entrance, median", &medians, "us").at_most(1.0)]
}

/// How long it takes to enter again, without giving back.
async fn reenter(lock: &Lock) -> Duration {
    let began = Instant::now();
    let inner = lock.acquire().await.expect("a re-entry");
    let took = began.elapsed();
    drop(inner);
    took
}
