//! `redlock:` over five servers against one of them, with servers of the five that cannot be reached, and against the same scripts sent bare.
//!
//! Packets to those servers are dropped in a network namespace of this measurement. Without one, their processes are
//! stopped instead, which is nearly the same: bytes arrive and are not read.
//!
//! All of it shares the processors of one machine: five servers do five times the work of one, wherever there are fewer than six. So one
//! server and five are compared a second time with a network of a millisecond before each, where what counts is how often one waits.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use leasehold::{Client, Lock};
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;
use leasehold_redis::Layout;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::runtime::Runtime;

use crate::figure::Figure;
use crate::load;
use crate::ratio::{Rounds, SideBySide};
use crate::redis::{connect, cpu, load as load_script, script, send};
use crate::single::{take_and_release, times, us};

/// Marks the measuring process, and says how servers are made silent.
pub(crate) const MEASURE: &str = "--redlock";
const DROPPED: &str = "dropped";
const STOPPED: &str = "stopped";

const ROUNDS: usize = 15;
const TIMES: u32 = 500;
/// Each of them takes twenty times as long.
const FAR_TIMES: u32 = 100;
/// How far away a network is, in each direction.
const FAR: Duration = Duration::from_millis(1);
/// Short, so that new servers vote soon; nothing is held for so long.
const QUARANTINE: Duration = Duration::from_secs(2);
const VOTES_WITHIN: Duration = Duration::from_secs(20);
/// Waits until every process knows which servers are unreachable.
const KNOWN: Duration = Duration::from_secs(3);

const ONE: &str = "one server";
const FIVE: &str = "five servers";
const FOUR: &str = "five, one dark";
const THREE: &str = "five, two dark";
const FIVE_BUSY: &str = "processor, five servers";
const FIVE_ALL_BUSY: &str = "processor, and the client";
const FAR_ONE: &str = "far away, one server";
const FAR_FIVE: &str = "far away, five servers";
const BARE_ONE: &str = "bare, one";
const BARE_THREE: &str = "bare, three at once";
const BARE_FIVE: &str = "bare, three of five";
/// What is compared stands side by side.
const THINGS: [&str; 11] =
    [BARE_ONE, ONE, FIVE, FIVE_BUSY, FIVE_ALL_BUSY, FOUR, THREE, BARE_THREE, BARE_FIVE, FAR_ONE, FAR_FIVE];

/// Sets up routing rules in a new network namespace, then runs the rest of the line.
const ENTER: &str = r#"ip link set lo up && echo 0 >/proc/sys/net/ipv4/conf/lo/disable_policy && ip xfrm policy flush && exec "$0" "$@""#;

/// Take and release over five servers, all of them well, and with one or two that cannot be reached.
pub(crate) fn latency() -> Vec<Figure> {
    let rounds = measured();
    let figure = |what: &str, name| Figure::median(what, &rounds.of(name), "us");
    let ratio = |what: &str, a, b| Figure::median(what, &rounds.ratio(a, b), "");
    vec![
        figure("redis: one server, plain, 1 ms away: take and release, median", FAR_ONE),
        figure("redlock: five servers, 1 ms away", FAR_FIVE),
        ratio("five servers, a network of 1 ms away, ratio to one server", FAR_FIVE, FAR_ONE).at_most(1.4),
        figure("redis: one server, plain: take and release, median", ONE),
        figure("redlock: five servers", FIVE),
        ratio("five servers, on this machine, ratio to one server", FIVE, ONE).at_most(1.4),
        figure("processor that the five servers use for one take and release", FIVE_BUSY),
        figure("processor that they and the client use for it", FIVE_ALL_BUSY),
        Figure::median(
            "the servers' alone, shared by this machine's processors, ratio to one server: no client gets below it",
            &rounds.ratio(FIVE_BUSY, ONE).shared(),
            "",
        ),
        figure("the same scripts bare, to one", BARE_ONE),
        figure("the same scripts bare, at once to five, three awaited", BARE_FIVE),
        ratio("what this machine gives: bare, three of five to one", BARE_FIVE, BARE_ONE),
        ratio("redlock: five servers, ratio to bare, three of five", FIVE, BARE_FIVE),
        figure("redlock: one of five dark", FOUR),
        ratio("ratio to five that are well", FOUR, FIVE).at_most(1.15),
        figure("redlock: two of five dark", THREE),
        figure("the same scripts bare, at once to three, all awaited", BARE_THREE),
        ratio("ratio", THREE, BARE_THREE).at_most(1.1),
    ]
}

