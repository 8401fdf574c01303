//! A server of a case's own, clients on it, and ways to look behind them.

use std::future::Future;
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::Reply;

/// What a case comes to. Most say by a panic that something is wrong.
pub(crate) type Checked = Result<(), Failure>;
/// A case with its name.
pub(crate) type Case = (&'static str, fn() -> Checked);

/// Nothing takes this long unless it hangs, or was left to its lease where that is [`KEPT_LONG`].
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// URL option for leases so long that no test waits for their end: a lock that is free within [`LIMIT`] was released.
pub(crate) const KEPT_LONG: &str = "keep=1h";
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);

/// Runs a case with two workers.
pub(crate) fn block_on(case: impl Future<Output = Checked>) -> Checked {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(case)
}

/// The URL of a server.
pub(crate) fn url(server: &Redis) -> String {
    format!("redis://{}", server.address())
}

pub(crate) async fn client(server: &Redis) -> Result<Client, Failure> {
    Ok(Client::connect(&url(server)).await?)
}

/// A number that the server answers with.
pub(crate) fn number(server: &Redis, words: &[&str]) -> Result<i64, Failure> {
    server.command(words)?.number()
}

/// How long the key at the name is there for; none where it is for ever or not there.
pub(crate) fn left(server: &Redis, name: &str) -> Result<Option<Duration>, Failure> {
    Ok(u64::try_from(number(server, &["PTTL", name])?).ok().map(Duration::from_millis))
}

/// How often an owner holds a lock, as the server has it.
pub(crate) fn count(server: &Redis, name: &str, owner: &str) -> Result<u32, Failure> {
    match server.command(&["HGET", name, owner])? {
        Reply::Nil => Ok(0),
        count => Ok(count.text()?.parse()?),
    }
}

/// Waits for a condition without an event.
pub(crate) async fn eventually(what: &str, mut is: impl FnMut() -> Result<bool, Failure>) -> Checked {
    let began = Instant::now();
    while !is()? {
        assert!(began.elapsed() < LIMIT, "it never came to be that {what}");
        tokio::time::sleep(5 * MS).await;
    }
    Ok(())
}

/// Waits until this many clients are on a name's waitlist.
pub(crate) async fn until_waiting(server: &Redis, name: &str, many: i64) -> Checked {
    let line = format!("leasehold_line:{{{name}}}");
    eventually("they wait", || Ok(number(server, &["ZCARD", &line])? == many)).await
}
