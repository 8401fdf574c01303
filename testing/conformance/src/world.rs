//! What a case is given: a fresh place on some store, and clients and connections to it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Capability, Client, ClientBuilder, Guard, Store};
use leasehold_core::backoff::Rng;

use crate::case::{Checked, Failure};
use crate::chaos::Chaos;
use crate::deployment::Place;

/// A lease that is to end soon.
const SHORT_MIN: Duration = Duration::from_millis(400);
/// A lease that is renewed in time on a busy machine: the keeper may stall for two seconds.
const KEPT_MIN: Duration = Duration::from_secs(3);
/// A lease whose holder is notified of its end in time on a busy machine: it gives up 22 ms and a hundredth of the
/// lease for that.
const SHORTEST_NOTIFIED: Duration = Duration::from_secs(10);
/// How late something may be that must happen, before it counts as never. No case may depend on it: it only ends those that fail.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Polling interval for changes without an event.
const LOOK: Duration = Duration::from_millis(1);

/// A fresh place on some store.
#[derive(Clone)]
pub struct World {
    place: Arc<dyn Place>,
    /// What the store can do.
    pub capability: Capability,
    /// For everything random in the case.
    pub seed: u64,
}

impl World {
    /// On a place.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached.
    pub async fn new(place: Arc<dyn Place>, seed: u64) -> Result<Self, Failure> {
        let capability = Client::connect(&place.url()).await?.capability();
        Ok(Self { place, capability, seed })
    }

    /// The URL of the place.
    pub fn url(&self) -> String {
        self.place.url()
    }

    /// A short lease, for waiting for its end: twice the shortest that this store takes. On a busy machine it may end at any moment.
    pub fn short(&self) -> Duration {
        (self.capability.lease_min * 2).max(SHORT_MIN)
    }

    /// A lease that must not end while it is kept, nor within a few calls.
    pub fn kept(&self) -> Duration {
        self.short().max(KEPT_MIN)
    }

    /// A lease at whose end the holder must be notified before another is granted the lock.
    pub fn told(&self) -> Duration {
        self.short().max(SHORTEST_NOTIFIED)
    }

    /// Random numbers of this trial.
    pub fn rng(&self) -> Rng {
        Rng::new(self.seed)
    }

    /// A client of its own.
    ///
    /// # Errors
    ///
    /// When it cannot connect.
    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(self.builder().connect().await?)
    }

    /// A client that is not connected yet.
    pub fn builder(&self) -> ClientBuilder {
        Client::builder(self.place.url())
    }

    /// A client over a layer of chaos.
    ///
    /// # Errors
    ///
    /// When it cannot connect.
    pub async fn client_over(&self, chaos: &Chaos) -> Result<Client, Failure> {
        Ok(self.builder().layer(chaos.clone()).connect().await?)
    }

    /// The port itself, over connections of its own.
    ///
    /// # Errors
    ///
    /// When it cannot connect.
    pub async fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        let seen: Arc<Mutex<Option<Arc<dyn Store>>>> = Arc::default();
        let capture = {
            let seen = seen.clone();
            move |store: Arc<dyn Store>| {
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(store.clone());
                store
            }
        };
        self.builder().layer(capture).connect().await?;
        let store = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        store.ok_or_else(|| "the client put no layer around its store".into())
    }

    /// Stops the store and starts it again.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    pub async fn restart(&self) -> Checked {
        self.place.restart().await
    }

    /// Checks that the store is intact, and that nothing is left of ended processes once another client has opened it.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub async fn whole(&self) -> Checked {
        let _opened = self.client().await?;
        self.place.check_whole()
    }

    /// Waits until a client has nothing held, wanted or open with the store.
    ///
    /// # Errors
    ///
    /// When that does not happen.
    pub async fn quiet(&self, client: &Client) -> Checked {
        let quiet = async || client.in_use() == 0;
        eventually(quiet)
            .await
            .map_err(|_| format!("{} names or waiters are left in the client", client.in_use()).into())
    }

    /// Waits until the store has nothing: no lock, no waiter, and no record where one can look.
    ///
    /// # Errors
    ///
    /// When that does not happen.
    pub async fn empty(&self) -> Checked {
        self.empty_within(PATIENCE).await
    }

    /// The same, with less patience: for a case in which it must not happen.
    ///
    /// # Errors
    ///
    /// When that does not happen.
    pub async fn empty_within(&self, patience: Duration) -> Checked {
        let store = self.store().await?;
        let empty = async || store.list(String::new(), None, 10).await.is_ok_and(|held| held.result.is_empty());
        if happens_within(patience, empty).await.is_err() {
            let left = store.list(String::new(), None, 10).await?.result;
            return Err(format!("left in the store: {left:?}").into());
        }
        // A store may sweep its records only during other calls, so a separate lock is acquired and released each time.
        let client = self.client().await?;
        let swept = async || {
            if let Ok(guard) = client.lock("sweep").expect("a name").acquire().await {
                drop(guard.release().await);
            }
            self.place.records().is_none_or(|records| records == 0)
        };
        let done = happens_within(patience, swept).await;
        done.map_err(|_| format!("{:?} records are left in the store", self.place.records()).into())
    }
}

/// Waits for a condition without an event.
///
/// # Errors
///
/// When it does not happen in time.
pub async fn eventually(happened: impl AsyncFnMut() -> bool) -> Checked {
    happens_within(PATIENCE, happened).await
}

async fn happens_within(patience: Duration, mut happened: impl AsyncFnMut() -> bool) -> Checked {
    let began = Instant::now();
    while !happened().await {
        if began.elapsed() > patience {
            return Err(format!("it did not happen within {patience:?}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Waits for a future, but not for ever.
///
/// # Errors
///
/// When it is not done in time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
    within(PATIENCE, what, future).await
}

/// The same, with less patience: for a case in which it must not happen.
///
/// # Errors
///
/// When it is not done in time.
pub async fn within<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(patience, future).await.map_err(|_| format!("{what}: not within {patience:?}").into())
}

/// Waits for a lock, but not for ever.
///
/// # Errors
///
/// When it does not come in time.
pub async fn granted(lock: &leasehold::Lock) -> Result<Guard, Failure> {
    Ok(soon("acquire", lock.acquire()).await??)
}

/// The same for several locks together.
///
/// # Errors
///
/// As [`granted`].
pub async fn granted_all(lock: &leasehold::GroupLock) -> Result<leasehold::GroupGuard, Failure> {
    Ok(soon("acquire", lock.acquire()).await??)
}
