//! A layer of one's own around a store, and a listener for events: `cargo run -p leasehold --example layer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::port::{
    Acquire, Acquired, BreakOptions, Broken, Call, ClientId, HintSink, Inspected, Release, Released, Renew, Renewed,
    Reply,
};
use leasehold::{Capability, Client, Error, Event, Identity, Name, Store};

/// Counts what goes to the store. A layer forwards every method; the compiler sees to it that none is forgotten.
struct Counting {
    inner: Arc<dyn Store>,
    calls: Arc<AtomicU64>,
}

impl Counting {
    fn inner(&self) -> &dyn Store {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Store for Counting {
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
        self.inner.watch_held(client, sink);
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

#[tokio::main]
async fn main() -> Result<(), Error> {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let client = Client::builder("memory:")
        .layer(move |inner| Arc::new(Counting { inner, calls: counted.clone() }) as Arc<dyn Store>)
        .listener(|event: &Event<'_>| println!("{event:?}"))
        .connect()
        .await?;
    let guard = client.lock("jobs").acquire().await?;
    let again = client.lock("jobs").owned_by(guard.owner()).acquire().await?;
    again.release().await?;
    guard.release().await?;
    println!("{} calls: the clock, one acquire, one release; re-entering cost none", calls.load(Ordering::Relaxed));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    Ok(())
}
