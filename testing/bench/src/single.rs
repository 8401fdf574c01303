//! One task alone: what taking, releasing and re-entering cost.

use std::time::Instant;

use hdrhistogram::Histogram;
use leasehold::Client;

use crate::figure::{Bound, Figure};

const WARM_UP: u32 = 20_000;
const ROUNDS: u32 = 200_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn median_us(times: &Histogram<u64>) -> f64 {
    times.value_at_quantile(0.5) as f64 / 1_000.0
}

/// Take and release on `memory:` with nobody else about.
pub(crate) fn uncontended() -> Vec<Figure> {
    let times = runtime().block_on(async {
        let client = Client::connect("memory:bench-uncontended").await.expect("a client");
        let lock = client.lock("alone");
        let mut times = Histogram::<u64>::new(3).expect("a histogram");
        for round in 0..WARM_UP + ROUNDS {
            let began = Instant::now();
            let guard = lock.acquire().await.expect("a grant");
            guard.release().await.expect("a release");
            if round >= WARM_UP {
                times.record(began.elapsed().as_nanos() as u64).expect("within bounds");
            }
        }
        times
    });
    vec![
        Figure {
            what: "uncontended take and release, memory:, median",
            value: median_us(&times),
            unit: "us",
            bound: Bound::AtMost(2.0),
        },
        Figure {
            what: "… 99th percentile",
            value: times.value_at_quantile(0.99) as f64 / 1e3,
            unit: "us",
            bound: Bound::Told,
        },
    ]
}

/// Re-entering a lock that is held, and giving that hold back.
pub(crate) fn reentrance() -> Vec<Figure> {
    let times = runtime().block_on(async {
        let client = Client::connect("memory:bench-reentrance").await.expect("a client");
        let outer = client.lock("again").acquire().await.expect("a grant");
        let lock = client.lock("again").owned_by(outer.owner());
        let mut times = Histogram::<u64>::new(3).expect("a histogram");
        for round in 0..WARM_UP + ROUNDS {
            let began = Instant::now();
            let inner = lock.acquire().await.expect("a re-entry");
            let took = began.elapsed();
            drop(inner);
            if round >= WARM_UP {
                times.record(took.as_nanos() as u64).expect("within bounds");
            }
        }
        times
    });
    vec![Figure { what: "re-entrance, median", value: median_us(&times), unit: "us", bound: Bound::AtMost(1.0) }]
}
