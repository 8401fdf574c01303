//! What is left to do behind verdicts: one look at all of it every few milliseconds, or when it is due. Nearly all of it is over by then,
//! and to be told of every answer would cost more than the answer.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::port::Answered;
use leasehold_core::quorum::Vote;
use leasehold_core::{Moment, RequestId};

use crate::acquire::voted_late;
use crate::rejoin::MissingReplica;
use crate::release::Sweeping;
use crate::server_calls::Completed;
use crate::state::State;
use crate::store::Quorum;
use crate::timer_queue;

/// How often is looked at most, while there is something to look at.
const EVERY: Duration = Duration::from_millis(5);
/// So many servers are asked anew at a time: where thousands of grants are made at once, votes are late because servers have much to do,
/// and must not have twice as much to do for that.
const AT_ONCE: usize = 64;

/// Closing waits this long for servers that neither answer nor fail.
const CLOSING_LIMIT: Duration = Duration::from_millis(500);

/// What is to be looked at.
#[derive(Default)]
pub(crate) struct DeferredWork {
    /// Releases that were answered to whoever waited, and not by every server.
    releases: Vec<Sweeping>,
    /// Grants, and when those are asked once more who did not vote for them.
    grants: VecDeque<(Moment, RequestId)>,
    /// How many servers are being asked anew for grants, each counted for each.
    asked: usize,
    /// Somebody looks after releases.
    hurries: bool,
    /// Somebody looks after grants.
    joins: bool,
}

impl Quorum {
    /// A release goes on where nobody waits for it.
    pub(crate) fn release_behind(&self, mut sweeping: Sweeping) {
        if sweeping.is_over() || self.shared.is_forked() {
            return;
        }
        let behind = &mut self.state().behind;
        behind.releases.push(sweeping);
        if std::mem::replace(&mut behind.hurries, true) {
            return;
        }
        let quorum = self.clone();
        self.spawn(async move {
            loop {
                quorum.pause(EVERY).await;
                quorum.hurry();
                let behind = &mut quorum.state().behind;
                behind.hurries = !behind.releases.is_empty();
                if !behind.hurries {
                    return;
                }
            }
        });
    }

    /// A lock was granted, and not by every server.
    pub(crate) fn join_behind(&self, state: &mut State, from: Moment, request: RequestId) {
        if self.shared.is_forked() {
            return;
        }
        state.behind.grants.push_back((from, request));
        if std::mem::replace(&mut state.behind.joins, true) {
            return;
        }
        let quorum = self.clone();
        self.spawn(async move {
            let mut next = Some(from);
            while let Some(due) = next {
                quorum.pause(due.since(quorum.now()).max(EVERY)).await;
                quorum.join();
                next = quorum.next_join();
            }
        });
    }

    /// When the next grant is due; none where nothing is left to look at.
    fn next_join(&self) -> Option<Moment> {
        let mut state = self.state();
        if state.holds.is_empty() {
            state.behind.grants.clear();
        }
        let due = state.behind.grants.front().map(|(from, _)| *from);
        state.behind.joins = due.is_some();
        due
    }

    /// Asks those anew who missed grants, as many as may be asked at a time.
    fn join(&self) {
        let (now, mut lacking) = (self.now(), Vec::new());
        loop {
            let due = {
                let behind = &mut self.state().behind;
                let has_room = behind.asked + lacking.len() < AT_ONCE;
                let is_due = behind.grants.front().is_some_and(|(from, _)| *from <= now);
                if has_room && is_due { behind.grants.pop_front() } else { None }
            };
            let Some((_, request)) = due else { break };
            lacking.extend(self.lacking(now, request));
        }
        if lacking.is_empty() {
            return;
        }
        let (quorum, asked) = (self.clone(), lacking.len());
        self.state().behind.asked += asked;
        self.spawn(async move {
            quorum.ask_anew(lacking).await;
            quorum.state().behind.asked -= asked;
        });
    }

    /// Waits until what is given back was sent to every server that is there, and has what is left to its owner.
    pub(crate) async fn finish_releases(&self) {
        self.hurry();
        let until = self.now() + CLOSING_LIMIT;
        self.last_votes(until).await;
        timer_queue::within(self.host(), until, self.shared.releases.done()).await;
    }

    /// What is left to its owner by a process that ends is to be had by every server that is there: nobody asks for it later.
    async fn last_votes(&self, until: Moment) {
        loop {
            let now = self.now();
            let mut held: Vec<RequestId> = self.state().holds.keys().copied().collect();
            held.sort_unstable();
            let lacking: Vec<MissingReplica> =
                held.into_iter().flat_map(|request| self.lacking(now, request)).collect();
            if lacking.is_empty() || now >= until {
                return;
            }
            // Those who were sent a vote have their time to answer it.
            let are_asked = lacking.iter().any(|lacking| self.is_asked(now, lacking.request));
            if !are_asked {
                timer_queue::within(self.host(), until, self.ask_anew(lacking)).await;
            }
            self.pause(EVERY).await;
        }
    }

    /// Whether votes that were sent with the grant may still come.
    fn is_asked(&self, now: Moment, request: RequestId) -> bool {
        let state = self.state();
        state.holds.get(&request).is_some_and(|held| !held.late.is_empty() && now < held.hold.joined_from())
    }

    /// Releases that are not over by now are waited for.
    fn hurry(&self) {
        let releases = std::mem::take(&mut self.state().behind.releases);
        for mut sweeping in releases {
            if !sweeping.is_over() {
                self.go_on(sweeping);
            }
        }
    }

    /// Which servers do not have what was granted then, and are well.
    fn lacking(&self, now: Moment, request: RequestId) -> Vec<MissingReplica> {
        let late = self.state().holds.get_mut(&request).map(|held| std::mem::take(&mut held.late));
        let Some(mut late) = late else { return Vec::new() };
        let landed: Vec<Completed<Answered<Vote>>> = std::iter::from_fn(|| late.ended(self)).collect();
        let mut guard = self.state();
        let state = &mut *guard;
        let left_out = state.left_out(now);
        let Some(held) = state.holds.get_mut(&request) else {
            drop(guard);
            // It was given back meanwhile.
            self.finish(late);
            return Vec::new();
        };
        for landed in landed {
            voted_late(&mut held.hold, now, &state.clocks, &mut state.health, landed);
        }
        held.late = late;
        let (fence, term) = (held.hold.block().first, held.ends.since(now));
        let Some(name) = held.names.first().cloned().filter(|_| !term.is_zero()) else { return Vec::new() };
        let well = held.hold.vacant().filter(|server| left_out[*server].is_none());
        well.map(|server| MissingReplica { server, request, name: name.clone(), fence, term }).collect()
    }
}
