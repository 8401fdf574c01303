//! `redis:` on a server of its own: against the same scripts sent bare over the same library, and under many tasks and processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Lock};
use leasehold_faults::servers;
use leasehold_redis::{Layout, script_texts};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo, Value};
use tokio::runtime::Runtime;

use crate::figure::Figure;
use crate::load::{self, Work, rate_of_lock};
use crate::program::{bench, number};
use crate::ratio::SideBySide;
use crate::single::{take_and_release, times, us};

const ROUNDS: usize = 9;
const TIMES: u32 = 5_000;
const FLEET: usize = 1_000;
/// Of rslock, which has no default.
const LEASE: Duration = Duration::from_secs(30);
const FLEET_ROUND: Duration = Duration::from_secs(1);
const HELD: usize = 100_000;
const HELD_FOR: Duration = Duration::from_secs(30);

/// A server, and what is measured on it.
struct Place(servers::Redis);

impl Place {
    fn new() -> Self {
        Self(servers::Redis::start().expect("a server of Redis"))
    }

    fn url(&self) -> String {
        format!("redis://{}", self.0.address())
    }

    fn client(&self, runtime: &Runtime) -> Client {
        runtime.block_on(Client::connect(&self.url())).expect("a client")
    }

    /// Commands that clients have sent; what scripts call does not count.
    fn commands(&self) -> f64 {
        // Scripts ask for the time as well; clients do so once, when they connect.
        let sent = ["evalsha", "eval", "subscribe", "unsubscribe", "hello", "client|setinfo"];
        let calls = |(key, value): &(String, String)| {
            let name = key.strip_prefix("cmdstat_")?;
            sent.contains(&name).then(|| value.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok())?
        };
        info(&self.0, "commandstats").iter().filter_map(calls).sum()
    }
}

/// A section of the server's INFO, as pairs.
fn info(server: &servers::Redis, section: &str) -> Vec<(String, String)> {
    let said = server.command(&["INFO", section]).expect("an answer");
    let said = said.text().expect("text");
    let pairs = said.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// Seconds of a core that the server has used.
pub(crate) fn cpu(server: &servers::Redis) -> f64 {
    let pairs = info(server, "cpu");
    let of =
        |name: &str| pairs.iter().find(|(key, _)| key == name).map_or(0.0, |(_, value)| value.parse().unwrap_or(0.0));
    of("used_cpu_user") + of("used_cpu_sys")
}

/// The store's own scripts, called without a client around them.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
}

/// Connects as the store itself does.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a URL");
    let login = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    let nodelay = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(info.set_redis_settings(login).set_tcp_settings(nodelay)).expect("a client");
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_millis(1_500)))
        .set_pipeline_buffer_size(1_024);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

/// The digest of a script that the server has from now on.
pub(crate) async fn load(connection: &mut MultiplexedConnection, text: &str) -> Arc<str> {
    let mut load = redis::cmd("SCRIPT");
    match send(connection, load.arg("LOAD").arg(text)).await {
        Value::BulkString(digest) => String::from_utf8_lossy(&digest).into(),
        other => panic!("a digest, not {other:?}"),
    }
}

/// An answer, which must not be an error.
pub(crate) async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> Value {
    connection.send_packed_command(command).await.and_then(Value::extract_error).expect("an answer")
}

/// The text of one of the store's scripts.
pub(crate) fn script(layout: Layout, operation: &str) -> String {
    script_texts(layout).find(|(name, _)| *name == operation).expect("an operation of the store").1
}

impl Bare {
    async fn connect(place: &Place) -> Self {
        let mut connection = connect(&place.url()).await;
        let acquire = load(&mut connection, &script(Layout::Redisson, "acquire")).await;
        let release = load(&mut connection, &script(Layout::Redisson, "release")).await;
        Self { connection, acquire, release }
    }

    fn call(digest: &str, name: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(7).arg(name);
        for part in ["leasehold_fence", "leasehold_lock", "leasehold_line", "leasehold_heard", "redisson_lock_token"] {
            command.arg(format!("{part}:{{{name}}}"));
        }
        command.arg(format!("redisson_lock__channel:{{{name}}}"));
        command
    }

