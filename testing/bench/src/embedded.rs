//! `file:` in one process: against bare SQLite, against a mutex in memory, and after a million names.

use std::cell::Cell;
use std::time::{Duration, Instant};

use leasehold::Client;

use crate::bare::Bare;
use crate::figure::Figure;
use crate::load::{Work, rate_of_lock, rate_of_mutex};
use crate::place::Place;
use crate::ratio::SideBySide;
use crate::single::{runtime, take_and_release, times, us};
use crate::{load, port};

const ROUNDS: usize = 9;
const TIMES: u32 = 5_000;
const NAMES: usize = 1_000_000;
const MIB: f64 = 1_048_576.0;

/// Take and release by one task, beside the two transactions of bare SQLite.
pub(crate) fn solo() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), runtime());
    let (bare, lock) = (Bare::open(&place.path("bare.db")), place.client(&runtime).lock("alone").expect("a name"));
    let store = port::Port::new(&place.path("port.db"));
    let rounds = SideBySide::new("us")
        .thing("bare", || us(&runtime.block_on(times(TIMES, async || bare.take_and_release("alone", [7; 16]))), 0.5))
        .thing("port", || us(&runtime.block_on(times(TIMES, async || store.take_and_release("alone").await)), 0.5))
        .thing("file:", || us(&runtime.block_on(times(TIMES, async || take_and_release(&lock).await)), 0.5))
        .run(ROUNDS);
    vec![
        Figure::median("file: take and release, median", &rounds.of("file:"), "us"),
        Figure::median("two bare transactions of SQLite, median", &rounds.of("bare"), "us"),
        Figure::median("ratio of the store's port alone", &rounds.ratio("port", "bare"), ""),
        Figure::median("ratio", &rounds.ratio("file:", "bare"), "").at_most(2.0),
    ]
}

/// 64 tasks of one process on one name, beside a mutex and beside the same without passing on.
pub(crate) fn hot() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let client = place.client(&runtime);
    let (lock, never) =
        (client.lock("hot").expect("a name"), client.lock("hot").expect("a name").budget(Duration::ZERO));
    let rounds = SideBySide::new("/s")
        .thing("file:", || rate_of_lock(&runtime, &lock, Work::Yield))
        .thing("tokio::sync::Mutex", || rate_of_mutex(&runtime, Work::Yield))
        .thing("file:, budget 0", || rate_of_lock(&runtime, &never, Work::Yield))
        .run(ROUNDS);
    vec![
        Figure::median("file: 64 tasks on one name, grants", &rounds.of("file:"), "/s"),
        Figure::median("… to tokio::sync::Mutex", &rounds.ratio("file:", "tokio::sync::Mutex"), "").at_least(1.0 / 3.0),
        Figure::median("… to the same with a budget of 0", &rounds.ratio("file:", "file:, budget 0"), "")
            .at_least(10.0),
    ]
}

/// A million names used once: a store that has seen them, beside one that has not.
pub(crate) fn names() -> Vec<Figure> {
    let (used, fresh, runtime) = (Place::new(), Place::new(), runtime());
    let (old, new) = (used.client(&runtime), fresh.client(&runtime));
    let number = Cell::new(0);
    let some = |client: &Client| us(&runtime.block_on(times(TIMES, async || next_name(client, &number).await)), 0.5);
    let _ = (some(&old), some(&new));
    let before = used.bytes();
    let began = Instant::now();
    runtime.block_on(async {
        for _ in 0..NAMES {
            next_name(&old, &number).await;
        }
    });
    let (took, after) = (began.elapsed(), used.bytes());
    let rounds = SideBySide::new("us").thing("fresh", || some(&new)).thing("used", || some(&old)).run(ROUNDS);
    vec![
        Figure::told("file: 1,000,000 names used once, each", took.as_secs_f64() * 1e6 / NAMES as f64, "us"),
        Figure::told("the file and its log before", before / MIB, "MiB"),
        Figure::told("… after", after / MIB, "MiB").at_most(8.0),
        Figure::median("take and release, ratio to a fresh file", &rounds.ratio("used", "fresh"), "").at_most(1.25),
    ]
}

/// Acquires and releases an unused name.
async fn next_name(client: &Client, number: &Cell<u64>) -> Duration {
    number.set(number.get() + 1);
    take_and_release(&client.lock(format!("name-{}", number.get())).expect("a name")).await
}
