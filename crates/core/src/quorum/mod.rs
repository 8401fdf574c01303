//! A lock over several independent servers: granted when a majority of them says so.
//!
//! The decisions of it, without a socket: the shell in the crate `leasehold` drives them over real servers, and the simulation over
//! reference stores.
//!
//! - [`member`]: what a server of a quorum does beyond an ordinary store.
//! - [`Attempt`]: one asking of all servers at once, to its end.
//! - [`Hold`]: what was granted, for as long as it is held.
//! - [`VoteRenewal`]: one renewal at all servers at once.
//! - [`Sweep`]: giving back, at every server, until that is certain.
//! - [`epoch`]: when a server may vote again that may have forgotten what it granted.
//! - [`Clocks`]: what is known of the servers' clocks, and the fences that are proposed by them.
//! - [`Health`]: servers that do not answer are asked again after growing pauses.
//!
//! Why a lock of a majority is exclusive: of two majorities one server is in both, and that one held the lock for the first when it
//! was asked by the second. It can have forgotten only by losing its memory, and then it does not vote for as long as any lease lasts.
//!
//! Why fences grow: the server that is in both majorities took the first's fence before the second's, and takes none that is not larger.

pub mod attempt;
pub mod clocks;
pub mod epoch;
pub mod health;
pub mod hold;
pub mod member;
pub mod server;
pub mod sweep;
pub mod vote_renewal;

pub use attempt::{Attempt, Verdict};
pub use clocks::Clocks;
pub use epoch::{ServerEpoch, VotingStatus};
pub use health::Health;
pub use hold::Hold;
pub use member::{Ballot, Member, RenewedVote, Vote, Voted};
pub use server::Server;
pub use sweep::Sweep;
pub use vote_renewal::VoteRenewal;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Outcome};
use crate::time::Moment;

/// How long a server is waited for at most.
const LIMIT: Duration = Duration::from_millis(50);
/// And this part of the lease, where that is less.
const LIMIT_PART: u32 = 10;
/// One thing for each server. Five are usual.
pub type PerServer<T> = SmallVec<[T; 5]>;

/// The settings of a quorum.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The servers, by labels for people.
    pub servers: Arc<[Arc<str>]>,
    /// How long a server is waited for; none for the smaller of 50 ms and a tenth of the lease.
    pub limit: Option<Duration>,
    /// For how long a server that may have forgotten does not vote. No lease is longer, unless it is zero, which switches it off.
    pub quarantine: Duration,
}

impl Rules {
    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// How many are a majority.
    pub fn majority(&self) -> usize {
        self.servers() / 2 + 1
    }

    /// How long a server is waited for, where the lease is so long.
    pub fn limit(&self, lease: Duration) -> Duration {
        self.limit.unwrap_or_else(|| LIMIT.min(lease / LIMIT_PART))
    }

    /// The error for too few servers, with the answer of each. An error in the arguments is returned as it is: the caller must mend it.
    fn no_quorum<'a>(
        &self,
        operation: &'static str,
        outcome: Outcome,
        said: impl Iterator<Item = (usize, Said<'a>)>,
    ) -> Error {
        let (mut states, mut votes, mut recovering) = (String::new(), 0, Vec::new());
        for (server, said) in said {
            if let Said::Failed(error) = said
                && error.kind() == ErrorKind::BadArgument
            {
                return error.clone();
            }
            match said {
                Said::Recovering(left) => recovering.push(left),
                Said::Fine(_) => votes += 1,
                Said::Failed(_) | Said::Silent => {}
            }
            let _ = match said {
                Said::Fine(what) => write!(states, "; {} {what}", self.servers[server]),
                Said::Failed(error) => write!(states, "; {}: {}", self.servers[server], error.message()),
                Said::Recovering(left) => {
                    write!(states, "; {} does not vote for another {left:.1?}", self.servers[server])
                }
                Said::Silent => write!(states, "; {} does not answer", self.servers[server]),
            };
        }
        let (majority, servers) = (self.majority(), self.servers());
        let what = format!("no quorum: {majority} of {servers} servers must agree{states}");
        let recovers = !recovering.is_empty();
        let error = Error::new(ErrorKind::NoQuorum, operation, what).with_outcome(outcome);
        error.with_retry_after(self.voting_in(votes, recovering)).with_hint(match recovers {
            true => "new servers, and those that may have forgotten, do not vote for a quarantine: wait for as long as they say, for example \
                     with a longer limit; see docs/redlock.md",
            false => "see that a majority of the servers is up and reached; leasehold::examine looks at each",
        })
    }
}

impl Rules {
    /// When a majority of servers votes, if those that answered but do not vote yet are enough for it.
    fn voting_in(&self, votes: usize, mut recovering: Vec<Duration>) -> Option<Duration> {
        recovering.sort_unstable();
        let missing = self.majority().checked_sub(votes)?.checked_sub(1)?;
        recovering.get(missing).copied()
    }
}

/// How one server answered a call.
#[derive(Clone, Debug)]
enum ReplicaReply<T> {
    Answered {
        sent: Moment,
        answer: T,
    },
    Failed(Error),
    /// It was not asked, not waited for, or made no sense.
    Silent,
}

/// What a server said, for people.
enum Said<'a> {
    Fine(&'static str),
    Failed(&'a Error),
    Recovering(Duration),
    Silent,
}

#[cfg(test)]
mod tests;
