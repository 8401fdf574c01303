//! The load of many tasks of one process on one name, over a lock or over a mutex in memory.
//!
//! The holder lets other tasks run while it holds the lock, so that there is always a line. Without that, a mutex is mostly found
//! free by the task that has just left it, and no lock is ever handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::Lock;
use tokio::runtime::Runtime;

pub(crate) const TASKS: usize = 64;
pub(crate) const ROUND: Duration = Duration::from_millis(500);

/// What is done under the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Other tasks run.
    Yield,
    Nothing,
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Grants a second of a lock.
pub(crate) fn rate_of_lock(runtime: &Runtime, lock: &Lock, work: Work) -> f64 {
    rate(runtime, |stop, count| {
        let lock = lock.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.acquire().await.expect("a grant");
                under_lock(&count, work).await;
                drop(guard);
            }
        }
    })
}

/// Grants a second of a mutex.
pub(crate) fn rate_of_mutex(runtime: &Runtime, work: Work) -> f64 {
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    rate(runtime, |stop, count| {
        let mutex = mutex.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = mutex.lock().await;
                under_lock(&count, work).await;
                drop(guard);
            }
        }
    })
}

async fn under_lock(count: &AtomicU64, work: Work) {
    count.fetch_add(1, Ordering::Relaxed);
    if work == Work::Yield {
        tokio::task::yield_now().await;
    }
}

fn rate<F>(runtime: &Runtime, task: impl Fn(Arc<AtomicBool>, Arc<AtomicU64>) -> F) -> f64
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