/// Marks a process that measures in a network namespace of its own, or without one.
fn measured() -> Rounds {
    let networks = [&["unshare", "--net"][..], &["unshare", "--map-root-user", "--net"]];
    let entered = networks
        .into_iter()
        .find(|network| enter(network, &["true".into()]).output().is_ok_and(|ran| ran.status.success()));
    let this = std::env::current_exe().expect("the path of this program").display().to_string();
    let mut command = match entered {
        Some(network) => enter(network, &[this, MEASURE.into(), DROPPED.into()]),
        None => {
            eprintln!("    no network of its own can be had: servers are stopped instead");
            let mut command = Command::new(this);
            command.args([MEASURE, STOPPED]);
            command
        }
    };
    // It ends with this process, however that ends: its input does.
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut child = child.expect("it runs");
    let until = child.stdin.take();
    let output = child.wait_with_output().expect("it ends");
    drop(until);
    assert!(output.status.success(), "measuring: {}", output.status);
    Rounds::told("us", THINGS.to_vec(), serde_json::from_slice(&output.stdout).expect("numbers"))
}

fn enter(network: &[&str], line: &[String]) -> Command {
    let mut command = Command::new(network[0]);
    command.args(&network[1..]).args(["sh", "-c", ENTER]).args(line);
    command
}

/// Measures, and prints every round as JSON.
pub(crate) fn measure(how: &str) {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    let servers: Vec<Redis> = (0..7).map(|_| Redis::start().expect("a server of Redis")).collect();
    let (well, dark) = servers.split_at(5);
    let runtime = load::runtime();
    let far: Vec<Proxy> = well.iter().map(far_away).collect();
    let one = lock_of(&runtime, well[0].address(), "one");
    let five = lock_over(&runtime, well.iter().map(Redis::address), "five");
    let four = lock_over(&runtime, well[..4].iter().chain(&dark[..1]).map(Redis::address), "four");
    let three = lock_over(&runtime, well[..3].iter().chain(dark).map(Redis::address), "three");
    let far_one = lock_of(&runtime, far[0].address(), "far one");
    let far_five = lock_over(&runtime, far.iter().map(Proxy::address), "far five");
    let bare = runtime.block_on(Bare::connect(well));
    for server in dark {
        blacken(server, how);
    }
    let known = Instant::now();
    while known.elapsed() < KNOWN {
        runtime.block_on(async {
            take_and_release(&four).await;
            take_and_release(&three).await;
        });
    }
    let so_often = |count, lock: &Lock| us(&runtime.block_on(times(count, async || take_and_release(lock).await)), 0.5);
    let (of, of_far) = (|lock: &Lock| so_often(TIMES, lock), |lock: &Lock| so_often(FAR_TIMES, lock));
    let bare_of = |servers: usize, needed: usize| {
        let mut bare = bare.first(servers);
        let took = us(&runtime.block_on(times(TIMES, async || bare.take_and_release(needed).await)), 0.5);
        runtime.block_on(bare.settle());
        took
    };
    let busy = Cell::new(Busy::default());
    let rounds = SideBySide::new("us")
        .thing(BARE_ONE, || bare_of(1, 1))
        .thing(ONE, || of(&one))
        .thing(FIVE, || {
            let before = Busy::so_far(well);
            let took = of(&five);
            busy.set(Busy::so_far(well).since(before));
            took
        })
        .thing(FIVE_BUSY, || busy.get().servers / f64::from(TIMES))
        .thing(FIVE_ALL_BUSY, || (busy.get().servers + busy.get().client) / f64::from(TIMES))
        .thing(FOUR, || of(&four))
        .thing(THREE, || of(&three))
        .thing(BARE_THREE, || bare_of(3, 3))
        .thing(BARE_FIVE, || bare_of(5, 3))
        .thing(FAR_ONE, || of_far(&far_one))
        .thing(FAR_FIVE, || of_far(&far_five))
        .run(ROUNDS);
    println!("{}", serde_json::to_string(rounds.values()).expect("JSON"));
}

/// Time of processors that was used, in microseconds.
#[derive(Clone, Copy, Default)]
struct Busy {
    servers: f64,
    client: f64,
}

impl Busy {
    fn so_far(servers: &[Redis]) -> Self {
        Self { servers: servers.iter().map(cpu).sum::<f64>() * 1e6, client: leasehold_clock::cpu().as_secs_f64() * 1e6 }
    }

    fn since(self, before: Self) -> Self {
        Self { servers: self.servers - before.servers, client: self.client - before.client }
    }
}

/// A network before a server.
fn far_away(server: &Redis) -> Proxy {
    let network = Proxy::before(server.address()).expect("a proxy");
    network.delay(FAR);
    network
}

/// A lock of one server.
fn lock_of(runtime: &Runtime, server: SocketAddr, name: &str) -> Lock {
    let url = format!("redis://{server}?layout=plain&keep={}s", QUARANTINE.as_secs());
    runtime.block_on(Client::connect(&url)).expect("a client").lock(name)
}

