//! The store's port alone, without a client around it: what of the time is the store's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::port::{About, Acquire, Acquired, ClientId, Names, Release, Released, RequestId, StoreOwner};
use leasehold::{Fence, Name, Store};
use leasehold_file::{Config, File};

const CLIENT: ClientId = ClientId([1, 2]);

/// A store, and the requests made of it.
pub(crate) struct Port {
    store: Arc<File>,
    requests: AtomicU64,
    about: Arc<About>,
}

impl Port {
    pub(crate) fn new(path: &Path) -> Self {
        let config = Config::new(&path.display().to_string(), &[]).expect("a path");
        let store = File::connect(&config).expect("a store");
        Self { store, requests: AtomicU64::new(0), about: Arc::new(About::default()) }
    }

    /// How long two calls take, as a client makes them.
    pub(crate) async fn take_and_release(&self, name: &str) -> Duration {
        let began = Instant::now();
        let name = Name::new(name).expect("a name");
        let request = RequestId { client: CLIENT, number: self.requests.fetch_add(1, Ordering::Relaxed) };
        let taken = self.store.acquire(self.ask(name.clone(), request)).await.expect("an answer");
        let Acquired::Granted(granted) = taken.result else { panic!("a grant, not {taken:?}") };
        let given = self.store.release(give(name, request, granted[0].block.first)).await.expect("an answer");
        assert!(matches!(given.result, Released::Released { .. }), "{given:?}");
        began.elapsed()
    }

    fn ask(&self, name: Name, request: RequestId) -> Acquire {
        Acquire {
            kept: true,
            about: self.about.clone(),
            ..Acquire::new(Names::One(name), StoreOwner::Private(request), request, Duration::from_secs(30))
        }
    }
}

fn give(name: Name, request: RequestId, fence: Fence) -> Release {
    Release { fence: Some(fence), last_used: Some(fence), ..Release::hold(name, StoreOwner::Private(request), request) }
}
