//! Asks servers that miss a majority's lease to vote for it again: after a renewal, and right after a grant.

use std::time::Duration;

use leasehold_core::port::Reply;
use leasehold_core::quorum::{Ballot, Vote, Voted};
use leasehold_core::{Fence, Moment, Name, RequestId, StoreTime, backoff};

use crate::server_calls::{Completed, InFlightCalls};
use crate::store::Quorum;

/// Maximum number of tries at a server where another client is asking at the same time.
const TRIES_MAX: u32 = 6;

/// A server that misses a granted lease.
pub(crate) struct MissingReplica {
    pub(crate) server: usize,
    pub(crate) request: RequestId,
    pub(crate) name: Name,
    pub(crate) fence: Fence,
    /// How long it is to have the lease.
    pub(crate) term: Duration,
}

impl Quorum {
    /// Asks every server that misses a lease. A server where another client is asking at the same time is asked again,
    /// so that a contended lock does not stay limited to the servers that remember it.
    pub(crate) async fn rejoin(&self, mut missing: Vec<MissingReplica>) {
        for tries in 0..TRIES_MAX {
            if tries > 0 {
                let pause = backoff::retry_pause(&mut self.state().rng, tries);
                self.pause(pause).await;
            }
            let mut votes = InFlightCalls::new();
            let mut asked = Vec::new();
            for (missing, sent, ballot) in self.ballots(missing) {
                let (number, not_after) = (u32::try_from(asked.len()).unwrap_or(u32::MAX), ballot.acquire.not_after);
                votes.send(missing.server, number, sent, self.members[missing.server].vote(ballot));
                asked.push(Some((missing, not_after)));
            }
            missing = Vec::new();
            while let Some(Completed { server, round, reply, .. }) = votes.next(self).await {
                let Some((asked, not_after)) = asked[round as usize].take() else { continue };
                self.rejoined(asked.request, server, not_after, &reply);
                if matches!(&reply, Ok(answered) if matches!(answered.result.voted, Voted::Busy(_))) {
                    missing.push(asked);
                }
            }
            if missing.is_empty() {
                return;
            }
        }
    }

    /// Ballots for the leases that are still held.
    fn ballots(&self, missing: Vec<MissingReplica>) -> Vec<(MissingReplica, Moment, Ballot)> {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        let mut ballots = Vec::new();
        for missing in missing {
            let Some(held) = state.holds.get_mut(&missing.request).filter(|held| now < held.ends) else { continue };
            if held.hold.block().first != missing.fence || !held.names.contains(&missing.name) {
                continue;
            }
            let (rules, names) = (&self.shared.rules, &held.names);
            let ballot = held.hold.ask_anew(rules, missing.server, names, missing.term, now, &state.clocks);
            ballots.extend(ballot.map(|ballot| (missing, now, ballot)));
        }
        ballots
    }

    fn rejoined(&self, id: RequestId, server: usize, not_after: StoreTime, reply: &Reply<Vote>) {
        let now = self.now();
        let mut state = self.state();
        let shown = state.clocks.latest(server, now).unwrap_or_default();
        if let Some(held) = state.holds.get_mut(&id) {
            held.hold.asked_anew(server, not_after, shown, reply);
        }
    }
}
