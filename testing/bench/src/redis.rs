//! `redis:` on a server of its own, under many tasks and with many locks. One task alone is `solo.rs`, several processes are `handoff.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Lock};
use leasehold_faults::servers;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo, Value};
use tokio::runtime::Runtime;

use crate::figure::Figure;
use crate::load::{self, Work, rate_of_lock};
use crate::ratio::SideBySide;
use crate::scripts::OwnScripts;
use crate::socket::BlockingSocket;

const ROUNDS: usize = 9;
const FLEET: usize = 1_000;
/// Of rslock, which has no default.
const LEASE: Duration = Duration::from_secs(30);
const FLEET_ROUND: Duration = Duration::from_secs(1);
const HELD: usize = 100_000;
const HELD_FOR: Duration = Duration::from_secs(30);

/// What leasehold sends. Scripts ask for the time as well; clients do so once, when they connect.
pub(crate) const SENT: &[&str] = &["evalsha", "eval", "subscribe", "unsubscribe", "hello", "client|setinfo"];

/// A server, and what is measured on it.
pub(crate) struct Place(pub(crate) servers::Redis);

impl Place {
    pub(crate) fn new() -> Self {
        Self(servers::Redis::start().expect("a server of Redis"))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.0.address())
    }

    pub(crate) fn client(&self, runtime: &Runtime) -> Client {
        runtime.block_on(Client::connect(&self.url())).expect("a client")
    }

    /// Commands that leasehold has sent; what scripts call does not count.
    pub(crate) fn commands(&self) -> f64 {
        self.calls_of(SENT)
    }

    /// How often the server was given one of these.
    pub(crate) fn calls_of(&self, sent: &[&str]) -> f64 {
        let calls = |(key, value): &(String, String)| {
            let name = key.strip_prefix("cmdstat_")?;
            sent.contains(&name).then(|| value.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok())?
        };
        info(&self.0, "commandstats").iter().filter_map(calls).sum()
    }
}

/// A section of what the server tells of itself, as pairs.
pub(crate) fn info(server: &servers::Redis, section: &str) -> Vec<(String, String)> {
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

/// The store's own scripts, sent without a client around them over a connection that many tasks share.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    scripts: OwnScripts,
}

/// Connects as the store itself does.
async fn connect(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a URL");
    let login = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    let nodelay = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(info.set_redis_settings(login).set_tcp_settings(nodelay)).expect("a client");
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_millis(1_500)))
        .set_pipeline_buffer_size(1_024);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

/// An answer, which must not be an error.
async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> Value {
    connection.send_packed_command(command).await.and_then(Value::extract_error).expect("an answer")
}

impl Bare {
    async fn take_and_release(&mut self) {
        let taken = send(&mut self.connection, &self.scripts.acquire(false)).await;
        let fence = match &taken {
            Value::Array(parts) => match &parts[..] {
                [_, _, Value::Array(grant)] => match grant[0] {
                    Value::Int(fence) => fence as u64,
                    _ => panic!("a fence in {taken:?}"),
                },
                _ => panic!("a grant, not {taken:?}"),
            },
            _ => panic!("a grant, not {taken:?}"),
        };
        let given = send(&mut self.connection, &self.scripts.release(fence, false)).await;
        assert!(matches!(&given, Value::Array(parts) if parts.len() == 3), "{given:?}");
    }
}

/// A thousand tasks on names of their own over one connection, beside the same scripts sent bare and pipelined, and beside rslock.
pub(crate) fn fleet() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let client = place.client(&runtime);
    let plain = runtime.block_on(Client::connect(&format!("{}?layout=plain", place.url()))).expect("a client");
    let (bare, digests) =
        (runtime.block_on(connect(&place.url())), OwnScripts::digests(&mut BlockingSocket::connect(place.0.address())));
    let rslock = rslock::LockManager::new(vec![place.url()]);
    let rounds = SideBySide::new("/s")
        .thing("bare", || {
            rate(&runtime, |task, stop, count| {
                let scripts = OwnScripts::of(digests.clone(), &format!("bare-{task}"), task as u64);
                let mut bare = Bare { connection: bare.clone(), scripts };
                async move {
                    while !stop.load(Ordering::Relaxed) {
                        bare.take_and_release().await;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .thing("redis:", || rate_of_locks(&runtime, |task| client.lock(format!("ours-{task}")).expect("a name")))
        .thing("plain", || rate_of_locks(&runtime, |task| plain.lock(format!("plain-{task}")).expect("a name")))
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

/// Takes and releases of locks that nobody else wants.
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
    let lock = place.client(&runtime).lock("hot").expect("a name");
    let rounds = SideBySide::new("/s").thing("redis:", || rate_of_lock(&runtime, &lock, Work::Yield)).run(ROUNDS);
    vec![Figure::median("redis: 64 tasks on one name, grants", &rounds.of("redis:"), "/s")]
}

/// A hundred thousand locks kept by one process: what it costs the client and the server.
pub(crate) fn hold() -> Vec<Figure> {
    let (place, runtime) = (Place::new(), load::runtime());
    let client = place.client(&runtime);
    let guards = runtime.block_on(async {
        let mut taking = tokio::task::JoinSet::new();
        for at in 0..HELD {
            let lock = client.lock(format!("held-{at}")).expect("a name");
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
