//! `redis-peers`: one task takes and releases one free name in turn, beside the same and shorter scripts on bare sockets, and beside
//! other lock libraries.
//!
//! A floor is what nobody can get below, so it must not do more than it has to: it sends and receives in the thread that calls.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::{Lock, blocking};
use tokio::runtime::Runtime;

use crate::comparison::{Comparison, Effort};
use crate::figure::Figure;
use crate::load;
use crate::machine::locked_version;
use crate::peers::Peers;
use crate::ratio::SideBySide;
use crate::redis::Place;
use crate::scripts::{OwnScripts, ShortestScripts};
use crate::single::{median, no_times, record, runtime, take_and_release, times, us};
use crate::socket::{BlockingSocket, TokioSocket, granted};
use crate::wakeups::Sleeps;

/// Every peer that does what a lock does with one server. The order is that of the table.
const PEERS: &[&str] = &["redsync", "redis-semaphore", "node-redlock", "redis-py", "redisson-4"];
/// The one that leasehold need not be ahead of: it has no fences and two shorter scripts.
const SHORTER: &str = "redsync";

const OWN: &str = "leasehold's scripts, blocking socket";
const OWN_TOKIO: &str = "leasehold's scripts, tokio socket";
const SHORTEST: &str = "shortest scripts, blocking socket";
const LEASEHOLD: &str = "leasehold";
const LEASEHOLD_THREADS: &str = "leasehold, runtime with threads";
const LEASEHOLD_BLOCKING: &str = "leasehold, blocking API";
/// Of rslock, which has no default.
const LEASE: Duration = Duration::from_secs(30);

/// Things that other threads of this process do by themselves meanwhile, for each call.
const NOISE: f64 = 0.01;

/// Median of a take and a release, of all contestants.
pub(crate) fn solo(effort: Effort) -> Comparison {
    let (place, pairs) = (Place::new(), effort.pairs);
    let mut peers = Peers::default();
    for name in PEERS {
        peers.start(name, &[place.0.address()], "");
    }
    peers.warm_up(pairs * 4);
    let ours = Ours::connect(&place);
    let (mut bare, mut bare_tokio, mut shortest) =
        (Bare::connect(&place), BareTokio::connect(&place), Shortest::connect(&place));
    let commands = ours.commands_for_a_pair(&place, pairs);
    let rslock = format!("rslock {}", locked_version("rslock"));
    let locks = rslock::LockManager::new(vec![place.url()]);
    let titles: Vec<String> = peers.titles().into_iter().chain([rslock.clone()]).collect();
    let alone = runtime();
    let things = SideBySide::new("us")
        .thing(OWN, || median(pairs, || bare.pair()))
        .thing(OWN_TOKIO, || us(&bare_tokio.times(pairs), 0.5))
        .thing(SHORTEST, || median(pairs, || shortest.pair()))
        .thing(LEASEHOLD, || us(&ours.solo(pairs), 0.5))
        .thing(LEASEHOLD_THREADS, || us(&ours.solo_in_a_task(pairs), 0.5))
        .thing(LEASEHOLD_BLOCKING, || median(pairs, || ours.pair_blocking()))
        .thing(rslock, || us(&alone.block_on(times(pairs, async || rslock_pair(&locks).await)), 0.5));
    let rounds = peers.beside(things, pairs).run(effort.rounds);

    let figure = |name: &str| Figure::median(format!("{name}: take and release, median"), &rounds.of(name), "us");
    let ratio = |a: &str, b: &str| Figure::median(format!("{a}, ratio to {b}"), &rounds.ratio(a, b), "");
    let mut figures: Vec<Figure> = rounds.names().map(figure).collect();
    figures.push(ratio(LEASEHOLD, OWN).at_most(1.15));
    figures.push(ratio(LEASEHOLD_THREADS, OWN));
    figures.push(ratio(LEASEHOLD_BLOCKING, OWN).at_most(1.1));
    for title in &titles {
        figures.push(ratio(LEASEHOLD, title).at_most(if title.starts_with(SHORTER) { 1.25 } else { 1.0 }));
    }
    figures.push(Figure::told("leasehold: client commands for a take and a release", commands, "").at_most(2.01));
    for (name, is_ours, sleeps) in [
        (OWN, false, Sleeps::of(2 * pairs, || median(pairs, || bare.pair()))),
        (LEASEHOLD, true, Sleeps::of(2 * pairs, || us(&ours.solo(pairs), 0.5))),
        (LEASEHOLD_BLOCKING, true, Sleeps::of(2 * pairs, || median(pairs, || ours.pair_blocking()))),
    ] {
        figures.push(Figure::told(format!("{name}: wakes the caller's thread, a call"), sleeps.caller, ""));
        let others = Figure::told(format!("{name}: wakes other threads, a call"), sleeps.others, "");
        figures.push(if is_ours { others.at_most(NOISE) } else { others });
    }
    Comparison { tables: vec![("Take and release of a free lock".into(), rounds)], figures, ignored: peers.ignored }
}

