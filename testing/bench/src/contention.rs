//! Many tasks on one name: passing on against a mutex in memory, and fairness between clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::Client;

use crate::figure::{Bound, Figure};
use crate::ratio;

const TASKS: usize = 64;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Grants a second of 64 tasks on one name, beside `tokio::sync::Mutex` under the same load in the same run.
///
/// The holder lets other tasks run while it holds the lock, so that there is always a line. Without that, a mutex is mostly found
/// free by the task that has just left it, and no lock is ever handed over: that load is told beside it, for the record.
pub(crate) fn passing_on() -> Vec<Figure> {
    let (locks, mutexes) = compare(true);
    let (bare_locks, bare_mutexes) = compare(false);
    vec![
        Figure { what: "64 tasks on one name, grants", value: locks, unit: "/s", bound: Bound::Told },
        Figure { what: "tokio::sync::Mutex under the same load", value: mutexes, unit: "/s", bound: Bound::Told },
        Figure { what: "ratio", value: locks / mutexes, unit: "", bound: Bound::AtLeast(1.0 / 3.0) },
        Figure {
            what: "the same with nothing done under the lock: grants",
            value: bare_locks,
            unit: "/s",
            bound: Bound::Told,
        },
        Figure { what: "… ratio", value: bare_locks / bare_mutexes, unit: "", bound: Bound::Told },
    ]
}

fn compare(yields: bool) -> (f64, f64) {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect("memory:bench-passing-on")).expect("a client");
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    let with_mutex = || {
        let mutex = mutex.clone();
        rate(&runtime, move |stop, count| {
            let mutex = mutex.clone();
            async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = mutex.lock().await;
                    under_lock(&count, yields).await;
                    drop(guard);
                }
            }
        })
    };
    let with_lock = || {
        let client = client.clone();
        rate(&runtime, move |stop, count| {
            let lock = client.lock("hot");
            async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.expect("a grant");
                    under_lock(&count, yields).await;
                    drop(guard);
                }
            }
        })
    };
    ratio::in_turn(ROUNDS, with_lock, with_mutex)
}

async fn under_lock(count: &AtomicU64, yields: bool) {
    count.fetch_add(1, Ordering::Relaxed);
    if yields {
        tokio::task::yield_now().await;
    }
}

fn rate<F>(runtime: &tokio::runtime::Runtime, task: impl Fn(Arc<AtomicBool>, Arc<AtomicU64>) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(task(stop.clone(), count.clone()))).collect();
        tokio::time::sleep(ROUND).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a task");
        }
    });
    count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// Two clients of 32 tasks each on one name of one store: the smaller share of the grants.
pub(crate) fn two_clients() -> Vec<Figure> {
    let runtime = runtime();
    let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    runtime.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for count in &counts {
            let client = Client::connect("memory:bench-two-clients").await.expect("a client");
            for _ in 0..TASKS / 2 {
                let (lock, stop, count) = (client.lock("shared"), stop.clone(), count.clone());
                tasks.push(tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.acquire().await.expect("a grant");
                        count.fetch_add(1, Ordering::Relaxed);
                        drop(guard);
                    }
                }));
            }
        }
        tokio::time::sleep(ROUND * 4).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a task");
        }
    });
    let counts = counts.map(|count| count.load(Ordering::Relaxed) as f64);
    let total = counts[0] + counts[1];
    vec![
        Figure {
            what: "two clients on one store, grants together",
            value: total / (ROUND * 4).as_secs_f64(),
            unit: "/s",
            bound: Bound::Told,
        },
        Figure {
            what: "smaller share of the grants",
            value: 100.0 * counts[0].min(counts[1]) / total,
            unit: "%",
            bound: Bound::AtLeast(40.0),
        },
    ]
}
