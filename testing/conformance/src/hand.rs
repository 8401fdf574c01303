//! A client by hand: single requests to the port, for cases about what a store itself must do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::port::{
    Acquire, Acquired, Break, ClientId, Granted, Inspected, Lease, Names, Release, Released, Renew, Renewed, RequestId,
    StoreOwner, StoreTime,
};
use leasehold::{Error, Fence, Name, Store};

use crate::case::Failure;
use crate::world::World;

/// A lease that outlasts every case.
pub const LONG: Duration = Duration::from_secs(60);

/// One client's hand on the port.
pub struct Hand {
    /// The port.
    pub store: Arc<dyn Store>,
    /// Its owner.
    pub client: ClientId,
    number: u64,
}

impl Hand {
    /// A client of its own.
    ///
    /// # Errors
    ///
    /// When it cannot connect.
    pub async fn new(world: &World) -> Result<Self, Failure> {
        Self::over(world.store().await?)
    }

    /// A client of its own over a port.
    ///
    /// # Errors
    ///
    /// When there are no random numbers.
    pub fn over(store: Arc<dyn Store>) -> Result<Self, Failure> {
        let client = ClientId([getrandom::u64()?, getrandom::u64()?]);
        Ok(Self { store, client, number: 0 })
    }

    /// A request id that was not used before.
    pub fn request(&mut self) -> RequestId {
        self.number += 1;
        RequestId { client: self.client, number: self.number }
    }

    /// A request for one name, with a long lease, under an owner of its own.
    pub fn asking(&mut self, name: &str) -> Acquire {
        let request = self.request();
        self.asking_by(name, request)
    }

    /// The same by a request of the caller's choice.
    pub fn asking_by(&self, name: &str, request: RequestId) -> Acquire {
        Acquire::new(Names::One(named(name)), StoreOwner::Private(request), request, LONG)
    }

    /// The same under an owner that others may share.
    pub fn asking_as(&mut self, name: &str, owner: &str) -> Acquire {
        Acquire { owner: StoreOwner::Shared(owner.into()), ..self.asking(name) }
    }

    /// Releases the hold of a request.
    pub fn giving(&self, taken: &Acquire, fence: Option<Fence>) -> Release {
        Release {
            // This client sends it, also if the request was of another client.
            client: self.client,
            fence,
            last_used: fence,
            ..Release::hold(taken.names.first().clone(), taken.owner.clone(), taken.request)
        }
    }

    /// Sends an acquire.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn acquire(&self, request: &Acquire) -> Result<Acquired, Error> {
        Ok(self.store.acquire(request.clone()).await?.result)
    }

    /// Sends an acquire of one name that must be granted.
    ///
    /// # Errors
    ///
    /// The store's, or that it was not granted.
    pub async fn take(&self, request: &Acquire) -> Result<Granted, Failure> {
        match self.acquire(request).await? {
            Acquired::Granted(grants) => Ok(grants[0]),
            other => Err(format!("not granted: {other:?}").into()),
        }
    }

    /// Sends a release.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn release(&self, request: &Release) -> Result<Released, Error> {
        Ok(self.store.release(request.clone()).await?.result)
    }

    /// Renews the lease that a request took.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn renew(&self, taken: &Acquire, fence: Fence, term: Duration) -> Result<Renewed, Error> {
        let lease = Lease { name: taken.names.first().clone(), owner: taken.owner.clone(), fence };
        let answered = self.store.renew(vec![Renew { lease, hold: None, term, kept: false }]).await?;
        Ok(answered.result[0])
    }

    /// Reads the holder of a name.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn inspect(&self, name: &str) -> Result<Inspected, Error> {
        Ok(self.store.inspect(named(name)).await?.result)
    }

    /// Breaks a lock.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn break_lock(&self, name: &str, how: Break) -> Result<Inspected, Error> {
        Ok(self.store.break_lock(named(name), how.into()).await?.result.was)
    }

    /// The store's clock.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn now(&self) -> Result<StoreTime, Error> {
        Ok(self.store.clock().await?.at)
    }
}

/// A name that is known to be good.
pub fn named(name: &str) -> Name {
    Name::new(name).expect("a good name")
}

/// Whether an acquire was refused because another holds the name.
pub fn is_busy(acquired: &Acquired) -> bool {
    matches!(acquired, Acquired::Busy(_))
}

/// Whether a release was done.
pub fn is_released(released: Released) -> bool {
    matches!(released, Released::Released { .. })
}
