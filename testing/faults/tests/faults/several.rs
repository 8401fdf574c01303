//! Locks of several stores taken together: two hundred tasks over fifty sets of names on two stores, and stores that die meanwhile.
//!
//! The crowd works for [`SHORT`], or for the number of seconds in `LEASEHOLD_SOAK_SECONDS`, and prints the shares.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, ErrorKind, Loss, Owner, lock_all};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;

use crate::{Checked, LAYOUTS, Proof, url, wait};

/// Those that need a server.
pub(crate) const WITH_REDIS: &[Proof] = &[
    ("a_crowd_over_a_file_and_redis", || wait(over_a_file_and_redis())),
    ("two_urls_of_one_server", || wait(two_urls_of_one_server())),
    ("an_owner_that_holds_a_member_gets_an_error", || wait(an_owner_that_holds_a_member())),
    ("one_server_is_killed_while_held", || wait(killed_while_held())),
    ("one_server_is_stopped_while_held", || wait(stopped_while_held())),
    ("one_server_is_stopped_while_wanted", || wait(stopped_while_wanted())),
];

/// Those that need nothing.
pub(crate) const CASES: &[Proof] = &[
    ("a_crowd_over_memory_and_a_file", || wait(over_memory_and_a_file())),
    ("a_crowd_over_one_store_by_two_clients", || wait(over_one_store())),
];

/// Mean number of turns of each worker, unless a duration is given: turns and not time, so that a busy machine does not
/// change the shares.
const TURNS: u64 = 20;
const TASKS: usize = 200;
const SETS: usize = 50;
/// Of each store.
const NAMES: usize = 12;
/// How long one works with what it has.
const MOMENT: Duration = Duration::from_millis(1);
/// No waiter is kept waiting for longer than this.
const STUCK: Duration = Duration::from_secs(600);
/// In a soak, no single wait is longer than this many times the mean,
const LONGEST: f64 = 12.0;
/// unless that is less than this: others use the machine as well, and may stall all workers for a while.
const LONGEST_MIN: Duration = Duration::from_secs(15);
const MS: Duration = Duration::from_millis(1);

/// For how long a crowd is to go on; none: until it had its turns.
fn span() -> Result<Option<Duration>, Failure> {
    match std::env::var("LEASEHOLD_SOAK_SECONDS") {
        Ok(seconds) => Ok(Some(Duration::from_secs(seconds.parse()?))),
        Err(_) => Ok(None),
    }
}

async fn over_memory_and_a_file() -> Checked {
    let folder = tempfile::tempdir()?;
    let file = Client::connect(&format!("file:{}", folder.path().join("locks.db").display())).await?;
    crowd("memory and a file", [Client::connect("memory:crowd").await?, file]).await
}

async fn over_a_file_and_redis() -> Checked {
    let folder = tempfile::tempdir()?;
    let server = Redis::start()?;
    let file = Client::connect(&format!("file:{}", folder.path().join("locks.db").display())).await?;
    crowd("a file and redis", [file, Client::connect(&format!("redis://{}", server.address())).await?]).await
}

/// Two clients of one store, which a step does not put together: the names of the one are others than those of the other.
async fn over_one_store() -> Checked {
    crowd("one store by two clients", [Client::connect("memory:one").await?, Client::connect("memory:one").await?])
        .await
}

/// A lock: which client, and which name there.
type Place = (usize, usize);

/// Sets of two to five names, of both stores, that overlap.
fn sets() -> Vec<BTreeSet<Place>> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut below = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap_or(0)
    };
    let mut sets = Vec::new();
    for number in 0..SETS {
        let size = 2 + number % 4;
        let mut set = BTreeSet::from([(0, below(NAMES)), (1, below(NAMES))]);
        while set.len() < size {
            set.insert((below(2), below(NAMES)));
        }
        sets.push(set);
    }
    sets
}

fn name((client, number): Place) -> String {
    format!("{client}-{number}")
}

