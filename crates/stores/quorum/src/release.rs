//! ReleaseCall a lock on every server.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::port::{Answered, Release, ReleaseScope, Released, Reply};
use leasehold_core::quorum::{Hold, PerServer, Sweep, Vote};
use leasehold_core::task_tracker::TaskGuard;
use leasehold_core::{Error, Moment, RequestId, lease};

use crate::acquire::voted_late;
use crate::server_calls::{Completed, InFlightCalls};
use crate::state::{Held, State};
use crate::store::Quorum;
use crate::timer_queue::Alarm;
use crate::wake_threshold::{WakeThreshold, unconstrained};

/// A caller gets its answer by then, even if servers are silent.
const ANSWER_LIMIT: Duration = Duration::from_millis(1_500);
/// A server that does not have a script yet needs two steps, and the first wakes no task if too few answer: so it is
/// checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum remaining time of a lease that this process does not know.
const UNKNOWN_LEASE_MAX: Duration = Duration::from_secs(60);

/// Releases in progress, with what is sent to each server.
pub(crate) struct ReleaseSweep {
    quorum: Quorum,
    sweeps: Vec<(Sweep, Release)>,
    quietly: bool,
    calls: InFlightCalls<Answered<Released>>,
    /// What is released, if known, and its votes that no caller waited for.
    late: Option<(Hold, InFlightCalls<Answered<Vote>>)>,
    wake_threshold: WakeThreshold,
    alarm: Alarm,
    /// Held until every server answered: a process that ends must not leave locks behind.
    task: Option<TaskGuard>,
}

impl ReleaseSweep {
    pub(crate) fn new(
        quorum: &Quorum,
        sweeps: Vec<(Sweep, Release)>,
        late: Option<(Hold, InFlightCalls<Answered<Vote>>)>,
        quietly: bool,
    ) -> Self {
        late.iter().for_each(|(_, votes)| quorum.count_stragglers(votes));
        Self {
            quorum: quorum.clone(),
            sweeps,
            quietly,
            calls: InFlightCalls::new(),
            late,
            wake_threshold: WakeThreshold::default(),
            alarm: Alarm::new(quorum.host()),
            task: Some(quorum.shared.releases.begin()),
        }
    }

    /// Sends what is due and processes answers. Returns whether anything happened.
    fn step(&mut self, task: &mut Context<'_>) -> bool {
        let now = self.quorum.now();
        let mut moved = false;
        for (number, (sweep, release)) in self.sweeps.iter_mut().enumerate() {
            for server in sweep.due(now) {
                let member = &self.quorum.members[server];
                let call =
                    if self.quietly { member.withdraw(release.clone()) } else { member.release(release.clone()) };
                self.calls.send(server, u32::try_from(number).unwrap_or(u32::MAX), now, call);
                moved = true;
            }
        }
        while let Poll::Ready(Completed { server, round, reply, .. }) = self.calls.poll(&self.quorum, task) {
            let mut state = self.quorum.shared.state();
            self.sweeps[round as usize].0.answered(self.quorum.now(), server, reply, &mut state.rng);
            moved = true;
        }
        moved
    }

    /// Votes that arrive now may have been overtaken by the release; the servers' clocks tell.
    fn receive_votes(&mut self, task: &mut Context<'_>) -> bool {
        let Some((hold, votes)) = &mut self.late else { return false };
        let mut moved = false;
        while let Poll::Ready(completed) = votes.poll(&self.quorum, task) {
            let (server, executed) = (completed.server, completed.reply.as_ref().ok().map(|answered| answered.at));
            let mut state = self.quorum.shared.state();
            let State { clocks, health, .. } = &mut *state;
            voted_late(hold, self.quorum.now(), clocks, health, completed);
            let is_last = hold.is_answered(server);
            if executed.is_some() || is_last {
                self.sweeps.iter_mut().for_each(|(sweep, _)| sweep.executed(server, executed, is_last));
            }
            moved = true;
        }
        if votes.is_empty() {
            self.late = None;
        }
        moved
    }

    fn wakes(&self) -> Moment {
        self.sweeps.iter().map(|(sweep, _)| sweep.wakes()).min().unwrap_or(Moment::NEVER)
    }

