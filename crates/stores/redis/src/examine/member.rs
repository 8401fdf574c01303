//! Examines one server of a quorum: the checks of any server, its state as a voter, and what is compared between the
//! servers.

use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Store, Verdict};
use redis::Value;

use super::info::Info;
use super::{Server, findings};
use crate::config::Config;
use crate::store::Redis;
use crate::thread::Thread;

/// Findings at one server of a quorum.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Checks of this server alone.
    pub checks: Vec<Check>,
    /// Run id of the server, whatever its address; `None` if it does not report one.
    pub run: Option<String>,
    /// Microseconds by which its clock is ahead of ours, and the uncertainty.
    pub clock: Option<(i128, Duration)>,
}

/// Examines one server of a quorum. If the login is refused, the only check fails.
///
/// # Errors
///
/// A server that cannot be reached.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
pub async fn examine_member(config: &Config) -> Result<Seen, Error> {
    let store = Redis::new(config)?;
    let server = Server { store, limit: config.limit };
    let seen = Thread::Callers.polls(server.examine_as_member(config.quarantine)).await;
    server.store.0.connection.close();
    seen.map_err(|error| error.during("examine").on_store(server.store.label()))
}

impl Server {
    async fn examine_as_member(&self, quarantine: Duration) -> Result<Seen, Error> {
        let hello = match self.ask(&["HELLO"]).await {
            Err(error) if error.kind() == ErrorKind::Unfit => {
                let refused = Check::new("opening", Verdict::Fail, error.message());
                let advice = error.hint().unwrap_or("it cannot vote until it accepts the login");
                return Ok(Seen { checks: vec![refused.with_advice(advice)], run: None, clock: None });
            }
            hello => hello?,
        };
        let info = Info::read(self, &hello).await?;
        let mut checks = vec![findings::version(&info), findings::mode(&info)];
        checks.push(findings::persistence_of_member(&info, quarantine));
        checks.push(findings::uptime(&info));
        checks.extend([findings::eviction(&info), findings::replicas_of_member(&info)]);
        checks.push(self.latency().await?);
        checks.extend(super::rights::check(self).await?);
        checks.push(self.scripts().await?);
        checks.push(super::stuck::check(&self.store.0).await?);
        checks.push(super::fences::check(&self.store.0).await?);
        let (within, ahead) = self.clock_beside_ours().await?;
        let now = findings::wall_micros() + ahead;
        checks.push(self.voting(&info, quarantine, now).await?);
        Ok(Seen { checks, run: info.get("run_id").map(str::to_owned), clock: Some((ahead, within)) })
    }

    async fn voting(&self, info: &Info, quarantine: Duration, now: i128) -> Result<Check, Error> {
        let key = self.store.0.space.server_epoch();
        let kept = match self.ask_if_allowed(&["GET", &key]).await? {
            Some(Value::BulkString(bytes)) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Some(_) => None,
            None => {
                let failed = Check::new("voting", Verdict::Fail, format!("this user may not read {key}"));
                return Ok(failed.with_advice("the server cannot vote without it: let this user use that key"));
            }
        };
        Ok(findings::voting(info, kept.as_deref(), quarantine, now))
    }
}
