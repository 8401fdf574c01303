//! One task alone: what taking, releasing and re-entering cost.

use std::time::Instant;

use hdrhistogram::Histogram;
use leasehold::Client;

use crate::figure::{Bound, Figure};

/// A machine that does other things too disturbs some rounds: the quietest one counts.
const ROUNDS: u32 = 7;
const TIMES: u32 = 100_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The histogram of the round with the smallest median, in nanoseconds.
async fn quietest(mut measure: impl AsyncFnMut(&mut Histogram<u64>)) -> Histogram<u64> {
    let mut best: Option<Histogram<u64>> = None;
    for _ in 0..ROUNDS {
        let mut times = Histogram::<u64>::new(3).expect("a histogram");
        for _ in 0..TIMES {
            measure(&mut times).await;
        }
        if best.as_ref().is_none_or(|best| times.value_at_quantile(0.5) < best.value_at_quantile(0.5)) {
            best = Some(times);
        }
    }
    best.expect("a round")
}

fn record(times: &mut Histogram<u64>, began: Instant) {
    times.record(began.elapsed().as_nanos() as u64).expect("within bounds");
}

fn us(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1_000.0
}

/// Take and release on `memory:` with nobody else about.
pub(crate) fn uncontended() -> Vec<Figure> {
    let times = runtime().block_on(async {
        let client = Client::connect("memory:bench-uncontended").await.expect("a client");
        let lock = client.lock("alone");
        quietest(async |times| {
            let began = Instant::now();
            let guard = lock.acquire().await.expect("a grant");
            guard.release().await.expect("a release");
            record(times, began);
        })
        .await
    });
    let what = "uncontended take and release, memory:, median";
    vec![
        Figure { what, value: us(&times, 0.5), unit: "us", bound: Bound::AtMost(2.0) },
        Figure { what: "… 99th percentile", value: us(&times, 0.99), unit: "us", bound: Bound::Told },
    ]
}

/// Re-entering a lock that is held.
pub(crate) fn reentrance() -> Vec<Figure> {
    let times = runtime().block_on(async {
        let client = Client::connect("memory:bench-reentrance").await.expect("a client");
        let outer = client.lock("again").acquire().await.expect("a grant");
        let lock = client.lock("again").owned_by(outer.owner());
        quietest(async |times| {
            let began = Instant::now();
            let inner = lock.acquire().await.expect("a re-entry");
            record(times, began);
            drop(inner);
        })
        .await
    });
    vec![Figure { what: "re-entrance, median", value: us(&times, 0.5), unit: "us", bound: Bound::AtMost(1.0) }]
}
