//! `redlock:` over three servers of every trial's own. Servers that just started do not vote for a while; that is tried elsewhere, so here
//! it is switched off.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_faults::servers;

use super::redis::count_records;
use crate::case::Failure;
use crate::deployment::{Boxed, Deployment, Hook, Place};

/// How many servers there are.
const SERVERS: usize = 3;

/// How long a server is waited for: longer than by default, because a busy machine lets none of them answer in 50 ms.
const LIMIT: &str = "limit=5s";

/// Three independent servers.
pub(crate) struct Redlock;

impl Deployment for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn lacks(&self, hook: Hook) -> Option<&'static str> {
        match hook {
            Hook::Restart | Hook::Processes => None,
            Hook::Liveness => Some("no server is told when a process ends: its locks end with their leases"),
            Hook::Unattended => Some("a quorum's call is driven by whoever waits for it, until it is dropped"),
            Hook::InStep => Some("a quorum answers when a majority has, and the other servers follow"),
        }
    }

    fn open(&self) -> Boxed<Result<Arc<dyn Place>, Failure>> {
        Box::pin(async move {
            let start = || (0..SERVERS).map(|_| servers::Redis::start()).collect::<Result<Vec<_>, _>>();
            let servers = tokio::task::spawn_blocking(start).await??;
            Ok(Arc::new(Private(Arc::new(Mutex::new(servers)))) as Arc<dyn Place>)
        })
    }
}

/// Servers of this trial's own.
struct Private(Arc<Mutex<Vec<servers::Redis>>>);

impl Private {
    fn servers(&self) -> MutexGuard<'_, Vec<servers::Redis>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place for Private {
    fn url(&self) -> String {
        let servers = self.servers();
        let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        format!("redlock://{}?quarantine=0s&{LIMIT}", places.join(","))
    }

    /// All of them come back with nothing: what they have kept is in memory alone.
    fn restart(&self) -> Boxed<Result<(), Failure>> {
        let servers = self.0.clone();
        Box::pin(async move {
            let restart = move || {
                let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
                servers.iter_mut().try_for_each(servers::Redis::restart)
            };
            tokio::task::spawn_blocking(restart).await?
        })
    }

    fn records(&self) -> Option<usize> {
        self.servers().iter().map(count_records).try_fold(0, |most, records| Some(most.max(records?)))
    }
}
