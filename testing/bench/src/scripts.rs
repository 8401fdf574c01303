//! The calls of the store's own scripts with real arguments, and of the shortest scripts that any lock has: what is sent bare.

use leasehold_redis::{Layout, script_texts};
use redis::Cmd;

use crate::socket::BlockingSocket;

/// Where fences begin, in microseconds since 1970, and how many there are in one.
pub(crate) const FENCE_EPOCH: u64 = 1_577_836_800_000_000;
pub(crate) const FENCES: u64 = 8;
const LEASE_MS: u64 = 30_000;
/// The largest fence, and the largest clock.
const ANY: u64 = 1 << 53;
const ABOUT: &str = "1\nhost\n";
const DELETE_IF_OURS: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// The digest of a script that the server has from now on.
pub(crate) fn load(server: &mut BlockingSocket, text: &str) -> String {
    let digest = |reply: &[u8]| String::from_utf8_lossy(reply).lines().nth(1).expect("a digest").to_owned();
    server.call(redis::cmd("SCRIPT").arg("LOAD").arg(text), digest)
}

/// The text of one of the store's scripts.
pub(crate) fn script(layout: Layout, operation: &str) -> String {
    script_texts(layout).find(|(name, _)| *name == operation).expect("an operation of the store").1
}

/// One client of the store, and what it sends to lock one name in the layout of Redisson.
#[derive(Clone)]
pub(crate) struct OwnScripts {
    acquire: String,
    release: String,
    keys: Vec<String>,
    uuid: String,
    client: String,
    requests: u64,
}

impl OwnScripts {
    /// The number tells clients of one server apart.
    pub(crate) fn new(server: &mut BlockingSocket, name: &str, client: u64) -> Self {
        Self::of(Self::digests(server), name, client)
    }

    /// The digests of its two scripts.
    pub(crate) fn digests(server: &mut BlockingSocket) -> [String; 2] {
        ["acquire", "release"].map(|operation| load(server, &script(Layout::Redisson, operation)))
    }

    pub(crate) fn of([acquire, release]: [String; 2], name: &str, client: u64) -> Self {
        let beside = ["leasehold_fence", "leasehold_lock", "leasehold_line", "leasehold_heard", "redisson_lock_token"];
        let beside = beside.into_iter().chain(["redisson_lock__channel"]);
        let keys = std::iter::once(name.to_owned()).chain(beside.map(|part| format!("{part}:{{{name}}}"))).collect();
        let uuid = format!("00000000-0000-0000-0000-{client:012x}");
        Self { acquire, release, keys, client: uuid.replace('-', ""), uuid, requests: 0 }
    }

    /// The channel on which the release script tells this client that the lock is free.
    pub(crate) fn channel(&self) -> String {
        format!("leasehold_hint:{}", self.client)
    }

    /// The next request for the lock. Where it is busy, the client waits in the store's list, if it is asked to.
    pub(crate) fn acquire(&mut self, enlist: bool) -> Cmd {
        self.requests += 1;
        let mut command = self.call(&self.acquire);
        let owner = self.owner();
        command.arg(format!("p{owner}")).arg(&owner).arg(LEASE_MS).arg(1).arg(0).arg(ANY);
        command.arg(&self.client).arg(u8::from(enlist)).arg(ABOUT).arg(0).arg(0);
        command
    }

    /// The release of what that request was granted, with this fence. The client goes to the end of the list, if it is asked to.
    pub(crate) fn release(&self, fence: u64, rejoin: bool) -> Cmd {
        let mut command = self.call(&self.release);
        let owner = self.owner();
        command.arg(&self.keys[0]).arg(format!("p{owner}")).arg(&owner).arg("hold").arg(fence).arg("").arg(0);
        command.arg(&self.client).arg(u8::from(rejoin));
        command
    }

    fn owner(&self) -> String {
        format!("{}:{}", self.uuid, self.requests)
    }

    fn call(&self, digest: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(self.keys.len()).arg(&self.keys);
        command
    }
}

/// `SET NX PX`, and a delete that compares: no fence, no list of those who wait, no channel.
pub(crate) struct ShortestScripts {
    release: String,
    name: String,
    requests: u64,
}

impl ShortestScripts {
    pub(crate) fn new(server: &mut BlockingSocket, name: &str) -> Self {
        Self { release: load(server, DELETE_IF_OURS), name: name.to_owned(), requests: 0 }
    }

    pub(crate) fn acquire(&mut self) -> Cmd {
        self.requests += 1;
        let mut command = redis::cmd("SET");
        command.arg(&self.name).arg(self.requests).arg("NX").arg("PX").arg(LEASE_MS);
        command
    }

    pub(crate) fn release(&self) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&self.name).arg(self.requests);
        command
    }
}
