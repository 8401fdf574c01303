//! Renewing leases on all servers at once. Servers that lost one are asked to vote for it again.

use std::task::Poll;
use std::time::Duration;

use leasehold_core::Moment;
use leasehold_core::port::{Answered, Renew, Renewed, Reply};
use leasehold_core::quorum::{RenewedVote, VoteRenewal};

use crate::rejoin::MissingReplica;
use crate::server_calls::{Completed, InFlightCalls};
use crate::store::Quorum;
use crate::timer_queue::Alarm;

/// Renewals go out in batches, and are waited for longer than votes: only the keeper waits for them.
const RENEWAL_LIMIT: Duration = Duration::from_millis(500);

impl Quorum {
    pub(crate) async fn uphold(self, leases: Vec<Renew>) -> Reply<Vec<Renewed>> {
        if leases.is_empty() {
            return self.answer(Ok(Vec::new()));
        }
        let now = self.now();
        let shortest = leases.iter().map(|renew| renew.term).min().unwrap_or_default();
        let ends = now + RENEWAL_LIMIT.min(shortest / 6);
        let mut upholding = VoteRenewal::begin(&self.shared.rules, leases.len(), now, ends);
        // Every server has it under the owner and the fence; the request differs between attempts.
        let sent: Vec<Renew> = leases.iter().map(|renew| Renew { hold: None, ..renew.clone() }).collect();
        let mut calls = InFlightCalls::new();
        for (server, member) in self.members.iter().enumerate() {
            calls.send(server, 0, now, member.uphold(sent.clone()));
        }
        let mut alarm = Alarm::new(self.host());
        let verdict = std::future::poll_fn(|task| {
            loop {
                let completed = calls.poll(&self, task);
                let pending = completed.is_pending();
                if let Poll::Ready(Completed { server, sent, reply, .. }) = completed {
                    upholding.answered(server, sent, reply);
                }
                if let Some(verdict) = upholding.verdict(self.now()) {
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
        self.look_for_votes(upholding, calls, leases);
        self.answer(verdict)
    }

    /// The servers now have them for longer.
    fn prolong(&self, sent: Moment, leases: &[Renew], renewed: &[Renewed]) {
        let mut state = self.state();
        for (renew, renewed) in leases.iter().zip(renewed) {
            let (Renewed::Kept { left }, Some(id)) = (renewed, renew.hold) else { continue };
            if let Some(held) = state.holds.get_mut(&id) {
                held.ends = held.ends.max(sent + *left);
            }
        }
    }

    /// After the verdict: processes the other servers' answers, and asks voting servers that miss a majority's lease to
    /// rejoin.
    fn look_for_votes(
        &self,
        mut upholding: VoteRenewal,
        mut calls: InFlightCalls<Answered<RenewedVote>>,
        leases: Vec<Renew>,
    ) {
        if self.shared.is_forked() {
            return;
        }
        while let Some(Completed { server, sent, reply, .. }) = calls.ended(self) {
            upholding.answered(server, sent, reply);
        }
        if calls.is_empty() && missing(&upholding, &leases).is_empty() {
            return;
        }
        let quorum = self.clone();
        self.spawn(async move {
            while let Some(Completed { server, sent, reply, .. }) = calls.next(&quorum).await {
                let now = quorum.now();
                if let Err(error) = &reply {
                    quorum.state().health.failed(server, now, Some(error.clone()));
                }
                upholding.answered(server, sent, reply);
            }
            quorum.rejoin(missing(&upholding, &leases)).await;
        });
    }
}

/// The voting servers that miss a majority's lease.
fn missing(upholding: &VoteRenewal, leases: &[Renew]) -> Vec<MissingReplica> {
    let mut missing = Vec::new();
    for (number, Renew { lease, hold, term, .. }) in leases.iter().enumerate() {
        let Some(request) = *hold else { continue };
        missing.extend(upholding.vacant(number).map(|server| {
            let (name, fence, term) = (lease.name.clone(), lease.fence, *term);
            MissingReplica { server, request, name, fence, term }
        }));
    }
    missing
}