/// Counts in two steps under several locks, for a while: no worker is stuck or starves, no count is lost, nothing is
/// left over.
async fn crowd(what: &str, clients: [Client; 2]) -> Checked {
    let (sets, span) = (sets(), span()?);
    let counters: Arc<Vec<[AtomicU64; NAMES]>> = Arc::new((0..2).map(|_| Default::default()).collect());
    let (start, had) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        let set = sets[number % SETS].clone();
        let lock = lock_all(set.iter().map(|place| clients[place.0].lock(name(*place)).expect("a name")));
        let (counters, had) = (counters.clone(), had.clone());
        let goes_on = move || match span {
            Some(span) => start.elapsed() < span,
            None => had.fetch_add(1, Ordering::Relaxed) < TURNS * TASKS as u64,
        };
        tasks.spawn(async move {
            let (mut turns, mut longest) = (0_u64, Duration::ZERO);
            while goes_on() {
                let began = Instant::now();
                let Attempt::Granted(guard) = lock.acquire_within(STUCK).await? else {
                    return Err(format!("stuck at {set:?}").into());
                };
                longest = longest.max(began.elapsed());
                let before: Vec<u64> =
                    set.iter().map(|place| counters[place.0][place.1].load(Ordering::Relaxed)).collect();
                tokio::time::sleep(MOMENT).await;
                for (place, before) in set.iter().zip(before) {
                    counters[place.0][place.1].store(before + 1, Ordering::Relaxed);
                }
                guard.release().await?;
                turns += 1;
            }
            Ok::<_, Failure>((number, turns, longest))
        });
    }
    let mut turns = [0; TASKS];
    let mut longest = Duration::ZERO;
    while let Some(ended) = tasks.join_next().await {
        let (number, had, waited) = ended??;
        turns[number] = had;
        longest = longest.max(waited);
    }
    let took = start.elapsed();
    report(what, &turns, longest, took)?;
    if span.is_some() && longest > usual(&turns, took).mul_f64(LONGEST).max(LONGEST_MIN) {
        return Err(format!("one task waited for {longest:?}, where a turn takes {:?}", usual(&turns, took)).into());
    }
    for place in (0..2).flat_map(|client| (0..NAMES).map(move |number| (client, number))) {
        let due: u64 = (0..TASKS).filter(|task| sets[task % SETS].contains(&place)).map(|task| turns[task]).sum();
        let counted = counters[place.0][place.1].load(Ordering::Relaxed);
        if counted != due {
            return Err(format!("{}: {counted} were counted of {due}", name(place)).into());
        }
    }
    for client in &clients {
        quiet(client).await?;
    }
    Ok(())
}

/// Prints the shares, and objects where one is less than a quarter of the mean.
fn report(what: &str, turns: &[u64; TASKS], longest: Duration, span: Duration) -> Checked {
    let all: u64 = turns.iter().sum();
    let mean = all as f64 / TASKS as f64;
    let (least, most) = (turns.iter().min().unwrap_or(&0), turns.iter().max().unwrap_or(&0));
    let by_size: Vec<String> = (0..4)
        .map(|size| {
            let of_size = || turns.iter().enumerate().filter(move |(task, _)| task % SETS % 4 == size);
            let sum: u64 = of_size().map(|(_, turns)| turns).sum();
            format!("{} names {:.1}", size + 2, sum as f64 / of_size().count() as f64)
        })
        .collect();
    println!(
        "{what}: {all} turns in {span:?}, {:.0} a second; mean {mean:.1}, least {least} ({:.2} of the mean), most {most}; {}; longest wait {longest:?}",
        all as f64 / span.as_secs_f64(),
        *least as f64 / mean,
        by_size.join(", "),
    );
    // In a short while on a busy machine there are few turns: one more or less is chance.
    if ((*least + 1) as f64) < mean / 4.0 {
        return Err(format!("one task had {least} turns, where the mean is {mean:.1}").into());
    }
    Ok(())
}

/// How long a turn takes at the mean.
fn usual(turns: &[u64; TASKS], span: Duration) -> Duration {
    let mean = turns.iter().sum::<u64>() as f64 / TASKS as f64;
    span.div_f64(mean.max(1.0))
}

async fn quiet(client: &Client) -> Checked {
    let began = Instant::now();
    loop {
        let (in_use, held) = (client.in_use(), client.list("").await?);
        let mut waiters = 0;
        for place in (0..2).flat_map(|client| (0..NAMES).map(move |number| (client, number))) {
            waiters += client.inspect(name(place)).await?.waiters.unwrap_or(0);
        }
        if in_use == 0 && held.is_empty() && waiters == 0 {
            return Ok(());
        }
        if began.elapsed() > STUCK {
            return Err(format!("{in_use} are in use, {waiters} wait, {held:?} are held").into());
        }
        tokio::time::sleep(5 * MS).await;
    }
}

