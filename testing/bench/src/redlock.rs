//! `redlock-peers`: `redlock:` over five servers against one of them, with servers of the five that cannot be reached, against the same
//! scripts on bare sockets, and beside other libraries that do Redlock.
//!
//! What is sent to those servers is dropped without a word, in a network of this measurement's own; where none can be had, their
//! processes are stopped instead, which is all but the same: bytes arrive, and nobody reads them.
//!
//! All of it shares the processors of one machine: five servers do five times the work of one, wherever there are fewer than six. So one
//! server and five are compared a second time with a network of a millisecond before each, where what counts is how often one waits.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use leasehold::{Client, Lock};
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;
use leasehold_redis::Layout;
use redis::Cmd;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::comparison::{Comparison, Effort};
use crate::figure::Figure;
use crate::peers::Peers;
use crate::ratio::{Rounds, SideBySide};
use crate::redis::cpu;
use crate::scripts::{FENCE_EPOCH, FENCES, load, script};
use crate::single::{median, runtime, take_and_release, times, us};
use crate::socket::BlockingSocket;

/// Says that this process is to measure, and how servers are made dark.
pub(crate) const MEASURE: &str = "--redlock";
const DROPPED: &str = "dropped";
const STOPPED: &str = "stopped";

/// Pairs of one server that take as long as one pair of five, and as one of five that are far away.
const FIVE_TAKES: u32 = 6;
const FAR_TAKES: u32 = 30;
/// How far away a network is, in each direction.
const FAR: Duration = Duration::from_millis(1);
/// Short, so that new servers vote soon; nothing is held for so long.
const QUARANTINE: Duration = Duration::from_secs(2);
const VOTES_WITHIN: Duration = Duration::from_secs(20);
/// Until those who cannot be reached are known to all.
const KNOWN: Duration = Duration::from_secs(3);

const ONE: &str = "leasehold, one server (redis:)";
const FIVE: &str = "leasehold, five servers";
const FOUR: &str = "leasehold, five servers, one dark";
const THREE: &str = "leasehold, five servers, two dark";
const FIVE_BUSY: &str = "processor, five servers";
const FIVE_ALL_BUSY: &str = "processor, and the client";
const FAR_ONE: &str = "leasehold, one server (redis:), 1 ms away";
const FAR_FIVE: &str = "leasehold, five servers, 1 ms away";
const BARE_ONE: &str = "leasehold's scripts bare, one server";
const BARE_THREE: &str = "leasehold's scripts bare, three at once";
const BARE_FIVE: &str = "leasehold's scripts bare, three of five";
/// Other libraries, and over how many servers.
const PEERS: [(&str, usize); 6] =
    [("redsync", 3), ("redsync", 5), ("node-redlock", 3), ("node-redlock", 5), ("pottery", 3), ("pottery", 5)];

/// Gives a new network a way to itself that obeys rules, then runs the rest of the line.
const ENTER: &str = r#"ip link set lo up && echo 0 >/proc/sys/net/ipv4/conf/lo/disable_policy && ip xfrm policy flush && exec "$0" "$@""#;

