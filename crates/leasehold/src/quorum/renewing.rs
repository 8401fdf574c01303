//! Keeping locks: renewed at all servers at once, and servers that lost one are asked for their vote anew.

use std::task::Poll;
use std::time::Duration;

use leasehold_core::port::{Renew, Renewed, Reply};
use leasehold_core::quorum::{Ballot, Upholding, Vote, Voted};
use leasehold_core::{Moment, RequestId, waiting};

use super::Quorum;
use super::alarm::Alarm;
use super::background;
use super::flights::{Flights, Landed};

/// Renewals go out in batches, and are waited for longer than a vote: nobody waits for them but the keeper.
const SLOWEST: Duration = Duration::from_millis(500);
/// So often a server is asked for its vote anew after one renewal.
const TRIES: u32 = 6;

impl Quorum {
    pub(super) async fn uphold(self, leases: Vec<Renew>) -> Reply<Vec<Renewed>> {
        if leases.is_empty() {
            return self.answer(Ok(Vec::new()));
        }
        let now = leasehold_clock::now();
        let shortest = leases.iter().map(|renew| renew.term).min().unwrap_or_default();
        let ends = now + SLOWEST.min(shortest / 6);
        let mut upholding = Upholding::begin(&self.shared.rules, leases.len(), now, ends);
        // Every server has it under the owner and the fence; the request differs from attempt to attempt.
        let sent: Vec<Renew> = leases.iter().map(|renew| Renew { hold: None, ..renew.clone() }).collect();
        let mut flights = Flights::new();
        for (server, member) in self.members.iter().enumerate() {
            flights.send(server, 0, now, member.uphold(sent.clone()));
        }
        let mut alarm = Alarm::new();
        let verdict = std::future::poll_fn(|task| {
            loop {
                let landed = flights.poll(&self, task);
                let pending = landed.is_pending();
                if let Poll::Ready(Landed { server, sent, reply, .. }) = landed {
                    upholding.answered(server, sent, leasehold_clock::now(), reply);
                }
                if let Some(verdict) = upholding.verdict(leasehold_clock::now()) {
                    return Poll::Ready(verdict);
                }
                if pending {
                    alarm.set(upholding.wakes(), task.waker());
                    return Poll::Pending;
                }
            }
        })
        .await;
        if let Ok(renewed) = &verdict {
            self.prolong(now, &leases, renewed);
        }
        self.look_for_votes(upholding, flights, leases);
        self.answer(verdict)
    }

    /// The servers have them for longer now.
    fn prolong(&self, sent: Moment, leases: &[Renew], renewed: &[Renewed]) {
        let mut state = self.state();
        for (renew, renewed) in leases.iter().zip(renewed) {
            let (Renewed::Kept { left }, Some(id)) = (renewed, renew.hold) else { continue };
            if let Some(held) = state.holds.get_mut(&id) {
                held.ends = held.ends.max(sent + *left);
            }
        }
    }

    /// Behind the verdict: hears the other servers, and asks those anew that vote and do not have what a majority has.
    fn look_for_votes(
        &self,
        mut upholding: Upholding,
        mut flights: Flights<leasehold_core::quorum::Upheld>,
        leases: Vec<Renew>,
    ) {
        if self.shared.is_forked() {
            return;
        }
        while let Some(Landed { server, sent, reply, .. }) = flights.ended(self) {
            upholding.answered(server, sent, leasehold_clock::now(), reply);
        }
        if flights.is_empty() && (0..leases.len()).all(|lease| upholding.vacant(lease).next().is_none()) {
            return;
        }
        let quorum = self.clone();
        background::spawn(async move {
            while let Some(Landed { server, sent, reply, .. }) = flights.next(&quorum).await {
                let now = leasehold_clock::now();
                if let Err(error) = &reply {
                    quorum.state().health.failed(server, now, Some(error.clone()));
                }
                upholding.answered(server, sent, now, reply);
            }
            quorum.ask_anew(&upholding, &leases).await;
        });
    }

    /// Asks every server that lacks a lease; one where somebody else is trying just then is asked again, so that a lock that many want
    /// does not end with the servers that forgot it.
    async fn ask_anew(&self, upholding: &Upholding, leases: &[Renew]) {
        let mut vacant: Vec<(usize, usize)> = Vec::new();
        for lease in 0..leases.len() {
            vacant.extend(upholding.vacant(lease).map(|server| (lease, server)));
        }
        for tries in 0..TRIES {
            if tries > 0 {
                let pause = waiting::retry_pause(&mut self.state().rng, tries);
                self.pause(pause).await;
            }
            let mut votes = Flights::new();
            let mut asked = Vec::new();
            for (lease, server, id, sent, ballot) in self.ballots(&vacant, leases) {
                let number = u32::try_from(asked.len()).unwrap_or(u32::MAX);
                votes.send(server, number, sent, self.members[server].vote(ballot));
                asked.push((lease, id));
            }
            vacant.clear();
            while let Some(Landed { server, round, reply, .. }) = votes.next(self).await {
                let (lease, id) = asked[round as usize];
                self.voted_anew(id, server, &reply);
                if matches!(&reply, Ok(answered) if matches!(answered.result.voted, Voted::Busy(_))) {
                    vacant.push((lease, server));
                }
            }
            if vacant.is_empty() {
                return;
            }
        }
    }

    /// Ballots for those that are still held: of a lease, to a server.
    fn ballots(&self, vacant: &[(usize, usize)], leases: &[Renew]) -> Vec<(usize, usize, RequestId, Moment, Ballot)> {
        let now = leasehold_clock::now();
        let mut state = self.state();
        let state = &mut *state;
        let mut ballots = Vec::new();
        for (lease, server) in vacant.iter().copied() {
            let renew = &leases[lease];
            let Some(id) = renew.hold else { continue };
            let Some(held) = state.holds.get_mut(&id).filter(|held| now < held.ends) else { continue };
            if held.hold.block().first != renew.lease.fence || !held.names.contains(&renew.lease.name) {
                continue;
            }
            let rules = &self.shared.rules;
            let ballot = held.hold.ask_anew(rules, server, &held.names, renew.term, now, &state.clocks);
            ballots.extend(ballot.map(|ballot| (lease, server, id, now, ballot)));
        }
        ballots
    }

    fn voted_anew(&self, id: RequestId, server: usize, reply: &Reply<Vote>) {
        let now = leasehold_clock::now();
        let mut state = self.state();
        let shown = state.clocks.latest(server, now).unwrap_or_default();
        if let Some(held) = state.holds.get_mut(&id) {
            held.hold.asked_anew(server, shown, reply);
        }
    }
}
