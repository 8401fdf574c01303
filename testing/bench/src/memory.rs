//! What names and kept locks cost in memory.

use std::sync::Arc;
use std::time::Duration;

use leasehold::port::{About, Acquire, ClientId, Names, RequestId, StoreOwner};
use leasehold::{Client, Guard, Name, Store};
use leasehold_memory::{Config, Memory};

use crate::figure::Figure;
use crate::ratio::Sample;

const NAMES: usize = 1_000_000;
const KEPT: usize = 100_000;
/// The argument that makes this program measure kept locks once, and nothing else.
pub(crate) const KEPT_ONCE: &str = "--kept-once";
const PROCESSES: usize = 5;
const MIB: f64 = 1_048_576.0;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the memory of this process, from /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib * 1024.0
}

/// A million names, each taken and released once.
pub(crate) fn names_used_once() -> Vec<Figure> {
    let grown = runtime().block_on(async {
        let client = Client::connect("memory:bench-names").await.expect("a client");
        take_names(&client, 1_000).await;
        let before = resident();
        take_names(&client, NAMES).await;
        (resident() - before) / MIB
    });
    vec![Figure::told("1,000,000 names used once: resident memory grown by", grown, "MiB").at_most(20.0)]
}

async fn take_names(client: &Client, names: usize) {
    for number in 0..names {
        let guard = client.lock(format!("name-{number}")).expect("a name").acquire().await.expect("a grant");
        drop(guard);
    }
}

/// A hundred thousand kept locks: what the client needs for each beyond what the store itself needs.
///
/// Resident memory depends on where an allocator happens to put things: the median of several processes counts.
pub(crate) fn kept_locks() -> Vec<Figure> {
    let runs: Vec<[f64; 3]> = (0..PROCESSES).map(|_| in_a_process_of_its_own()).collect();
    let of = |index: usize| Sample::new(runs.iter().map(|run| run[index]).collect());
    vec![
        Figure::quietest("100,000 kept locks: still valid", &of(0), "").at_least(KEPT as f64),
        Figure::median("memory of the store alone, each", &of(1), "bytes"),
        Figure::median("memory of the client, guard included, each", &of(2), "bytes").at_most(400.0),
    ]
}

fn in_a_process_of_its_own() -> [f64; 3] {
    let this = std::env::current_exe().expect("the path of this program");
    let output = std::process::Command::new(this).arg(KEPT_ONCE).output().expect("a process");
    let text = String::from_utf8(output.stdout).expect("text");
    let figures: Vec<f64> = text.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    figures.try_into().unwrap_or_else(|_| panic!("three figures, not {text:?}"))
}

/// One such measurement: how many are valid, and bytes for each in the store and in the client.
pub(crate) fn kept_once() {
    let store = store_alone();
    let (both, valid) = runtime().block_on(async {
        let client = Client::connect("memory:bench-kept").await.expect("a client");
        take_names(&client, 1_000).await;
        let before = resident();
        let mut guards: Vec<Guard> = Vec::with_capacity(KEPT);
        for number in 0..KEPT {
            guards.push(client.lock(format!("kept-{number}")).expect("a name").acquire().await.expect("a grant"));
        }
        let grown = resident() - before;
        (grown, guards.iter().filter(|guard| guard.is_valid()).count())
    });
    println!("{valid} {} {}", store / KEPT as f64, (both - store) / KEPT as f64);
}

/// The same locks in a store without a client.
fn store_alone() -> f64 {
    let store = Memory::new(&Config { name: "alone".into() });
    let client = ClientId([1, 2]);
    let about = Arc::new(About::default());
    let before = resident();
    for number in 0..KEPT {
        let request = RequestId { client, number: number as u64 };
        let name = Name::new(format!("kept-{number}")).expect("a name");
        let call = store.acquire(Acquire {
            about: about.clone(),
            ..Acquire::new(Names::One(name), StoreOwner::Private(request), request, Duration::from_secs(30))
        });
        drop(call);
    }
    let grown = resident() - before;
    assert_eq!(store.len(), KEPT);
    grown
}
