//! A layer that counts the calls to a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::port::{
    Acquire, Acquired, BreakOptions, Broken, Call, ClientId, HintSink, Inspected, Release, Released, Renew, Renewed,
    Reply,
};
use leasehold::{Capability, Error, Identity, Layer, Name, Store};

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
    fn inner(&self) -> &dyn Store {
        self.calls.0.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Store for Counted {
    fn label(&self) -> &Arc<str> {
        self.inner.label()
    }

    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    fn identity(&self) -> Call<Result<Identity, Error>> {
        self.inner.identity()
    }

    fn clock(&self) -> Call<Reply<()>> {
        self.inner().clock()
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        self.inner().acquire(request)
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        self.inner().renew(leases)
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.inner().release(request)
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        self.inner().watch(client, name, sink)
    }

    fn watch_held(&self, client: ClientId, sink: HintSink) {
        self.inner().watch_held(client, sink);
    }

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        self.inner().unwatch(client, name)
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        self.inner().inspect(name)
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        self.inner().list(prefix, after, limit)
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        self.inner().break_lock(name, options)
    }

    fn close(&self, client: ClientId) -> Call<()> {
        self.inner().close(client)
    }
}
