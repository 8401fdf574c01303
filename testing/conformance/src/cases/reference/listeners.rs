//! Which client was notified of which name, and how often: by the store, and by the reference.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::Name;
use leasehold::port::{ClientId, Hint, HintSink};
use tokio::sync::Notify;

use crate::case::Checked;
use crate::world::soon;

type Counts = HashMap<(ClientId, Name), u32>;

/// All listeners.
#[derive(Default)]
pub(super) struct Listeners {
    told: Arc<Notifications>,
    /// Notifications by the reference.
    expected: Counts,
    /// Further notifications that the store may send.
    allowed: Counts,
}

/// Notifications by the store.
#[derive(Default)]
struct Notifications {
    counts: Mutex<Counts>,
    changed: Notify,
}

impl Notifications {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listeners {
    /// Hears for one client.
    pub(super) fn sink(&self, client: ClientId) -> HintSink {
        let told = self.told.clone();
        Arc::new(move |hint| {
            if let Hint::Name(name) = hint {
                *told.counts().entry((client, name)).or_default() += 1;
                told.changed.notify_waiters();
            }
        })
    }

    /// The reference notified these; the store must too.
    pub(super) async fn expect(&mut self, hints: impl IntoIterator<Item = (ClientId, Name)>) -> Checked {
        for (client, name) in hints {
            let times = self.expected.entry((client, name.clone())).or_default();
            *times += 1;
            let (told, times) = (self.told.clone(), *times);
            soon(&format!("client {client} is told of {name}"), heard(&told, (client, name), times)).await?;
        }
        Ok(())
    }

    /// The store may notify these.
    pub(super) fn allow(&mut self, hints: impl IntoIterator<Item = (ClientId, Name)>) {
        for hint in hints {
            *self.allowed.entry(hint).or_default() += 1;
        }
    }

    /// No client was notified more often than allowed.
    pub(super) fn check_no_more(&self) -> Checked {
        let of = |counts: &Counts, key| counts.get(key).copied().unwrap_or_default();
        for (key, times) in &*self.told.counts() {
            let expected = of(&self.expected, key);
            if *times > expected + of(&self.allowed, key) {
                return Err(format!("{key:?} was told {times} times by the store, {expected} by the reference").into());
            }
        }
        Ok(())
    }
}

async fn heard(told: &Notifications, key: (ClientId, Name), times: u32) {
    loop {
        let mut changed = std::pin::pin!(told.changed.notified());
        changed.as_mut().enable();
        if told.counts().get(&key).copied().unwrap_or_default() >= times {
            return;
        }
        changed.await;
    }
}
