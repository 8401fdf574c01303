//! Checks whether a server is fit for locks. Nothing is written, and no lock is touched.

mod fences;
mod findings;
mod info;
mod member;
mod rights;
mod stuck;

use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Store, Verdict};
use redis::{Cmd, Value};

use crate::config::Config;
use crate::store::Redis;
use crate::thread::Thread;
use info::Info;

pub use member::{Seen, examine_member};

/// Number of calls that are timed.
const TIMED_CALLS: u32 = 20;

/// Examines the server. If the login is refused, there are no further checks: opening the store says why.
///
/// # Errors
///
/// A server that cannot be reached.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
pub async fn examine(config: &Config) -> Result<Vec<Check>, Error> {
    let store = Redis::new(config)?;
    let server = Server { store, limit: config.limit };
    let checks = Thread::Callers.polls(server.examine()).await;
    server.store.0.connection.close();
    checks.map_err(|error| error.during("examine").on_store(server.store.label()))
}

/// A check that this user may not make does not end the examination: the check of its rights says what is missing.
fn unless_forbidden(name: &'static str, checked: Result<Check, Error>) -> Result<Check, Error> {
    match checked {
        Err(error) if error.kind() == ErrorKind::Unfit => {
            let unseen = Check::new(name, Verdict::Warn, format!("cannot be checked: {}", error.message()));
            Ok(unseen.with_advice("give this user the missing rights"))
        }
        checked => checked,
    }
}

/// The server under examination.
struct Server {
    store: Redis,
    limit: Duration,
}

impl Server {
    async fn examine(&self) -> Result<Vec<Check>, Error> {
        let hello = match self.ask(&["HELLO"]).await {
            Err(error) if error.kind() == ErrorKind::Unfit => return Ok(Vec::new()),
            hello => hello?,
        };
        let info = Info::read(self, &hello).await?;
        let mut checks = vec![findings::version(&info), findings::mode(&info), findings::persistence(&info)];
        checks.extend([findings::eviction(&info), findings::replicas(&info)]);
        checks.push(unless_forbidden("latency", self.latency().await)?);
        checks.push(unless_forbidden("clock", self.clock().await)?);
        checks.extend(rights::check(self).await?);
        checks.push(self.scripts().await?);
        checks.push(unless_forbidden("without expiry", stuck::check(&self.store.0).await)?);
        checks.push(unless_forbidden("fence records", fences::check(&self.store.0).await)?);
        Ok(checks)
    }

    /// Sends one command.
    async fn ask(&self, words: &[&str]) -> Result<Value, Error> {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        self.store.0.connection.query(&command).await
    }

    /// Sends a command that the server may forbid; then the result is `None`.
    async fn ask_if_allowed(&self, words: &[&str]) -> Result<Option<Value>, Error> {
        match self.ask(words).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.kind() == ErrorKind::Unfit => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn latency(&self) -> Result<Check, Error> {
        let mut took = Vec::new();
        for _ in 0..TIMED_CALLS {
            let sent = leasehold_clock::now();
            self.ask(&["TIME"]).await?;
            took.push(leasehold_clock::now().since(sent));
        }
        took.sort_unstable();
        Ok(findings::latency(took[took.len() / 2], took[took.len() - 1], self.limit))
    }

    async fn clock(&self) -> Result<Check, Error> {
        let (took, ahead) = self.clock_beside_ours().await?;
        Ok(findings::clock(ahead, took, findings::wall_micros() + ahead))
    }

    /// The measurement of the server's clock with the shortest round trip: its duration, and by how many microseconds
    /// the clock is ahead.
    async fn clock_beside_ours(&self) -> Result<(Duration, i128), Error> {
        let mut best: Option<(Duration, i128)> = None;
        for _ in 0..TIMED_CALLS {
            let (began, before) = (leasehold_clock::now(), findings::wall_micros());
            let answer = self.ask(&["TIME"]).await?;
            let took = leasehold_clock::now().since(began);
            let ahead = findings::time_micros(answer)? - before - i128::try_from(took.as_micros()).unwrap_or(0) / 2;
            if best.is_none_or(|(narrowest, _)| took < narrowest) {
                best = Some((took, ahead));
            }
        }
        Ok(best.unwrap_or_default())
    }

    /// Runs the read-only script without any locks to read.
    async fn scripts(&self) -> Result<Check, Error> {
        let script = &self.store.0.scripts.inspect;
        let mut call = crate::store::calling(script, 0);
        call.arg("locks");
        match self.store.0.run(script, call).await {
            Ok(_) => Ok(Check::new("scripts", Verdict::Ok, "they run")),
            Err(error) if error.kind() == ErrorKind::Unfit => {
                let failed = Check::new("scripts", Verdict::Fail, error.message());
                Ok(failed.with_advice("locks need scripts: allow EVALSHA and EVAL"))
            }
            Err(error) => Err(error),
        }
    }
}