    fn is_done(&self) -> bool {
        self.late.is_none() && self.sweeps.iter().all(|(sweep, _)| sweep.is_done())
    }

    /// Whether nothing is left to do right now. Wakes no task.
    pub(crate) fn finishes_now(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Ready when nothing is left to do.
    pub(crate) fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        while self.step(task) | self.receive_votes(task) {}
        if self.sweeps.iter().all(|(sweep, _)| sweep.is_heard()) {
            self.task = None;
        }
        if self.is_done() {
            return Poll::Ready(());
        }
        self.alarm.set(self.wakes().max(self.quorum.now() + Duration::from_millis(1)), task.waker());
        Poll::Pending
    }

    fn poll_verdict(&mut self, task: &mut Context<'_>) -> Poll<Result<Released, Error>> {
        loop {
            let waker = self.wake_threshold.of(self.sweeps[0].0.awaits(), task.waker());
            let moved = self.step(&mut Context::from_waker(&waker));
            if let Some(verdict) = self.sweeps[0].0.verdict(self.quorum.now()) {
                return Poll::Ready(verdict);
            }
            if !moved {
                self.alarm.set(self.wakes().min(self.quorum.now() + CHECK_INTERVAL), task.waker());
                return Poll::Pending;
            }
        }
    }
}

impl Quorum {
    /// Continues in the background.
    pub(crate) fn continue_in_background(&self, mut release_sweep: ReleaseSweep) {
        if release_sweep.is_done() || self.shared.is_forked() {
            return;
        }
        self.spawn(async move { std::future::poll_fn(|task| release_sweep.poll(task)).await });
    }

    pub(crate) async fn give(self, request: Release) -> Reply<Released> {
        let mut call = ReleaseCall(Some(self.sweep_of(request)));
        let verdict = unconstrained(|task| match &mut call.0 {
            Some(release_sweep) => release_sweep.poll_verdict(task),
            None => Poll::Pending,
        })
        .await;
        if let Some(release_sweep) = call.0.take() {
            self.defer_release(release_sweep);
        }
        self.answer(verdict)
    }

    /// The steps that release a lock.
    fn sweep_of(&self, request: Release) -> ReleaseSweep {
        let now = self.now();
        let rules = &self.shared.rules;
        let longest = if rules.quarantine.is_zero() { UNKNOWN_LEASE_MAX } else { rules.quarantine };
        let (traces, request, late, left): (PerServer<_>, Release, _, _) = match self.remove_hold(&request) {
            Some(mut held) => {
                self.settle(&mut held);
                // A server that votes later may have it for a whole lease from then.
                let left = held.ends.since(now) + held.hold.lease();
                (held.hold.release(), held.hold.giving(request), Some((held.hold, held.late)), left)
            }
            None => ((0..rules.servers()).map(|_| Some(None)).collect(), request, None, longest),
        };
        let sweep = Sweep::begin(rules, traces, now, now + ANSWER_LIMIT, lease::surely_over(now, left));
        ReleaseSweep::new(self, vec![(sweep, request)], late, false)
    }

    /// Removes a name of a hold from the records; the whole hold with its last name.
    fn remove_hold(&self, request: &Release) -> Option<Held> {
        let id: RequestId = match request.scope {
            ReleaseScope::Hold(id) => id,
            ReleaseScope::One(_) | ReleaseScope::All => return None,
        };
        let mut state = self.state();
        let held = state.holds.get_mut(&id)?;
        // The fence is of another lease of the same owner.
        if request.fence.is_some_and(|fence| fence != held.hold.block().first) {
            return None;
        }
        held.names.retain(|name| *name != request.name);
        if held.names.is_empty() {
            return state.holds.remove(&id);
        }
        let (hold, ends) = (held.hold.clone(), held.ends);
        Some(Held { hold, names: Vec::new(), ends, late: InFlightCalls::new() })
    }
}

/// A release in progress. It continues if its caller drops it.
struct ReleaseCall(Option<ReleaseSweep>);

impl Drop for ReleaseCall {
    fn drop(&mut self) {
        if let Some(release_sweep) = self.0.take() {
            let quorum = release_sweep.quorum.clone();
            quorum.continue_in_background(release_sweep);
        }
    }
}