/// Take and release over five servers, all of them well, and with one or two that cannot be reached.
pub(crate) fn redlock(effort: Effort) -> Comparison {
    let Measured { rounds, peers, ignored } = measured(effort);
    let figure = |what: &str, name| Figure::median(what, &rounds.of(name), "us");
    let ratio = |what: &str, a, b| Figure::median(what, &rounds.ratio(a, b), "");
    let figures = vec![
        figure("redis: one server, plain, 1 ms away: take and release, median", FAR_ONE),
        figure("redlock: five servers, 1 ms away", FAR_FIVE),
        ratio("five servers, a network of 1 ms away, ratio to one server", FAR_FIVE, FAR_ONE).at_most(1.15),
        figure("redis: one server, plain: take and release, median", ONE),
        figure("redlock: five servers", FIVE),
        figure("the same scripts bare, at once to five, three awaited", BARE_FIVE),
        ratio("redlock: five servers, ratio to bare, three of five", FIVE, BARE_FIVE).at_most(1.15),
        ratio("five servers, on this machine, ratio to one server", FIVE, ONE),
        figure("the same scripts bare, to one", BARE_ONE),
        ratio("what this machine gives: bare, three of five to one", BARE_FIVE, BARE_ONE),
        figure("processor that the five servers use for one take and release", FIVE_BUSY),
        figure("processor that they and the client use for it", FIVE_ALL_BUSY),
        figure("redlock: one of five dark", FOUR),
        ratio("redlock: one of five dark, ratio to five that are well", FOUR, FIVE).at_most(1.15),
        figure("redlock: two of five dark", THREE),
        figure("the same scripts bare, at once to three, all awaited", BARE_THREE),
        ratio("redlock: two of five dark, ratio to bare, three at once", THREE, BARE_THREE).at_most(1.1),
    ];
    let here = [BARE_FIVE, BARE_THREE, BARE_ONE, FIVE, FOUR, THREE, ONE].into_iter();
    let here = rounds.only(here.chain(peers.iter().map(String::as_str)));
    let tables = vec![
        ("Redlock, servers on the same machine".into(), here),
        ("Redlock, servers behind a network of 1 ms in each direction".into(), rounds.only([FAR_ONE, FAR_FIVE])),
    ];
    Comparison { tables, figures, ignored }
}

/// What the process says that measures.
#[derive(Serialize, Deserialize)]
struct Measured {
    rounds: Rounds,
    peers: Vec<String>,
    ignored: Vec<String>,
}

