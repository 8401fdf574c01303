//! Releases the lock of a killed runner: its guardian does that once nothing is left of what ran under it.
//!
//! Only that runner's own hold: other holds of the same owner stay.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::port::{ClientId, RequestId};
use leasehold::{Client, Error, Fence, GroupGuard, Name, Owner};
use leasehold_core::Moment;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::runtime;
use crate::settings::{Password, StoreSettings};

/// A store that does not answer is tried for this long.
const RETRY_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What the guardian needs to release a lock, with credentials: it goes over the connection to the guardian only.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct OrphanRelease(pub(super) Vec<u8>);

impl fmt::Debug for OrphanRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrphanRelease(…)")
    }
}

#[derive(Serialize, Deserialize)]
struct Order {
    store: String,
    password: Option<String>,
    password_file: Option<PathBuf>,
    owner: String,
    holds: Vec<Hold>,
}

/// One lock: the grant by its fence, and in it the runner's own hold by its request.
#[derive(Serialize, Deserialize)]
struct Hold {
    name: String,
    fence: u64,
    client: [u64; 2],
    request: u64,
}

impl OrphanRelease {
    /// For everything that the guard holds.
    pub(crate) fn new(store: &StoreSettings, guard: &GroupGuard) -> Self {
        let (password, password_file) = match store.password.clone() {
            Some(Password::Text(text)) => (Some(text), None),
            Some(Password::File(path)) => (None, std::path::absolute(path).ok()),
            None => (None, None),
        };
        let holds = guard.guards().iter().map(|guard| Some((guard.name(), guard.fence(), guard.request()?)));
        // All or none: what was lost is no longer this run's to release.
        let holds: Vec<_> = holds.collect::<Option<_>>().unwrap_or_default();
        let order = Order {
            store: store.url.as_str().to_owned(),
            password,
            password_file,
            owner: guard.guards()[0].owner().to_string(),
            holds: holds.into_iter().map(Hold::new).collect(),
        };
        Self(serde_json::to_vec(&order).unwrap_or_default())
    }

    /// Releases it. If that fails until `deadline`, the lease decides.
    pub(super) fn carry_out(&self, deadline: Moment) {
        let Ok(order) = serde_json::from_slice::<Order>(&self.0) else { return };
        let patience = deadline.since(leasehold_clock::now()).min(RETRY_LIMIT);
        let _ = runtime::block_on(async {
            let _ = tokio::time::timeout(patience, order.insist()).await;
            Ok::<_, Failure>(Exit::DONE)
        });
    }
}

impl Hold {
    fn new((name, fence, request): (&Name, Fence, RequestId)) -> Self {
        Self { name: name.to_string(), fence: fence.get(), client: request.client.0, request: request.number }
    }

    fn request(&self) -> RequestId {
        RequestId { client: ClientId(self.client), number: self.request }
    }
}

impl Order {
    async fn insist(&self) {
        while self.release().await.is_err_and(|error| error.is_retryable()) {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Others may hold it as the same owner, such as a `run` that joined from elsewhere: their holds stay.
    async fn release(&self) -> Result<(), Error> {
        let mut builder = Client::builder(&self.store);
        builder = self.password.iter().fold(builder, |builder, text| builder.password(text));
        builder = self.password_file.iter().fold(builder, |builder, path| builder.password_file(path));
        let client = builder.connect().await?;
        let owner = Owner::explicit(&self.owner)?;
        let mut done = Ok(());
        for hold in &self.holds {
            let lease = client.detached(&hold.name, &owner)?;
            let fence = Some(Fence::new(hold.fence));
            // A store that does not count holds allows no joining.
            let released = match client.capability().shared_reentrance {
                true => lease.release_hold(hold.request(), fence).await.map(drop),
                false => lease.release_all(fence).await,
            };
            done = done.and(released);
        }
        // The release continues at servers that have not answered.
        client.close().await?;
        done
    }
}
