//! Servers that forget: a replica that is promoted, and one that throws keys out to make room.

use std::fs;
use std::path::PathBuf;

use leasehold::{Client, ErrorKind, Loss};
use leasehold_faults::Failure;
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::scene::{Case, Checked, LIMIT, MS, S, block_on, client, eventually, left, number};

pub(crate) const CASES: &[Case] = &[
    ("failover::a_replica_has_what_reached_it", || block_on(a_replica_has_what_reached_it())),
    ("failover::a_replica_grants_again_what_did_not", || block_on(a_replica_grants_again_what_did_not())),
    ("failover::a_lock_that_is_evicted_is_told", || block_on(a_lock_that_is_evicted_is_told())),
];

/// A master and its replica, and a path that leads to one of them, as a name in a network would.
struct Pair {
    master: Redis,
    replica: Redis,
    /// Between the two.
    proxy: Proxy,
    path: PathBuf,
}

impl Pair {
    async fn start() -> Result<Self, Failure> {
        let settings = Settings::default().socket();
        let (master, replica) = (Redis::with(settings.clone())?, Redis::with(settings)?);
        let (proxy, path) = (Proxy::before(master.address())?, replica.socket().with_file_name("current"));
        let pair = Self { master, replica, proxy, path };
        std::os::unix::fs::symlink(pair.master.socket(), &pair.path)?;
        pair.replica.command(&["REPLICAOF", "127.0.0.1", &pair.proxy.address().port().to_string()])?;
        eventually("the replica follows", || {
            Ok(pair.replica.command(&["INFO", "replication"])?.text()?.contains("master_link_status:up"))
        })
        .await?;
        Ok(pair)
    }

    async fn client(&self, rest: &str) -> Result<Client, Failure> {
        Ok(Client::connect(&format!("redis+unix://{}{rest}", self.path.display())).await?)
    }

    /// The master dies, and the replica takes its place.
    fn fail_over(&mut self) -> Checked {
        self.master.kill()?;
        self.replica.command(&["REPLICAOF", "NO", "ONE"])?;
        fs::remove_file(&self.path)?;
        Ok(std::os::unix::fs::symlink(self.replica.socket(), &self.path)?)
    }
}

/// The holder of a lock that reached the replica keeps it.
async fn a_replica_has_what_reached_it() -> Checked {
    for layout in ["redisson", "plain"] {
        let mut pair = Pair::start().await?;
        let rest = format!("?layout={layout}");
        let (one, other) = (pair.client(&rest).await?, pair.client(&rest).await?);
        let held = one.lock("a")?.keep(6 * S).acquire().await?;
        eventually("it is replicated", || Ok(number(&pair.replica, &["EXISTS", "a", "leasehold_fence:{a}"])? == 2))
            .await?;
        pair.fail_over()?;
        assert!(other.lock("a")?.acquire_within(7 * S).await?.is_busy(), "{layout}: two have it");
        assert!(held.is_valid(), "{layout}: it is longer than a lease, and nobody renewed it");
        let before = held.fence();
        held.release().await?;
        assert!(other.lock("a")?.acquire().await?.fence() > before, "{layout}: fences went back");
    }
    Ok(())
}

/// A grant that did not reach it is made again with a larger fence, and the next renewal tells its holder; a release
/// that did not is forgotten until the end of the lease.
async fn a_replica_grants_again_what_did_not() -> Checked {
    const KEEP: std::time::Duration = S.saturating_mul(15);
    for layout in ["redisson", "plain"] {
        let mut pair = Pair::start().await?;
        let rest = format!("?layout={layout}");
        let (one, other) = (pair.client(&rest).await?, pair.client(&rest).await?);
        let released = one.lock("released")?.lease(KEEP).acquire().await?;
        eventually("it is replicated", || Ok(number(&pair.replica, &["EXISTS", "released"])? == 1)).await?;
        pair.proxy.hold();
        released.release().await?;
        let held = one.lock("a")?.keep(KEEP).acquire().await?;
        pair.fail_over()?;
        let again = other.lock("a")?.acquire().await?;
        assert!(again.fence() > held.fence(), "{layout}: fences went back");
        assert!(other.lock("released")?.try_acquire().await?.is_busy(), "{layout}: the replica knew of the release");
        let found = left(&pair.replica, "released")?;
        assert!(found.is_none_or(|left| left <= KEEP), "{layout}: it came back for longer than its lease: {found:?}");
        let loss = tokio::time::timeout(LIMIT, held.lost()).await?;
        assert_eq!(loss, Loss::Gone, "{layout}: it was told by the clock, and not by a renewal");
        assert_eq!(held.release().await.expect_err("it was lost").kind(), ErrorKind::Lost);
        assert!(again.is_valid(), "{layout}: the second holder lost it to the first");
        let _back = other.lock("released")?.acquire().await?;
    }
    Ok(())
}

/// A server evicts a held lock: the next renewal tells its holder, and another client gets it with a larger fence.
async fn a_lock_that_is_evicted_is_told() -> Checked {
    const KEEP: std::time::Duration = S.saturating_mul(15);
    let settings = Settings::default().option("maxmemory", "4mb").option("maxmemory-policy", "allkeys-lru");
    let server = Redis::with(settings)?;
    let (one, other) = (client(&server).await?, client(&server).await?);
    let held = one.lock("a")?.keep(KEEP).acquire().await?;
    // What is used least recently goes first.
    tokio::time::sleep(1_200 * MS).await;
    let (mut connection, filler) = (server.connection()?, "x".repeat(10_000));
    let mut at = 0;
    while number(&server, &["EXISTS", "a"])? == 1 {
        assert!(at < 100_000, "it is never evicted");
        for _ in 0..20 {
            at += 1;
            connection.command(&["SET", &format!("filler {at}"), &filler])?;
        }
    }
    let next = other.lock("a")?.acquire().await?;
    assert!(next.fence() > held.fence(), "fences went back");
    let loss = tokio::time::timeout(LIMIT, held.lost()).await?;
    assert_eq!(loss, Loss::Gone, "it was told by the clock, and not by a renewal");
    assert_eq!(held.release().await.expect_err("it was lost").kind(), ErrorKind::Lost);
    Ok(())
}
