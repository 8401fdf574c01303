//! `redis:` on a server of its own for every trial: what it publishes is heard in all of its databases, so one cannot be shared.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_faults::servers;

use crate::case::Failure;
use crate::deployment::{Boxed, Deployment, Hook, Place};

/// One server, by how it keeps locks.
pub(crate) struct Redis {
    pub(crate) name: &'static str,
    pub(crate) layout: &'static str,
}

impl Deployment for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lacks(&self, hook: Hook) -> Option<&'static str> {
        match hook {
            Hook::Restart | Hook::Processes | Hook::InStep | Hook::Unattended => None,
            Hook::Liveness => Some("the server is not told when a process ends: its locks end with their leases"),
        }
    }

    fn open(&self) -> Boxed<Result<Arc<dyn Place>, Failure>> {
        let layout = self.layout;
        Box::pin(async move {
            let server = tokio::task::spawn_blocking(servers::Redis::start).await??;
            Ok(Arc::new(Private { server: Arc::new(Mutex::new(server)), layout }) as Arc<dyn Place>)
        })
    }
}

/// A server of this trial's own.
struct Private {
    server: Arc<Mutex<servers::Redis>>,
    layout: &'static str,
}

/// Counts the keys that belong to locks and waiters. The last fence of a name, and the birth of a server, are kept for days, on purpose.
/// Those of the lock with which [`World::empty`](crate::world::World::empty) has a store sweep do not count: a server that follows the
/// majority may be late with it.
const RECORDS: &str = "
    local records, at = 0, '0'
    repeat
        local page = redis.call('SCAN', at, 'COUNT', 1000)
        at = page[1]
        for _, key in ipairs(page[2]) do
            local kept = string.sub(key, 1, 16) == 'leasehold_fence:' or key == 'leasehold_birth'
            if not kept and not string.find(key, 'sweep', 1, true) then records = records + 1 end
        end
    until at == '0'
    return records";

impl Place for Private {
    fn url(&self) -> String {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        // A busy machine lets a server answer later than within the second that is the default.
        format!("redis://{}?layout={}&timeout=10s", server.address(), self.layout)
    }

    /// It comes back with nothing: what it has kept is in memory alone.
    fn restart(&self) -> Boxed<Result<(), Failure>> {
        let server = self.server.clone();
        Box::pin(async move {
            let restart = move || server.lock().unwrap_or_else(PoisonError::into_inner).restart();
            tokio::task::spawn_blocking(restart).await?
        })
    }

    fn records(&self) -> Option<usize> {
        count_records(&self.server.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How many keys there are that belong to locks and waiters.
pub(super) fn count_records(server: &servers::Redis) -> Option<usize> {
    let counted = server.command(&["EVAL", RECORDS, "0"]).and_then(|reply| reply.number()).ok()?;
    usize::try_from(counted).ok()
}
