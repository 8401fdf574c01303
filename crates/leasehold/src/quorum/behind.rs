//! What is left to do behind verdicts: one look at all of it every few milliseconds. Nearly all of it is over by then, and to be told
//! of every answer would cost more than the answer.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::quorum::Vote;
use leasehold_core::{Moment, RequestId};

use super::anew::Lacking;
use super::background;
use super::flights::Landed;
use super::releasing::Sweeping;
use super::voting::voted_late;
use super::{Quorum, State};

/// How often is looked, while there is something to look at.
const EVERY: Duration = Duration::from_millis(5);
/// So many servers are asked anew at a time: where thousands of grants are made at once, votes are late because servers have much to do,
/// and must not have twice as much to do for that.
const AT_ONCE: usize = 64;

/// What is to be looked at.
#[derive(Default)]
pub(super) struct Behind {
    /// Releases that were answered to whoever waited, and not by every server.
    releases: Vec<Sweeping>,
    /// Grants, and when those are asked once more who did not vote for them.
    grants: VecDeque<(Moment, RequestId)>,
    /// How many servers are being asked anew for grants, each counted for each.
    asked: usize,
    /// Somebody looks.
    looked_at: bool,
}

impl Quorum {
    /// A release goes on where nobody waits for it.
    pub(super) fn release_behind(&self, mut sweeping: Sweeping) {
        if sweeping.is_over() || self.shared.is_forked() {
            return;
        }
        let mut state = self.state();
        state.behind.releases.push(sweeping);
        self.look_behind(&mut state);
    }

    /// A lock was granted, and not by every server.
    pub(super) fn join_behind(&self, state: &mut State, from: Moment, request: RequestId) {
        if !self.shared.is_forked() {
            state.behind.grants.push_back((from, request));
            self.look_behind(state);
        }
    }

    fn look_behind(&self, state: &mut State) {
        if std::mem::replace(&mut state.behind.looked_at, true) {
            return;
        }
        let quorum = self.clone();
        background::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                if quorum.look() {
                    return;
                }
            }
        });
    }

    /// Whether nothing is left to look at.
    fn look(&self) -> bool {
        self.hurry();
        self.join();
        let mut state = self.state();
        if state.holds.is_empty() {
            state.behind.grants.clear();
        }
        let nothing = state.behind.grants.is_empty() && state.behind.releases.is_empty();
        state.behind.looked_at = !nothing;
        nothing
    }

    /// Asks those anew who missed grants, as many as may be asked at a time.
    fn join(&self) {
        let (now, mut lacking) = (leasehold_clock::now(), Vec::new());
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
        background::spawn(async move {
            quorum.ask_anew(lacking).await;
            quorum.state().behind.asked -= asked;
        });
    }

    /// Releases that are not over by now are waited for.
    pub(super) fn hurry(&self) {
        let releases = std::mem::take(&mut self.state().behind.releases);
        for mut sweeping in releases {
            if !sweeping.is_over() {
                self.go_on(sweeping);
            }
        }
    }

    /// Which servers do not have what was granted then, and are well.
    fn lacking(&self, now: Moment, request: RequestId) -> Vec<Lacking> {
        let late = self.state().holds.get_mut(&request).map(|held| std::mem::take(&mut held.late));
        let Some(mut late) = late else { return Vec::new() };
        let landed: Vec<Landed<Vote>> = std::iter::from_fn(|| late.ended(self)).collect();
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
        well.map(|server| Lacking { server, request, name: name.clone(), fence, term }).collect()
    }
}
