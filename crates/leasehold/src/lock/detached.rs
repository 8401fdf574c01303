//! A lease without a guard, which was left to its explicit owner: for renewing and releasing it, also from another process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::{Release, ReleaseScope, Released, Renew, Renewed};
use leasehold_core::{Error, ErrorKind, Fence, Lease, Name, Outcome, Owner, RequestId, StoreOwner, options};

use crate::runtime::handle::ShellHandle;

/// A lease that an explicit owner has without a guard. Made by [`Client::detached`](crate::Client::detached).
///
/// Only [`Detached::renew`] renews it, and there is no lost signal.
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use leasehold::{Client, Error, Owner};
/// # #[tokio::main] async fn main() -> Result<(), Error> {
/// let client = Client::connect("redis://localhost").await?;
/// let owner = Owner::explicit("deploy-17")?;
/// let guard = client.lock("deploy")?.owned_by(&owner).lease(Duration::from_secs(60)).acquire().await?;
/// guard.leave().await.map_err(|(_, error)| error)?; // the program may end here
///
/// let lease = client.detached("deploy", &owner)?; // in the same process, or in another
/// lease.renew(None, Duration::from_secs(60)).await?;
/// lease.release(None).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Detached {
    shell: Arc<ShellHandle>,
    name: Name,
    owner: StoreOwner,
}

impl Detached {
    pub(crate) fn new(shell: Arc<ShellHandle>, name: impl AsRef<str>, owner: &Owner) -> Result<Self, Error> {
        let labelled = |error: Error| error.during("detached").on_store(shell.store.label());
        let name = Name::new(name).map_err(labelled)?;
        let Some(id) = owner.as_explicit() else {
            let what = "without a guard it takes an explicit owner";
            let error = Error::new(ErrorKind::BadArgument, "detached", what);
            return Err(labelled(error.with_hint("make one with Owner::explicit")).on_lock(&name));
        };
        Ok(Self { owner: StoreOwner::Shared(id.clone()), name, shell })
    }

