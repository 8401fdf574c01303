//! Servers that lack what a majority has are asked for their vote anew: after a renewal, and right after a grant.

use std::time::Duration;

use leasehold_core::port::Reply;
use leasehold_core::quorum::{Ballot, Vote, Voted};
use leasehold_core::{Fence, Moment, Name, RequestId, StoreTime, backoff};

use crate::server_calls::{Completed, InFlightCalls};
use crate::store::Quorum;

/// So often a server is asked where somebody else is trying just then.
const TRIES: u32 = 6;

/// A server that does not have what is held.
pub(crate) struct MissingReplica {
    pub(crate) server: usize,
    pub(crate) request: RequestId,
    pub(crate) name: Name,
    pub(crate) fence: Fence,
    /// For how long it is to have it.
    pub(crate) term: Duration,
}

impl Quorum {
    /// Asks every server that lacks a lease; one where somebody else is trying just then is asked again, so that a lock that many want
    /// does not end with the servers that forgot it.
    pub(crate) async fn ask_anew(&self, mut lacking: Vec<MissingReplica>) {
        for tries in 0..TRIES {
            if tries > 0 {
                let pause = backoff::retry_pause(&mut self.state().rng, tries);
                self.pause(pause).await;
            }
            let mut votes = InFlightCalls::new();
            let mut asked = Vec::new();
            for (lacking, sent, ballot) in self.ballots(lacking) {
                let (number, not_after) = (u32::try_from(asked.len()).unwrap_or(u32::MAX), ballot.acquire.not_after);
                votes.send(lacking.server, number, sent, self.members[lacking.server].vote(ballot));
                asked.push(Some((lacking, not_after)));
            }
            lacking = Vec::new();
            while let Some(Completed { server, round, reply, .. }) = votes.next(self).await {
                let Some((asked, not_after)) = asked[round as usize].take() else { continue };
                self.voted_anew(asked.request, server, not_after, &reply);
                if matches!(&reply, Ok(answered) if matches!(answered.result.voted, Voted::Busy(_))) {
                    lacking.push(asked);
                }
            }
            if lacking.is_empty() {
                return;
            }
        }
    }

    /// Ballots for those that are still held.
    fn ballots(&self, lacking: Vec<MissingReplica>) -> Vec<(MissingReplica, Moment, Ballot)> {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        let mut ballots = Vec::new();
        for lacking in lacking {
            let Some(held) = state.holds.get_mut(&lacking.request).filter(|held| now < held.ends) else { continue };
            if held.hold.block().first != lacking.fence || !held.names.contains(&lacking.name) {
                continue;
            }
            let (rules, names) = (&self.shared.rules, &held.names);
            let ballot = held.hold.ask_anew(rules, lacking.server, names, lacking.term, now, &state.clocks);
            ballots.extend(ballot.map(|ballot| (lacking, now, ballot)));
        }
        ballots
    }

    fn voted_anew(&self, id: RequestId, server: usize, not_after: StoreTime, reply: &Reply<Vote>) {
        let now = self.now();
        let mut state = self.state();
        let shown = state.clocks.latest(server, now).unwrap_or_default();
        if let Some(held) = state.holds.get_mut(&id) {
            held.hold.asked_anew(server, not_after, shown, reply);
        }
    }
}