/// What a process says that measures in a network of its own, or without one.
fn measured(effort: Effort) -> Measured {
    let networks = [&["unshare", "--net"][..], &["unshare", "--map-root-user", "--net"]];
    let entered = networks
        .into_iter()
        .find(|network| enter(network, &["true".into()]).output().is_ok_and(|ran| ran.status.success()));
    let this = std::env::current_exe().expect("the path of this program").display().to_string();
    let told = |how: &str| [MEASURE, how, &effort.rounds.to_string(), &effort.pairs.to_string()].map(str::to_owned);
    let mut command = match entered {
        Some(network) => enter(network, &[&[this][..], &told(DROPPED)].concat()),
        None => {
            eprintln!("    no network of its own can be had: servers are stopped instead");
            let mut command = Command::new(this);
            command.args(told(STOPPED));
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
    serde_json::from_slice(&output.stdout).expect("what was measured")
}

fn enter(network: &[&str], line: &[String]) -> Command {
    let mut command = Command::new(network[0]);
    command.args(&network[1..]).args(["sh", "-c", ENTER]).args(line);
    command
}

/// Measures, and prints every round as JSON.
pub(crate) fn measure(how: &str, effort: Effort) {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    let servers: Vec<Redis> = (0..7).map(|_| Redis::start().expect("a server of Redis")).collect();
    let (well, dark) = servers.split_at(5);
    let runtime = runtime();
    let far: Vec<Proxy> = well.iter().map(far_away).collect();
    let one = lock_of(&runtime, well[0].address(), "one");
    let five = lock_over(&runtime, well.iter().map(Redis::address), "five");
    let four = lock_over(&runtime, well[..4].iter().chain(&dark[..1]).map(Redis::address), "four");
    let three = lock_over(&runtime, well[..3].iter().chain(dark).map(Redis::address), "three");
    let far_one = lock_of(&runtime, far[0].address(), "far one");
    let far_five = lock_over(&runtime, far.iter().map(Proxy::address), "far five");
    let bare = RefCell::new(Bare::connect(well));
    let mut peers = Peers::default();
    for (name, count) in PEERS {
        let servers: Vec<SocketAddr> = well[..count].iter().map(Redis::address).collect();
        peers.start(name, &servers, &format!(", {count} servers"));
    }
    let (pairs, far_pairs) = ((effort.pairs / FIVE_TAKES).max(1), (effort.pairs / FAR_TAKES).max(1));
    peers.warm_up(pairs);
    let titles = peers.titles();
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
    let (of, of_far) = (|lock: &Lock| so_often(pairs, lock), |lock: &Lock| so_often(far_pairs, lock));
    let bare_of = |servers: usize, needed: usize| {
        let mut bare = bare.borrow_mut();
        let took = median(pairs, || bare.take_and_release(servers, needed));
        bare.settle();
        took
    };
    let busy = Cell::new(Busy::default());
    let things = SideBySide::new("us")
        .thing(BARE_ONE, || bare_of(1, 1))
        .thing(ONE, || of(&one))
        .thing(FIVE, || {
            let before = Busy::so_far(well);
            let took = of(&five);
            busy.set(Busy::so_far(well).since(before));
            took
        })
        .thing(FIVE_BUSY, || busy.get().servers / f64::from(pairs))
        .thing(FIVE_ALL_BUSY, || (busy.get().servers + busy.get().client) / f64::from(pairs))
        .thing(FOUR, || of(&four))
        .thing(THREE, || of(&three))
        .thing(BARE_THREE, || bare_of(3, 3))
        .thing(BARE_FIVE, || bare_of(5, 3))
        .thing(FAR_ONE, || of_far(&far_one))
        .thing(FAR_FIVE, || of_far(&far_five));
    let rounds = peers.beside(things, pairs).run(effort.rounds);
    let measured = Measured { rounds, peers: titles, ignored: peers.ignored };
    println!("{}", serde_json::to_string(&measured).expect("JSON"));
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
    runtime.block_on(Client::connect(&url)).expect("a client").lock(name).expect("a name")
}

/// A lock over these, once they vote.
fn lock_over(runtime: &Runtime, servers: impl Iterator<Item = SocketAddr>, name: &str) -> Lock {
    let places: Vec<String> = servers.map(|server| server.to_string()).collect();
    let span = QUARANTINE.as_secs();
    let url = format!("redlock://{}?quarantine={span}s&keep={span}s", places.join(","));
    let lock = runtime.block_on(Client::connect(&url)).expect("a client").lock(name).expect("a name");
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

/// The scripts of a vote and of a release, sent to servers from the thread that calls, with nothing around them.
struct Bare(Vec<Server>);

struct Server {
    socket: BlockingSocket,
    vote: String,
    release: String,
    /// What was sent, and what has been answered of it.
    sent: u64,
    answered: u64,
}

const CLIENT: &str = "00000000-0000-0000-0000-000000000001";

impl Bare {
    fn connect(servers: &[Redis]) -> Self {
        let connect = |server: &Redis| {
            let mut socket = BlockingSocket::connect(server.address());
            let [vote, release] =
                ["vote", "release"].map(|operation| load(&mut socket, &script(Layout::Plain, operation)));
            Server { socket, vote, release, sent: 0, answered: 0 }
        };
        Self(servers.iter().map(connect).collect())
    }

    /// Both are sent at once to the first servers; at least this many of them must have done each.
    fn take_and_release(&mut self, servers: usize, needed: usize) -> Duration {
        let began = Instant::now();
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_micros() as u64;
        let fence = (now - FENCE_EPOCH) * FENCES;
        let owner = format!("{CLIENT}:{fence}");
        self.each(servers, needed, |server| vote(&server.vote, &owner, fence));
        self.each(servers, needed, |server| release(&server.release, &owner, fence));
        began.elapsed()
    }

    fn each(&mut self, servers: usize, needed: usize, command: impl Fn(&Server) -> Cmd) {
        let servers = &mut self.0[..servers];
        for server in &mut *servers {
            let command = command(server);
            server.socket.send(&command);
            server.sent += 1;
        }
        while servers.iter().filter(|server| server.answered == server.sent).count() < needed {
            Server::receive(servers);
        }
    }

    /// Waits for all that was not waited for.
    fn settle(&mut self) {
        while self.0.iter().any(|server| server.answered < server.sent) {
            Server::receive(&mut self.0);
        }
    }
}

impl Server {
    /// Waits until one of them has answered.
    fn receive(servers: &mut [Self]) {
        let mut waits: Vec<PollFd<'_>> =
            servers.iter().map(|server| PollFd::new(&server.socket, PollFlags::IN)).collect();
        poll(&mut waits, None).expect("open connections");
        let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        for (server, _) in servers.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            server.socket.replies(|reply| {
                assert!(reply.windows(4).any(|word| word == b"took" || word == b"ased"), "{reply:?}");
                server.answered += 1;
            });
        }
    }
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
