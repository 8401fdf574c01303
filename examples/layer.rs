//! Your own layer around a store, and a listener for events: `cargo run -p leasehold --example layer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::port::forward_store;
use leasehold::{Client, Error, Event, Store};

/// Counts the calls to a store. A layer implements every method of the store, or forwards it; the compiler reports one that is
/// forgotten.
struct Counting {
    inner: Arc<dyn Store>,
    calls: Arc<AtomicU64>,
}

impl Counting {
    /// The store, for a call that counts.
    fn counted(&self) -> &dyn Store {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Store for Counting {
    forward_store!(self => self.inner; label, capability, identity, watch_held);
    forward_store!(self => self.counted(); clock, acquire, renew, release, watch, unwatch, inspect, list, break_lock, close);
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
    let guard = client.lock("jobs")?.acquire().await?;
    let again = client.lock("jobs")?.owned_by(guard.owner()).acquire().await?;
    again.release().await?;
    guard.release().await?;
    println!("{} calls: the clock, one acquire, one release; re-entering cost none", calls.load(Ordering::Relaxed));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    Ok(())
}
