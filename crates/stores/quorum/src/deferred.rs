//! Work that is left after a verdict. It is checked every few milliseconds, or when it is due: nearly all of it is done
//! by then, and waking a task for every answer would cost more than the answer.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::port::Answered;
use leasehold_core::quorum::Vote;
use leasehold_core::{Moment, RequestId};

use crate::acquire::voted_late;
use crate::rejoin::MissingReplica;
use crate::release::ReleaseSweep;
use crate::server_calls::Completed;
use crate::state::State;
use crate::store::Quorum;
use crate::timer_queue;

/// Interval between two checks while work is left.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of servers asked to rejoin at a time. If thousands of grants are made at once, votes are late because
/// the servers are busy, and rejoining must not double their load.
const REJOINS_MAX: usize = 64;

/// How long closing waits for servers that neither answer nor fail.
const CLOSING_LIMIT: Duration = Duration::from_millis(500);

/// Work that is checked at intervals.
#[derive(Default)]
pub(crate) struct DeferredWork {
    /// Releases with a verdict that some servers have not answered.
    releases: Vec<ReleaseSweep>,
    /// Grants, and when the servers that did not vote for them are asked again.
    grants: VecDeque<(Moment, RequestId)>,
    /// Number of rejoin calls in flight.
    asked: usize,
    /// A task checks the releases.
    checks_releases: bool,
    /// A task checks the grants.
    checks_grants: bool,
}

impl Quorum {
    /// Continues a release after its verdict.
    pub(crate) fn defer_release(&self, mut sweep: ReleaseSweep) {
        if sweep.finishes_now() || self.shared.is_forked() {
            return;
        }
        let deferred = &mut self.state().deferred;
        deferred.releases.push(sweep);
        if std::mem::replace(&mut deferred.checks_releases, true) {
            return;
        }
        let quorum = self.clone();
        self.spawn(async move {
            loop {
                quorum.pause(CHECK_INTERVAL).await;
                quorum.check_releases();
                let deferred = &mut quorum.state().deferred;
                deferred.checks_releases = !deferred.releases.is_empty();
                if !deferred.checks_releases {
                    return;
                }
            }
        });
    }

    /// A lock was granted, but not by every server.
    pub(crate) fn defer_rejoin(&self, state: &mut State, from: Moment, request: RequestId) {
        if self.shared.is_forked() {
            return;
        }
        state.deferred.grants.push_back((from, request));
        if std::mem::replace(&mut state.deferred.checks_grants, true) {
            return;
        }
        let quorum = self.clone();
        self.spawn(async move {
            let mut next = Some(from);
            while let Some(due) = next {
                quorum.pause(due.since(quorum.now()).max(CHECK_INTERVAL)).await;
                quorum.rejoin_due();
                next = quorum.next_rejoin();
            }
        });
    }

    /// When the next grant is due; `None` if none is left.
    fn next_rejoin(&self) -> Option<Moment> {
        let mut state = self.state();
        if state.holds.is_empty() {
            state.deferred.grants.clear();
        }
        let due = state.deferred.grants.front().map(|(from, _)| *from);
        state.deferred.checks_grants = due.is_some();
        due
    }

    /// Asks servers that missed a grant to rejoin, as many as may be asked at a time.
    fn rejoin_due(&self) {
        let (now, mut missing) = (self.now(), Vec::new());
        loop {
            let due = {
                let deferred = &mut self.state().deferred;
                let has_room = deferred.asked + missing.len() < REJOINS_MAX;
                let is_due = deferred.grants.front().is_some_and(|(from, _)| *from <= now);
                if has_room && is_due { deferred.grants.pop_front() } else { None }
            };
            let Some((_, request)) = due else { break };
            missing.extend(self.missing(now, request));
        }
        if missing.is_empty() {
            return;
        }
        let (quorum, asked) = (self.clone(), missing.len());
        self.state().deferred.asked += asked;
        self.spawn(async move {
            quorum.rejoin(missing).await;
            quorum.state().deferred.asked -= asked;
        });
    }

    /// Waits until releases were sent to every reachable server, and every reachable server has the leases that outlive
    /// this process.
    pub(crate) async fn finish_releases(&self) {
        self.check_releases();
        let until = self.now() + CLOSING_LIMIT;
        self.rejoin_before_close(until).await;
        timer_queue::within(self.host(), until, self.shared.releases.done()).await;
    }

    /// A lease that is left to its owner when this process ends must be on every reachable server: no client asks for
    /// it later.
    async fn rejoin_before_close(&self, until: Moment) {
        loop {
            let now = self.now();
            let mut held: Vec<RequestId> = self.state().holds.keys().copied().collect();
            held.sort_unstable();
            let missing: Vec<MissingReplica> =
                held.into_iter().flat_map(|request| self.missing(now, request)).collect();
            if missing.is_empty() || now >= until {
                return;
            }
            // Servers that were sent a vote have their time to answer it.
            let is_pending = missing.iter().any(|missing| self.has_votes_in_flight(now, missing.request));
            if !is_pending {
                timer_queue::within(self.host(), until, self.rejoin(missing)).await;
            }
            self.pause(CHECK_INTERVAL).await;
        }
    }

    /// Whether votes that were sent with the grant may still come.
    fn has_votes_in_flight(&self, now: Moment, request: RequestId) -> bool {
        let state = self.state();
        state.holds.get(&request).is_some_and(|held| !held.late.is_empty() && now < held.hold.joined_from())
    }

    /// Releases that are not done by now are awaited in the background.
    fn check_releases(&self) {
        let releases = std::mem::take(&mut self.state().deferred.releases);
        for mut sweep in releases {
            if !sweep.finishes_now() {
                self.continue_in_background(sweep);
            }
        }
    }

    /// The healthy servers that miss a grant.
    fn missing(&self, now: Moment, request: RequestId) -> Vec<MissingReplica> {
        let late = self.state().holds.get_mut(&request).map(|held| std::mem::take(&mut held.late));
        let Some(mut late) = late else { return Vec::new() };
        let completed: Vec<Completed<Answered<Vote>>> = std::iter::from_fn(|| late.ended(self)).collect();
        let mut guard = self.state();
        let state = &mut *guard;
        let left_out = state.left_out(now);
        let Some(held) = state.holds.get_mut(&request) else {
            drop(guard);
            // It was released meanwhile.
            self.finish(late);
            return Vec::new();
        };
        for completed in completed {
            voted_late(&mut held.hold, now, &state.clocks, &mut state.health, completed);
        }
        held.late = late;
        let (fence, term) = (held.hold.block().first, held.ends.since(now));
        let Some(name) = held.names.first().cloned().filter(|_| !term.is_zero()) else { return Vec::new() };
        let well = held.hold.vacant().filter(|server| left_out[*server].is_none());
        well.map(|server| MissingReplica { server, request, name: name.clone(), fence, term }).collect()
    }
}
