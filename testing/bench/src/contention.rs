//! Many tasks on one name of `memory:`: passing on against a mutex in memory, and fairness between clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold::Client;

use crate::figure::Figure;
use crate::load::{ROUND, TASKS, Work, rate_of_lock, rate_of_mutex, runtime};
use crate::ratio::{Rounds, SideBySide};

const ROUNDS: usize = 7;
const LOCK: &str = "memory:";
const MUTEX: &str = "tokio::sync::Mutex";

/// Grants a second of 64 tasks on one name, beside `tokio::sync::Mutex` under the same load; and with nothing done under the
/// lock, for the record.
pub(crate) fn passing_on() -> Vec<Figure> {
    let (line, bare) = (compare(Work::Yield), compare(Work::Nothing));
    vec![
        Figure::median("64 tasks on one name, grants", &line.of(LOCK), "/s"),
        Figure::median("tokio::sync::Mutex under the same load", &line.of(MUTEX), "/s"),
        Figure::median("ratio", &line.ratio(LOCK, MUTEX), "").at_least(1.0 / 3.0),
        Figure::median("the same with nothing done under the lock: grants", &bare.of(LOCK), "/s"),
        Figure::median("… ratio", &bare.ratio(LOCK, MUTEX), ""),
    ]
}

fn compare(work: Work) -> Rounds {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect("memory:bench-passing-on")).expect("a client");
    let lock = client.lock("hot").expect("a name");
    SideBySide::new("/s")
        .thing(LOCK, || rate_of_lock(&runtime, &lock, work))
        .thing(MUTEX, || rate_of_mutex(&runtime, work))
        .run(ROUNDS)
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
                let (lock, stop, count) = (client.lock("shared").expect("a name"), stop.clone(), count.clone());
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
    let smaller = 100.0 * counts[0].min(counts[1]) / total;
    vec![
        Figure::told("two clients on one store, grants together", total / (ROUND * 4).as_secs_f64(), "/s"),
        Figure::told("smaller share of the grants", smaller, "%").at_least(40.0),
    ]
}
