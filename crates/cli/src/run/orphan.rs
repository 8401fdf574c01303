//! The lock of a runner that was killed: given back by its guardian, once nothing is left of what ran under it.
//!
//! Never before that, and never for a hold that may be another's too: then the lease decides.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Client, Error, Fence, Guard, Owner};
use leasehold_core::Moment;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::runtime;
use crate::settings::{Password, StoreSettings};

/// A store that does not answer is tried no longer than this.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// What the guardian needs to give a lock back, with credentials: it goes over the connection to the guardian, and nowhere else.
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
    fences: Vec<(String, u64)>,
}

impl OrphanRelease {
    /// Of a lock whose owner nobody else has.
    pub(crate) fn new(store: &StoreSettings, guard: &Guard) -> Self {
        let (password, password_file) = match store.password.clone() {
            Some(Password::Text(text)) => (Some(text), None),
            Some(Password::File(path)) => (None, std::path::absolute(path).ok()),
            None => (None, None),
        };
        let order = Order {
            store: store.url.as_str().to_owned(),
            password,
            password_file,
            owner: guard.owner().to_string(),
            fences: guard.fences().map(|(name, fence)| (name.to_string(), fence.get())).collect(),
        };
        Self(serde_json::to_vec(&order).unwrap_or_default())
    }

    /// Gives it back. Where that does not succeed before `deadline`, the lease decides.
    pub(super) fn carry_out(&self, deadline: Moment) {
        let Ok(order) = serde_json::from_slice::<Order>(&self.0) else { return };
        let patience = deadline.since(leasehold_clock::now()).min(PATIENCE);
        let _ = runtime::block_on(async {
            let _ = tokio::time::timeout(patience, order.insist()).await;
            Ok::<_, Failure>(Exit::DONE)
        });
    }
}

impl Order {
    async fn insist(&self) {
        while self.release().await.is_err_and(|error| error.is_retryable()) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Every hold of this owner, under the fences that it was granted and no others.
    async fn release(&self) -> Result<(), Error> {
        let mut builder = Client::builder(&self.store);
        builder = self.password.iter().fold(builder, |builder, text| builder.password(text));
        builder = self.password_file.iter().fold(builder, |builder, path| builder.password_file(path));
        let client = builder.connect().await?;
        let owner = Owner::explicit(&self.owner)?;
        let mut done = Ok(());
        for (name, fence) in &self.fences {
            let released = client.lock(name).owned_by(&owner).release_all(Some(Fence::new(*fence))).await;
            done = done.and(released);
        }
        // It goes on at servers that were not heard of yet.
        client.close().await?;
        done
    }
}
