//! Going on with a lock that was left to its explicit owner: renewing and releasing it without a guard.

use std::time::Duration;

use leasehold_core::port::{Release, ReleaseScope, Released, Renew, Renewed};
use leasehold_core::{Error, ErrorKind, Fence, Lease, Name, Names, Outcome, RequestId, StoreOwner};

use super::Lock;

impl Lock {
    /// Makes the lease that this lock's explicit owner has last for `term` from now, if it would not anyway, with all its holds. Answers
    /// how much is left of it; of several names, of the shortest.
    ///
    /// For those who have no guard: see [`Guard::leave`](crate::Guard::leave). With a fence, only the lease of that grant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHolder`] when the owner does not hold it, or not with that fence: it is never made again. Of several names, the
    /// others are renewed all the same. [`ErrorKind::BadArgument`] without an explicit owner, for a term out of the store's bounds, or
    /// for one fence and several names. A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the lease was lengthened.
    pub async fn renew(&self, fence: Option<Fence>, term: Duration) -> Result<Duration, Error> {
        let owner = self.explicit("renew", fence)?;
        self.clone().lease(term).check("renew")?;
        let mut leases = Vec::new();
        for name in self.names.as_slice() {
            let fence = match fence {
                Some(fence) => fence,
                None => self.fence_of("renew", name, &owner).await?,
            };
            let lease = Lease { name: name.clone(), owner: owner.clone(), fence };
            leases.push(Renew { lease, hold: None, term, kept: false });
        }
        let renewed =
            self.shell.0.store.renew(leases).await.map_err(|error| self.labelled(error, self.names.first()))?;
        let mut shortest = Duration::MAX;
        for (name, renewed) in self.names.as_slice().iter().zip(renewed.result) {
            match renewed {
                Renewed::Kept { left } => shortest = shortest.min(left),
                Renewed::Unknown => {
                    let what = "too few servers answered to tell whether it is held";
                    let error = Error::new(ErrorKind::NoQuorum, "renew", what).with_outcome(Outcome::Unknown);
                    return Err(self.labelled(error, name));
                }
                Renewed::Lost | Renewed::Broken => return Err(self.not_holder("renew", name, &owner).await),
            }
        }
        Ok(shortest)
    }

    /// Gives back one hold of this lock's explicit owner, and answers how many it has left; of several names, the most.
    ///
    /// For those who have no guard: see [`Guard::leave`](crate::Guard::leave). With a fence, only a hold of that grant. Where a guard
    /// stands for that hold, it is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHolder`] when the owner does not hold it, or not with that fence. Of several names, the others are given back all
    /// the same. [`ErrorKind::BadArgument`] without an explicit owner, or for one fence and several names. A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether it was given back.
    pub async fn release(&self, fence: Option<Fence>) -> Result<u32, Error> {
        self.shell.0.check_process("release")?;
        let request = self.shell.0.state().table.request();
        self.give(fence, ReleaseScope::One(request)).await
    }

    /// Gives back every hold of this lock's explicit owner.
    ///
    /// # Errors
    ///
    /// As [`Lock::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::release`].
    pub async fn release_all(&self, fence: Option<Fence>) -> Result<(), Error> {
        self.give(fence, ReleaseScope::All).await.map(drop)
    }

    /// Gives back the hold that this request took ([`Guard::requests`](crate::Guard::requests)), and no other of the same owner; answers
    /// how many the owner has left. Giving it back twice gives it back once.
    ///
    /// # Errors
    ///
    /// As [`Lock::release`]; also [`ErrorKind::NotHolder`] when that hold was given back before.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::release`].
    pub async fn release_hold(&self, request: RequestId, fence: Option<Fence>) -> Result<u32, Error> {
        self.give(fence, ReleaseScope::Hold(request)).await
    }