    async fn take_and_release(&mut self, name: &str, number: u64) -> Duration {
        let began = Instant::now();
        let owner = format!("00000000-0000-0000-0000-000000000001:{number}");
        let mut take = Self::call(&self.acquire, name);
        take.arg(format!("p{owner}")).arg(&owner).arg(30_000).arg(1).arg(0).arg(1_u64 << 53);
        let taken = send(&mut self.connection, take.arg("1").arg(0).arg("1\nhost\n").arg(0).arg(0)).await;
        let fence = match &taken {
            Value::Array(parts) => match &parts[..] {
                [_, _, Value::Array(grant)] => match grant[0] {
                    Value::Int(fence) => fence,
                    _ => panic!("a fence in {taken:?}"),
                },
                _ => panic!("a grant, not {taken:?}"),
            },
            _ => panic!("a grant, not {taken:?}"),
        };
        let mut give = Self::call(&self.release, name);
        give.arg(name).arg(format!("p{owner}")).arg(&owner).arg("hold").arg(fence).arg("").arg(0).arg("1").arg(0);
        let given = send(&mut self.connection, &give).await;
        assert!(matches!(&given, Value::Array(parts) if parts.len() == 3), "{given:?}");
        began.elapsed()
    }
}

/// Take and release by one task, beside the same two scripts called bare.
pub(crate) fn solo() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let lock = place.client(&runtime).lock("alone");
    let mut bare = runtime.block_on(Bare::connect(&place));
    let mut number = 0;
    let before = place.commands();
    let asked = runtime.block_on(async {
        for _ in 0..TIMES {
            take_and_release(&lock).await;
        }
        f64::from(TIMES)
    });
    let commands = (place.commands() - before) / asked;
    let rounds = SideBySide::new("us")
        .thing("bare", || {
            let next = async || {
                number += 1;
                bare.take_and_release("bare", number).await
            };
            us(&runtime.block_on(times(TIMES, next)), 0.5)
        })
        .thing("redis:", || us(&runtime.block_on(times(TIMES, async || take_and_release(&lock).await)), 0.5))
        .run(ROUNDS);
    vec![
        Figure::median("redis: take and release, median", &rounds.of("redis:"), "us"),
        Figure::median("the same two scripts called bare, median", &rounds.of("bare"), "us"),
        Figure::median("ratio", &rounds.ratio("redis:", "bare"), "").at_most(1.15),
        Figure::told("client commands for a take and a release", commands, "").at_most(2.01),
    ]
}