    /// The name of the lock.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Makes the lease last for `term` from now, with all its holds, if it would end before that. Returns how much of it is left.
    ///
    /// With a fence, only the lease of that grant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHolder`] if the owner does not hold it, or not with that fence: a lease is never recreated.
    /// [`ErrorKind::BadArgument`] for a term outside the store's bounds. A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the lease was extended.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::time::Duration;
    /// # let client = leasehold::Client::connect("redis://localhost").await?;
    /// # let owner = leasehold::Owner::explicit("deploy-17")?;
    /// let left = client.detached("deploy", &owner)?.renew(None, Duration::from_secs(60)).await?;
    /// println!("{left:?} left");
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self, fence: Option<Fence>, term: Duration) -> Result<Duration, Error> {
        self.shell.check_process("renew")?;
        let store = &self.shell.store;
        let unfit = |error: Error| self.labelled(error.during("renew"));
        options::check_lease("lease", term, &store.capability()).map_err(unfit)?;
        let fence = match fence {
            Some(fence) => fence,
            None => self.fence("renew").await?,
        };
        let lease = Lease { name: self.name.clone(), owner: self.owner.clone(), fence };
        let renewed = store.renew(vec![Renew { lease, hold: None, term, kept: false }]).await;
        match renewed.map_err(|error| self.labelled(error))?.result.first() {
            Some(Renewed::Kept { left }) => Ok(*left),
            Some(Renewed::Unknown) => {
                let what = "too few servers answered to tell whether it is held";
                Err(self.labelled(Error::new(ErrorKind::NoQuorum, "renew", what).with_outcome(Outcome::Unknown)))
            }
            Some(Renewed::Lost | Renewed::Broken) | None => Err(self.not_holder("renew").await),
        }
    }

    /// Releases one hold of the owner, and returns how many it has left.
    ///
    /// With a fence, only a hold of that grant. If there is a guard for that hold, it is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHolder`] if the owner does not hold it, or not with that fence. A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether it was released.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("redis://localhost").await?;
    /// # let owner = leasehold::Owner::explicit("deploy-17")?;
    /// let holds_left = client.detached("deploy", &owner)?.release(None).await?;
    /// assert_eq!(holds_left, 0);
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, fence: Option<Fence>) -> Result<u32, Error> {
        self.shell.check_process("release")?;
        let request = self.shell.state().table.request();
        self.give_back(fence, ReleaseScope::One(request)).await
    }

    /// Releases every hold of the owner.
    ///
    /// # Errors
    ///
    /// As [`Detached::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Detached::release`].
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("redis://localhost").await?;
    /// # let owner = leasehold::Owner::explicit("deploy-17")?;
    /// client.detached("deploy", &owner)?.release_all(None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn release_all(&self, fence: Option<Fence>) -> Result<(), Error> {
        self.give_back(fence, ReleaseScope::All).await.map(drop)
    }

    /// Releases the hold of this request ([`Guard::request`](crate::Guard::request)), and no other of the same owner. Returns how
    /// many holds the owner has left. Repeated, it releases once.
    ///
    /// # Errors
    ///
    /// As [`Detached::release`]; also [`ErrorKind::NotHolder`] if that hold was released before.
    ///
    /// # Cancel safety
    ///
    /// As [`Detached::release`].
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("redis://localhost").await?;
    /// # let owner = leasehold::Owner::explicit("deploy-17")?;
    /// # let guard = client.lock("deploy")?.owned_by(&owner).acquire().await?;
    /// let request = guard.request().expect("it is held");
    /// client.detached("deploy", &owner)?.release_hold(request, None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn release_hold(&self, request: RequestId, fence: Option<Fence>) -> Result<u32, Error> {
        self.give_back(fence, ReleaseScope::Hold(request)).await
    }

    async fn give_back(&self, fence: Option<Fence>, scope: ReleaseScope) -> Result<u32, Error> {
        self.shell.check_process("release")?;
        let release = Release {
            client: self.shell.client,
            name: self.name.clone(),
            owner: self.owner.clone(),
            fence,
            scope,
            last_used: None,
            cooldown: Duration::ZERO,
            rejoin: false,
        };
        let released = self.shell.store.release(release).await.map_err(|error| self.labelled(error))?;
        match released.result {
            Released::Released { .. } => Ok(0),
            Released::StillHeld(left) => Ok(left),
            Released::NotHeld => Err(self.not_holder("release").await),
        }
    }

    async fn fence(&self, operation: &'static str) -> Result<Fence, Error> {
        let inspected = self.shell.store.inspect(self.name.clone()).await.map_err(|error| self.labelled(error))?;
        match inspected.result.holders.iter().find(|holder| holder.owner == self.owner) {
            Some(holder) => Ok(holder.fence.unwrap_or(Fence::NONE)),
            None => Err(self.not_holder(operation).await),
        }
    }

    /// The error for an owner that does not hold the lock: says who does.
    async fn not_holder(&self, operation: &'static str) -> Error {
        let owner = &self.owner;
        let inspected = self.shell.store.inspect(self.name.clone()).await.map(|inspected| inspected.result);
        let cooldown = inspected.as_ref().is_ok_and(|inspected| inspected.cooldown.is_some());
        let given = format!("owner {:?}", owner.to_string());
        let what = match inspected.as_ref().map(|inspected| inspected.holders.as_slice()) {
            Ok([]) if cooldown => format!("{given} does not hold it; nobody does, but it lingers"),
            Ok([]) => format!("{given} does not hold it; nobody does: the lease ended, or it was released"),
            Ok([holder, ..]) if holder.owner == *owner && holder.broken => {
                format!("{given} no longer holds it: it was broken, and is free when its lease is over")
            }
            Ok([holder, ..]) if holder.owner == *owner => match holder.fence {
                Some(fence) => format!("{given} no longer holds that lease of it: it has fence {fence} now"),
                None => format!("{given} no longer holds that lease of it"),
            },
            // The text of a generated owner does not make an explicit owner.
            Ok([holder, ..]) if holder.owner.to_string() == owner.to_string() => {
                let what = "it was acquired without an explicit owner, so only its own process can renew or release it";
                let error = Error::new(ErrorKind::NotHolder, operation, what);
                return self.labelled(error.with_hint("Client::break_lock takes it away from that process"));
            }
            Ok([holder, ..]) => format!("{given} does not hold it; owner {:?} does", holder.owner.to_string()),
            Err(_) => format!("{given} does not hold it"),
        };
        let error = Error::new(ErrorKind::NotHolder, operation, what);
        let is_over = !cooldown && inspected.is_ok_and(|inspected| inspected.holders.is_empty());
        let error = match operation {
            "renew" if is_over => error.with_hint("acquire it again"),
            "release" if is_over => {
                error.with_hint("there is nothing to release; take a longer lease if it ended too soon")
            }
            _ => error,
        };
        self.labelled(error)
    }

    fn labelled(&self, error: Error) -> Error {
        error.on_store(self.shell.store.label()).on_lock(&self.name)
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").field("name", &self.name).field("owner", &self.owner).finish_non_exhaustive()
    }
}
