//! The queue of this process's groups: a later group stands aside for a while for an earlier one that was refused.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use leasehold_clock::fork::Process;
use leasehold_core::Moment;
use leasehold_core::multi::{Arrival, GroupQueue, YieldedPlace};
use tokio::sync::Notify;

use super::parts::Part;
use crate::runtime::handle::ShellHandle;
use crate::runtime::timer::timeout_at;

static GROUPS: Mutex<Groups> = Mutex::new(Groups { queue: GroupQueue::new(), left: None });

struct Groups {
    queue: GroupQueue,
    /// Notified when a group leaves for which others stand aside.
    left: Option<HashMap<Arrival, Arc<Notify>, FixedState>>,
}

fn groups() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of one group in the queue. Dropping it leaves the queue.
pub(super) struct GroupPlace {
    arrival: Arrival,
    process: Process,
}

impl GroupPlace {
    pub(super) fn enter(parts: &[Part]) -> Self {
        let wants = parts.iter().flat_map(|part| part.names().iter().map(|name| number(part, name.as_str())));
        Self { arrival: groups().queue.enter(wants), process: Process::current() }
    }

    pub(super) fn refused(&self) {
        groups().queue.refused(self.arrival, leasehold_clock::now());
    }

    /// Lets earlier groups go first, where the queue says so, until `limit`. Nothing may be held.
    pub(super) async fn stand_aside(&self, shell: &Arc<ShellHandle>, limit: Option<Moment>) {
        loop {
            let now = leasehold_clock::now();
            let Some((end, left)) = self.yields(now) else { return };
            let mut left = std::pin::pin!(left.notified_owned());
            left.as_mut().enable();
            // A group that left before that did not notify this one.
            if self.yields(now).is_none() || limit.is_some_and(|limit| limit <= now) {
                return;
            }
            let end = end.min(limit.unwrap_or(Moment::NEVER));
            let has_left = timeout_at(shell, Some(end), left).await.is_some();
            groups().queue.stood_aside(self.arrival, leasehold_clock::now().since(now), has_left);
        }
    }

    /// Until when to stand aside, and what is notified if the earlier group leaves before that.
    fn yields(&self, now: Moment) -> Option<(Moment, Arc<Notify>)> {
        let Groups { queue, left } = &mut *groups();
        let YieldedPlace { until, before } = queue.stands_aside(self.arrival, now)?;
        let left = left.get_or_insert_default().entry(before).or_default();
        Some((until, left.clone()))
    }
}

impl Drop for GroupPlace {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever.
        if !self.process.is_current() {
            return;
        }
        let mut groups = groups();
        groups.queue.leave(self.arrival);
        let left = groups.left.as_mut().and_then(|left| left.remove(&self.arrival));
        drop(groups);
        if let Some(left) = left {
            left.notify_waiters();
        }
    }
}

/// Several locks were held together for so long.
pub(super) fn held(span: Duration) {
    groups().queue.held(span);
}

fn number(part: &Part, name: &str) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    std::hash::Hash::hash(&part.shell().client, &mut hasher);
    hasher.write(name.as_bytes());
    hasher.finish()
}
