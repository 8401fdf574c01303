//! One server of a quorum as pure state: the reference store with a record of its birth. The meaning of correct for the others.

use std::time::Duration;

use super::clocks;
use super::epoch::{self, Facts, ServerEpoch, VotingStatus};
use super::member::{Ballot, RenewedVote, Vote};
use crate::error::Error;
use crate::port::Renew;
use crate::reference::Reference;
use crate::time::StoreTime;

/// Locks, and the birth of the server that keeps them. All of it is lost together, and comes back together.
#[derive(Clone, Debug)]
pub struct Server {
    /// The locks.
    pub store: Reference,
    birth: Option<ServerEpoch>,
}

impl Server {
    /// An empty server, or what is left of one that was emptied.
    pub fn new(store: Reference) -> Self {
        Self { store, birth: None }
    }

    /// Votes.
    ///
    /// # Errors
    ///
    /// As [`epoch::examine`].
    pub fn vote(&mut self, now: StoreTime, facts: Facts, quarantine: Duration, ballot: &Ballot) -> Result<Vote, Error> {
        let standing = self.standing(now, facts, quarantine)?;
        let floor = clocks::floor(self.birth.as_ref().map(|birth| birth.born));
        Ok(Vote { standing, voted: self.store.vote(now, ballot, floor) })
    }

    /// Renews leases.
    ///
    /// # Errors
    ///
    /// As [`epoch::examine`].
    pub fn uphold(
        &mut self,
        now: StoreTime,
        facts: Facts,
        quarantine: Duration,
        leases: &[Renew],
    ) -> Result<RenewedVote, Error> {
        let standing = self.standing(now, facts, quarantine)?;
        Ok(RenewedVote { standing, renewed: self.store.renew(now, leases) })
    }

    fn standing(&mut self, now: StoreTime, facts: Facts, quarantine: Duration) -> Result<VotingStatus, Error> {
        let (birth, standing) = epoch::examine(self.birth.as_ref(), now, facts, quarantine)?;
        self.birth = Some(birth);
        Ok(standing)
    }
}
