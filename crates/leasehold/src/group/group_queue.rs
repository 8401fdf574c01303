//! Those of this process who want several locks: who came later stands aside for a while for one who came earlier and was refused.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use leasehold_clock::fork::Process;
use leasehold_core::Moment;
use leasehold_core::multi::{Arrival, GroupQueue, YieldedPlace};
use tokio::sync::Notify;

use super::acquisition::until;
use super::parts::Part;
use crate::runtime::handle::Handle;

static HALL: Mutex<Room> = Mutex::new(Room { hall: GroupQueue::new(), gone: None });

struct Room {
    hall: GroupQueue,
    /// To be told when somebody goes for whom others stand aside.
    gone: Option<HashMap<Arrival, Arc<Notify>, FixedState>>,
}

fn room() -> MutexGuard<'static, Room> {
    HALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One who wants several locks. It goes when this is dropped.
pub(super) struct GroupWaiter {
    came: Arrival,
    process: Process,
}

impl GroupWaiter {
    pub(super) fn enter(parts: &[Part]) -> Self {
        let wants = parts.iter().flat_map(|part| part.names().iter().map(|name| number(part, name.as_str())));
        Self { came: room().hall.enter(wants), process: Process::current() }
    }

    pub(super) fn refused(&self) {
        room().hall.refused(self.came, leasehold_clock::now());
    }

    /// Lets others go first, where that is to be; until `limit`. Nothing may be held.
    pub(super) async fn stand_aside(&self, timer: &Handle, limit: Option<Moment>) {
        loop {
            let now = leasehold_clock::now();
            let Some((end, gone)) = self.aside(now) else { return };
            let mut gone = std::pin::pin!(gone.notified_owned());
            gone.as_mut().enable();
            // Whoever went before we listened tells nobody.
            if self.aside(now).is_none() || limit.is_some_and(|limit| limit <= now) {
                return;
            }
            let went = until(timer, Some(end.min(limit.unwrap_or(Moment::NEVER))), gone).await.is_some();
            room().hall.stood_aside(self.came, leasehold_clock::now().since(now), went);
        }
    }

    fn aside(&self, now: Moment) -> Option<(Moment, Arc<Notify>)> {
        let Room { hall, gone } = &mut *room();
        let YieldedPlace { until, before } = hall.stands_aside(self.came, now)?;
        let gone = gone.get_or_insert_default().entry(before).or_default();
        Some((until, gone.clone()))
    }
}

impl Drop for GroupWaiter {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever.
        if !self.process.is_current() {
            return;
        }
        let mut room = room();
        room.hall.leave(self.came);
        let gone = room.gone.as_mut().and_then(|gone| gone.remove(&self.came));
        drop(room);
        if let Some(gone) = gone {
            gone.notify_waiters();
        }
    }
}

/// Several locks were held together for so long.
pub(super) fn held(span: Duration) {
    room().hall.held(span);
}

fn number(part: &Part, name: &str) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    std::hash::Hash::hash(&part.client().client, &mut hasher);
    hasher.write(name.as_bytes());
    hasher.finish()
}