/// leasehold's own scripts on a bare socket, in the thread that calls.
struct Bare {
    scripts: OwnScripts,
    socket: BlockingSocket,
}

impl Bare {
    fn connect(place: &Place) -> Self {
        let mut socket = BlockingSocket::connect(place.0.address());
        Self { scripts: OwnScripts::new(&mut socket, "bare", 1), socket }
    }

    fn pair(&mut self) -> Duration {
        let began = Instant::now();
        let fence = self.socket.call(&self.scripts.acquire(false), granted).expect("a grant");
        assert!(self.socket.call(&self.scripts.release(fence, false), is_released));
        began.elapsed()
    }
}

fn is_released(reply: &[u8]) -> bool {
    reply.windows(8).any(|word| word == b"released")
}

/// The same on a socket of tokio's, in a runtime without threads.
struct BareTokio {
    runtime: Runtime,
    scripts: OwnScripts,
    socket: TokioSocket,
}

impl BareTokio {
    fn connect(place: &Place) -> Self {
        let (runtime, server) = (runtime(), place.0.address());
        let socket = runtime.block_on(TokioSocket::connect(server));
        Self { runtime, scripts: OwnScripts::new(&mut BlockingSocket::connect(server), "bare tokio", 2), socket }
    }

    fn times(&mut self, pairs: u32) -> Histogram<u64> {
        let (scripts, socket) = (&mut self.scripts, &mut self.socket);
        self.runtime.block_on(times(pairs, async || {
            let began = Instant::now();
            let fence = socket.call(&scripts.acquire(false), granted).await.expect("a grant");
            assert!(socket.call(&scripts.release(fence, false), is_released).await);
            began.elapsed()
        }))
    }
}

/// The shortest scripts that any lock has, in the thread that calls.
struct Shortest {
    scripts: ShortestScripts,
    socket: BlockingSocket,
}

impl Shortest {
    fn connect(place: &Place) -> Self {
        let mut socket = BlockingSocket::connect(place.0.address());
        Self { scripts: ShortestScripts::new(&mut socket, "shortest"), socket }
    }

    fn pair(&mut self) -> Duration {
        let began = Instant::now();
        assert!(self.socket.call(&self.scripts.acquire(), |reply| reply == b"+OK\r\n"));
        assert!(self.socket.call(&self.scripts.release(), |reply| reply == b":1\r\n"));
        began.elapsed()
    }
}

/// leasehold as programs have it: in a runtime without threads, in one with threads, and without async.
struct Ours {
    alone: (Runtime, Lock),
    threads: (Runtime, Lock),
    blocking: blocking::Lock,
}

impl Ours {
    fn connect(place: &Place) -> Self {
        let lock = |runtime: Runtime, name: &str| {
            let lock = place.client(&runtime).lock(name).expect("a name");
            (runtime, lock)
        };
        let blocking = blocking::Client::connect(&place.url()).expect("a client").lock("blocking").expect("a name");
        Self { alone: lock(runtime(), "alone"), threads: lock(load::runtime(), "threads"), blocking }
    }

    fn solo(&self, pairs: u32) -> Histogram<u64> {
        let (runtime, lock) = &self.alone;
        runtime.block_on(times(pairs, async || take_and_release(lock).await))
    }

    fn solo_in_a_task(&self, pairs: u32) -> Histogram<u64> {
        let (runtime, lock) = &self.threads;
        let lock = lock.clone();
        let task = async move {
            let mut times = no_times();
            for _ in 0..pairs {
                record(&mut times, take_and_release(&lock).await);
            }
            times
        };
        runtime.block_on(runtime.spawn(task)).expect("a task")
    }

    fn pair_blocking(&self) -> Duration {
        let began = Instant::now();
        self.blocking.acquire().expect("a grant").release().expect("a release");
        began.elapsed()
    }

    fn commands_for_a_pair(&self, place: &Place, pairs: u32) -> f64 {
        self.solo(1);
        let before = place.commands();
        self.solo(pairs);
        (place.commands() - before) / f64::from(pairs)
    }
}

async fn rslock_pair(locks: &rslock::LockManager) -> Duration {
    let began = Instant::now();
    locks.lock("rslock", LEASE).await.expect("a grant").release().await;
    began.elapsed()
}