/// A thousand tasks on names of their own over one connection, beside the same scripts sent bare and pipelined, and beside rslock.
pub(crate) fn fleet() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let client = place.client(&runtime);
    let plain = runtime.block_on(Client::connect(&format!("{}?layout=plain", place.url()))).expect("a client");
    let bare = runtime.block_on(Bare::connect(&place));
    let rslock = rslock::LockManager::new(vec![place.url()]);
    let rounds = SideBySide::new("/s")
        .thing("bare", || {
            rate(&runtime, |task, stop, count| {
                let mut bare = bare.clone();
                async move {
                    let name = format!("bare-{task}");
                    while !stop.load(Ordering::Relaxed) {
                        bare.take_and_release(&name, count.fetch_add(1, Ordering::Relaxed)).await;
                    }
                }
            })
        })
        .thing("redis:", || rate_of_locks(&runtime, |task| client.lock(format!("ours-{task}"))))
        .thing("plain", || rate_of_locks(&runtime, |task| plain.lock(format!("plain-{task}"))))
        .thing("rslock", || {
            rate(&runtime, |task, stop, count| {
                let locks = rslock.clone();
                async move {
                    let name = format!("rslock-{task}");
                    while !stop.load(Ordering::Relaxed) {
                        let lock = locks.lock(name.as_str(), LEASE).await.expect("a grant");
                        lock.release().await;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .run(ROUNDS);
    vec![
        Figure::median("redis: 1,000 tasks on 1,000 names, takes and releases", &rounds.of("redis:"), "/s"),
        Figure::median("the same scripts bare and pipelined", &rounds.of("bare"), "/s"),
        Figure::median("ratio", &rounds.ratio("redis:", "bare"), "").at_least(0.9),
        Figure::median("rslock, which has no fences", &rounds.of("rslock"), "/s"),
        Figure::median("ratio to rslock", &rounds.ratio("redis:", "rslock"), "").at_least(1.0),
        Figure::median("the same in its layout", &rounds.ratio("plain", "rslock"), ""),
    ]
}

/// Acquires and releases uncontended locks.
fn rate_of_locks(runtime: &Runtime, lock: impl Fn(usize) -> Lock) -> f64 {
    rate(runtime, |task, stop, count| {
        let lock = lock(task);
        async move {
            while !stop.load(Ordering::Relaxed) {
                lock.acquire().await.expect("a grant").release().await.expect("a release");
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
}

fn rate<F>(runtime: &Runtime, task: impl Fn(usize, Arc<AtomicBool>, Arc<AtomicU64>) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..FLEET).map(|at| tokio::spawn(task(at, stop.clone(), count.clone()))).collect();
        tokio::time::sleep(FLEET_ROUND).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a task");
        }
    });
    count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// 64 tasks of one process on one name.
pub(crate) fn hot() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let lock = place.client(&runtime).lock("hot");
    let rounds = SideBySide::new("/s").thing("redis:", || rate_of_lock(&runtime, &lock, Work::Yield)).run(ROUNDS);
    vec![Figure::median("redis: 64 tasks on one name, grants", &rounds.of("redis:"), "/s")]
}

/// Processes on one name: how fast it goes from one to the next, and what it costs the server.
pub(crate) fn crowd() -> Vec<Figure> {
    let mut figures = Vec::new();
    for processes in ["2", "8", "32"] {
        let place = Place::new();
        let before = place.commands();
        let options = ["--workload", "crowd", "--processes", processes, "--for", "5s"];
        let report = bench(&place.url(), &options);
        let of = |field: &str| number(&report, field);
        let commands = (place.commands() - before) / of("ops");
        figures.push(Figure::told(format!("redis: {processes} processes on one name, grants"), of("ops_per_s"), "/s"));
        figures.push(Figure::told("from a release to the next grant, median", of("hand_off_p50_us"), "us"));
        figures.push(Figure::told("share of the slowest process, of the mean", of("smallest_share"), "").at_least(0.5));
        figures.push(Figure::told("client commands a passing on", commands, "").at_most(4.0));
    }
    figures
}

/// A hundred thousand locks kept by one process: what it costs the client and the server.
pub(crate) fn hold() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let client = place.client(&runtime);
    let guards = runtime.block_on(async {
        let mut taking = tokio::task::JoinSet::new();
        for at in 0..HELD {
            let lock = client.lock(format!("held-{at}"));
            taking.spawn(async move { lock.acquire().await });
        }
        let guards = taking.join_all().await.into_iter();
        guards.collect::<Result<Vec<_>, _>>().expect("every lock")
    });
    // The first renewals come together; then they spread.
    std::thread::sleep(Duration::from_secs(15));
    let (began, ours, theirs) = (Instant::now(), leasehold_clock::cpu(), cpu(&place.0));
    std::thread::sleep(HELD_FOR);
    let span = began.elapsed().as_secs_f64();
    let ours = leasehold_clock::cpu().saturating_sub(ours).as_secs_f64() / span * 100.0;
    let theirs = (cpu(&place.0) - theirs) / span * 100.0;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    vec![
        Figure::told("redis: 100,000 held locks: lost", lost as f64, "").at_most(0.0),
        Figure::told("client's processor while they are kept, of one core", ours, "%").at_most(10.0),
        Figure::told("server's", theirs, "%").at_most(15.0),
    ]
}