/// A server by its address, by its name, by its socket; and another database or prefix of it, which is another store.
async fn two_urls_of_one_server() -> Checked {
    let server = Redis::with(leasehold_faults::servers::redis::Settings::default().socket())?;
    let port = server.address().port();
    let one = Client::connect(&format!("redis://127.0.0.1:{port}")).await?;
    let socket = format!("redis+unix://{}", server.socket().display());
    for same in [format!("redis://localhost:{port}/0"), socket] {
        let two = Client::connect(&same).await?;
        let error = lock_all([one.lock("a")?, two.lock("a")?]).acquire().await.expect_err("one lock twice");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        lock_all([one.lock("a")?, two.lock("b")?]).acquire().await?.release().await?;
    }
    for another in ["/1", "?prefix=app:"] {
        let other = Client::connect(&format!("redis://127.0.0.1:{port}{another}")).await?;
        lock_all([one.lock("a")?, other.lock("a")?]).acquire().await?.release().await?;
    }
    // A store without an identity: only if that matters.
    server.command(&["ACL", "SETUSER", "default", "-info"])?;
    let silent = Client::connect(&format!("redis://127.0.0.1:{port}/2")).await?;
    let error = lock_all([one.lock("a")?, silent.lock("a")?]).acquire().await.expect_err("nobody can know");
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    lock_all([one.lock("a")?, silent.lock("b")?]).acquire().await?.release().await?;
    Ok(())
}

/// A client that holds one of them elsewhere learns that from the server, and does not wait for itself.
async fn an_owner_that_holds_a_member() -> Checked {
    let server = Redis::start()?;
    let memory = Client::connect("memory:member").await?;
    let me = Owner::explicit("me")?;
    for layout in LAYOUTS {
        let (here, there) = (Client::connect(&url(server.address(), layout)).await?, url(server.address(), layout));
        let held = Client::connect(&there).await?.lock(layout)?.owned_by(&me).acquire().await?;
        let both = lock_all([memory.lock("a")?, here.lock(layout)?]).owned_by(&me);
        let error = both.acquire().await.expect_err("it holds one of them");
        assert_eq!((error.kind(), error.lock()), (ErrorKind::AlreadyHeld, Some(layout)), "{error}");
        assert!(!memory.inspect("a").await?.is_held());
        held.release().await?;
        both.acquire().await?.release().await?;
    }
    Ok(())
}

const LEASE: Duration = Duration::from_secs(3);

/// A file and a server, and a lock over both.
struct Both {
    server: Redis,
    file: Client,
    redis: Client,
    _folder: tempfile::TempDir,
}

impl Both {
    async fn new() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let server = Redis::start()?;
        let file = Client::connect(&format!("file:{}", folder.path().join("locks.db").display())).await?;
        let redis = Client::connect(&format!("redis://{}", server.address())).await?;
        Ok(Self { server, file, redis, _folder: folder })
    }

    fn lock(&self) -> leasehold::GroupLock {
        lock_all([self.file.lock("a").expect("a name"), self.redis.lock("b").expect("a name").keep(LEASE)])
    }
}

async fn killed_while_held() -> Checked {
    let mut both = Both::new().await?;
    let guard = both.lock().acquire().await?;
    both.server.kill()?;
    ends(&both, guard).await?;
    both.server.restart()?;
    both.lock().acquire().await?.release().await?;
    quiet(&both.file).await?;
    quiet(&both.redis).await
}

async fn stopped_while_held() -> Checked {
    let both = Both::new().await?;
    let guard = both.lock().acquire().await?;
    both.server.stop()?;
    ends(&both, guard).await?;
    both.server.go_on()?;
    both.lock().acquire().await?.release().await?;
    quiet(&both.file).await?;
    quiet(&both.redis).await
}

/// The guard is lost, and names the store; its release does too, and releases the other lock.
async fn ends(both: &Both, guard: leasehold::GroupGuard) -> Checked {
    let lost = tokio::time::timeout(STUCK, guard.lost()).await?;
    assert_eq!((lost.name.as_str(), lost.loss), ("b", Loss::TimeEnded));
    assert!(!guard.is_valid() && both.file.inspect("a").await?.is_held());
    let error = guard.release().await.expect_err("it was lost");
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Lost, Some("b")), "{error}");
    assert!(!both.file.inspect("a").await?.is_held());
    Ok(())
}

/// While one server does not answer, nothing is held on the other; and when it is back, all are granted.
async fn stopped_while_wanted() -> Checked {
    let both = Both::new().await?;
    both.lock().acquire().await?.release().await?;
    both.server.stop()?;
    let lock = both.lock();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(4 * LEASE / 3).await;
    for _ in 0..20 {
        let free = both.file.lock("a")?.acquire_within(STUCK).await?;
        free.granted().ok_or("the file's lock is held while nobody can have both")?.release().await?;
    }
    let ended = tokio::time::timeout(STUCK, both.lock().acquire_within(300 * MS)).await?;
    assert!(!matches!(ended, Ok(Attempt::Granted(_))), "a server that stands still has granted it");
    both.server.go_on()?;
    tokio::time::timeout(STUCK, waiting).await???.release().await?;
    quiet(&both.file).await?;
    quiet(&both.redis).await
}
