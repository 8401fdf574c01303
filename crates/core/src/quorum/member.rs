//! What a server of a quorum does beyond an ordinary store: it votes.

use std::time::Duration;

use super::epoch::VotingStatus;
use crate::fence::{Block, Fence};
use crate::port::{Acquire, Busy, Call, Release, Released, Renew, Renewed, Reply, Store};

/// A store that can be one server of a quorum.
///
/// Every answer that may count says whether it does: see [`VotingStatus`].
pub trait Member: Store {
    /// Takes the names, all or none, and the fences that are proposed, where they are larger than all that were taken before.
    fn vote(&self, ballot: Ballot) -> Call<Reply<Vote>>;

    /// Renews leases, by owner and fence. Never makes one again.
    fn uphold(&self, leases: Vec<Renew>) -> Call<Reply<RenewedVote>>;

    /// Gives back what a ballot took. As [`Store::release`], without hints: a lease without a majority has kept nobody out.
    fn withdraw(&self, request: Release) -> Call<Reply<Released>>;
}

/// One server is asked for its vote.
#[derive(Clone, Debug)]
pub struct Ballot {
    /// What for. Its `block` and `seen` say nothing here.
    pub acquire: Acquire,
    /// The fences that are proposed, for each of the names.
    pub block: Block,
    /// A majority holds these names with these fences already, and this server is to join it: its own fence may be larger.
    pub again: bool,
}

/// A server's answer to a ballot.
#[derive(Clone, Debug)]
pub struct Vote {
    /// Whether it counts.
    pub standing: VotingStatus,
    /// What it was.
    pub voted: Voted,
}

/// What became of a ballot.
#[derive(Clone, Debug)]
pub enum Voted {
    /// The names are ours here, with these fences.
    Took {
        /// How much of the lease is left as the server answers.
        left: Duration,
    },
    /// The names are ours here, but the fences were not taken: one is not larger than `last`, or they are not near the server's clock.
    Held {
        /// How much of the lease is left as the server answers.
        left: Duration,
        /// The largest fence it knows of these names.
        last: Fence,
    },
    /// Held by another; nothing was taken.
    Busy(Box<Busy>),
    /// It came after its `not_after`; nothing was taken.
    TooLate,
}

/// A server's answer to renewals.
#[derive(Clone, Debug)]
pub struct RenewedVote {
    /// Whether it counts.
    pub standing: VotingStatus,
    /// One each, in order.
    pub renewed: Vec<Renewed>,
}
