//! A layer that counts the calls to a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{Layer, Store};

/// How often the store was called, by the callers and by the keeper.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<AtomicU64>);

impl Calls {
    /// So far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Layer for Calls {
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Counted { inner, calls: self.clone() })
    }
}

struct Counted {
    inner: Arc<dyn Store>,
    calls: Calls,
}

impl Counted {
    /// The store, for a call that counts.
    fn counted(&self) -> &dyn Store {
        self.calls.0.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Store for Counted {
    leasehold::port::forward_store!(self => self.inner; label, capability, identity);
    leasehold::port::forward_store!(self => self.counted();
        clock, acquire, renew, release, watch, watch_held, unwatch, inspect, list, break_lock, close);
}