/// A lock over these, once they vote.
fn lock_over(runtime: &Runtime, servers: impl Iterator<Item = SocketAddr>, name: &str) -> Lock {
    let places: Vec<String> = servers.map(|server| server.to_string()).collect();
    let span = QUARANTINE.as_secs();
    let url = format!("redlock://{}?quarantine={span}s&keep={span}s", places.join(","));
    let lock = runtime.block_on(Client::connect(&url)).expect("a client").lock(name);
    let began = Instant::now();
    loop {
        match runtime.block_on(async { lock.acquire().await?.release().await }) {
            Ok(()) => return lock,
            Err(error) => assert!(began.elapsed() < VOTES_WITHIN, "{error}"),
        }
        std::thread::sleep(QUARANTINE / 10);
    }
}

/// Nothing comes to this server or from it any more.
fn blacken(server: &Redis, how: &str) {
    if how == STOPPED {
        return server.stop().expect("it stops");
    }
    for port in ["dport", "sport"] {
        let number = server.address().port().to_string();
        let ran = Command::new("ip")
            .args("xfrm policy add src 127.0.0.1/32 dst 127.0.0.1/32 proto tcp".split(' '))
            .args([port, &number, "dir", "in", "action", "block"])
            .status();
        assert!(ran.expect("ip runs").success(), "a rule that drops what is sent");
    }
}

/// The scripts of a vote and of a release, called without anything around them.
struct Bare {
    servers: Vec<Server>,
    /// Under way, and not waited for.
    late: Vec<Answering>,
}

type Answering = Pin<Box<dyn Future<Output = Value>>>;

#[derive(Clone)]
struct Server {
    connection: MultiplexedConnection,
    vote: Arc<str>,
    release: Arc<str>,
}

const CLIENT: &str = "00000000-0000-0000-0000-000000000001";
/// Where fences begin, in microseconds since 1970, and how many there are in one.
const FENCE_EPOCH: u64 = 1_577_836_800_000_000;
const FENCES: u64 = 8;

impl Bare {
    async fn connect(servers: &[Redis]) -> Self {
        let mut connected = Vec::new();
        for server in servers {
            let mut connection = connect(&format!("redis://{}", server.address())).await;
            let vote = load_script(&mut connection, &script(Layout::Plain, "vote")).await;
            let release = load_script(&mut connection, &script(Layout::Plain, "release")).await;
            connected.push(Server { connection, vote, release });
        }
        Self { servers: connected, late: Vec::new() }
    }

    /// The first of them.
    fn first(&self, count: usize) -> Self {
        Self { servers: self.servers[..count].to_vec(), late: Vec::new() }
    }

    /// Both are sent to every server at once; this many servers must have done each.
    async fn take_and_release(&mut self, needed: usize) -> Duration {
        let began = Instant::now();
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_micros() as u64;
        let fence = (now - FENCE_EPOCH) * FENCES;
        let owner = format!("{CLIENT}:{fence}");
        self.each(needed, "took", |server| vote(&server.vote, &owner, fence)).await;
        self.each(needed, "released", |server| release(&server.release, &owner, fence)).await;
        began.elapsed()
    }

    /// Waits for all that was not waited for.
    async fn settle(&mut self) {
        for call in self.late.drain(..) {
            call.await;
        }
    }

    async fn each(&mut self, needed: usize, wanted: &str, command: impl Fn(&Server) -> Cmd) {
        self.late.retain_mut(|call| call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let calls = self.servers.iter().map(|server| -> Answering {
            let (command, mut connection) = (command(server), server.connection.clone());
            Box::pin(async move { send(&mut connection, &command).await })
        });
        let mut calls: Vec<Answering> = calls.collect();
        let mut done = 0;
        let all = poll_fn(|task| {
            calls.retain_mut(|call| match call.as_mut().poll(task) {
                Poll::Ready(answer) => {
                    assert!(says(&answer, wanted), "{wanted}, not {answer:?}");
                    done += 1;
                    false
                }
                Poll::Pending => true,
            });
            if done >= needed { Poll::Ready(()) } else { Poll::Pending }
        });
        all.await;
        self.late.append(&mut calls);
    }
}

fn says(answer: &Value, wanted: &str) -> bool {
    let word = match answer {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    matches!(word, Some(Value::BulkString(word)) if word == wanted.as_bytes())
}

fn keys(command: &mut Cmd) {
    command.arg("bare");
    for part in ["leasehold_fence", "leasehold_lock", "leasehold_line", "leasehold_heard"] {
        command.arg(format!("{part}:{{bare}}"));
    }
}

fn vote(digest: &str, owner: &str, fence: u64) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(6);
    keys(&mut command);
    command
        .arg("leasehold_birth")
        .arg(format!("p{owner}"))
        .arg(owner)
        .arg(2_000)
        .arg(fence)
        .arg(1)
        .arg(0)
        .arg(1_u64 << 53);
    command.arg(CLIENT).arg(0).arg("1\nhost\n").arg(QUARANTINE.as_millis() as u64).arg(0);
    command
}

fn release(digest: &str, owner: &str, fence: u64) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(5);
    keys(&mut command);
    command.arg("bare").arg(format!("p{owner}")).arg(owner).arg("hold").arg(fence).arg("").arg(0);
    command.arg(CLIENT).arg(0).arg(0);
    command
}