    async fn give(&self, fence: Option<Fence>, give: ReleaseScope) -> Result<u32, Error> {
        let owner = self.explicit("release", fence)?;
        let mut result = Ok(0);
        for name in self.names.as_slice() {
            let one = self.give_one(name, &owner, fence, give).await;
            result = match (result, one) {
                (Ok(most), Ok(left)) => Ok(left.max(most)),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        result
    }

    async fn give_one(
        &self,
        name: &Name,
        owner: &StoreOwner,
        fence: Option<Fence>,
        give: ReleaseScope,
    ) -> Result<u32, Error> {
        let release = Release {
            client: self.shell.0.client,
            name: name.clone(),
            owner: owner.clone(),
            fence,
            give,
            last_used: None,
            linger: Duration::ZERO,
            rejoin: false,
        };
        let released = self.shell.0.store.release(release).await.map_err(|error| self.labelled(error, name))?;
        match released.result {
            Released::Released { .. } => Ok(0),
            Released::StillHeld(left) => Ok(left),
            Released::NotHeld => Err(self.not_holder("release", name, owner).await),
        }
    }

    /// Checks what is the same for all of them.
    fn explicit(&self, operation: &'static str, fence: Option<Fence>) -> Result<StoreOwner, Error> {
        self.check(operation)?;
        let bad = |what, hint| {
            let error = Error::new(ErrorKind::BadArgument, operation, what).with_hint(hint);
            Err(self.labelled(error, self.names.first()))
        };
        if fence.is_some() && matches!(self.names, Names::Many(_)) {
            return bad("a fence is of one name, and several are given", "leave the fence out, or name one lock");
        }
        match self.owner.as_ref().and_then(|owner| owner.as_explicit()) {
            Some(id) => Ok(StoreOwner::Shared(id.clone())),
            None => bad("without a guard it takes an explicit owner", "give one with Lock::owned_by"),
        }
    }

    async fn fence_of(&self, operation: &'static str, name: &Name, owner: &StoreOwner) -> Result<Fence, Error> {
        let inspected = self.shell.0.store.inspect(name.clone()).await.map_err(|error| self.labelled(error, name))?;
        let mine = inspected.result.holders.iter().find(|holder| holder.owner == *owner);
        match mine {
            Some(holder) => Ok(holder.fence.unwrap_or(Fence::NONE)),
            None => Err(self.not_holder(operation, name, owner).await),
        }
    }

    /// Says who holds it instead.
    async fn not_holder(&self, operation: &'static str, name: &Name, owner: &StoreOwner) -> Error {
        let inspected = self.shell.0.store.inspect(name.clone()).await.map(|inspected| inspected.result);
        let lingers = inspected.as_ref().is_ok_and(|inspected| inspected.lingers.is_some());
        let given = format!("owner {:?}", owner.to_string());
        let what = match inspected.as_ref().map(|inspected| inspected.holders.as_slice()) {
            Ok([]) if lingers => format!("{given} does not hold it; nobody does, but it lingers"),
            Ok([]) => format!("{given} does not hold it; nobody does: the lease ended, or it was released"),
            Ok([holder, ..]) if holder.owner == *owner && holder.broken => {
                format!("{given} no longer holds it: it was broken, and is free when its lease is over")
            }
            Ok([holder, ..]) if holder.owner == *owner => match holder.fence {
                Some(fence) => format!("{given} no longer holds that lease of it: it has fence {fence} now"),
                None => format!("{given} no longer holds that lease of it"),
            },
            // The text of a generated owner is no explicit owner.
            Ok([holder, ..]) if holder.owner.to_string() == owner.to_string() => {
                let what = "it was acquired without an explicit owner, so only its own process can renew or release it";
                let error = Error::new(ErrorKind::NotHolder, operation, what);
                return self.labelled(error.with_hint("Client::break_lock takes it away from that process"), name);
            }
            Ok([holder, ..]) => format!("{given} does not hold it; owner {:?} does", holder.owner.to_string()),
            Err(_) => format!("{given} does not hold it"),
        };
        let error = Error::new(ErrorKind::NotHolder, operation, what);
        let is_over = operation == "renew" && !lingers && inspected.is_ok_and(|inspected| inspected.holders.is_empty());
        let error = if is_over { error.with_hint("acquire it again") } else { error };
        self.labelled(error, name)
    }

    fn labelled(&self, error: Error, name: &Name) -> Error {
        error.on_store(self.shell.0.store.label()).on_lock(name)
    }
}
