//! Giving a lock back at every server.

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

/// Whoever gives back is answered by then, though servers are silent.
const ANSWER: Duration = Duration::from_millis(1_500);
/// A server that must be told a script first needs two steps, and where too few answer nobody is woken for the first: so there is a look.
const LOOK: Duration = Duration::from_millis(50);
/// What nobody here knows of any more may last so long at most.
const LONGEST: Duration = Duration::from_secs(60);

/// Sweeps under way, with what is sent to each server.
pub(crate) struct Sweeping {
    quorum: Quorum,
    sweeps: Vec<(Sweep, Release)>,
    quietly: bool,
    flights: InFlightCalls<Answered<Released>>,
    /// What is given back, where that is known, and its votes that nobody waited for.
    late: Option<(Hold, InFlightCalls<Answered<Vote>>)>,
    quota: WakeThreshold,
    alarm: Alarm,
    /// Until every server was heard of: a process that ends must not leave locks behind.
    task: Option<TaskGuard>,
}

impl Sweeping {
    pub(crate) fn new(
        quorum: &Quorum,
        sweeps: Vec<(Sweep, Release)>,
        late: Option<(Hold, InFlightCalls<Answered<Vote>>)>,
        quietly: bool,
    ) -> Self {
        late.iter().for_each(|(_, votes)| quorum.not_waited_for(votes));
        Self {
            quorum: quorum.clone(),
            sweeps,
            quietly,
            flights: InFlightCalls::new(),
            late,
            quota: WakeThreshold::default(),
            alarm: Alarm::new(quorum.host()),
            task: Some(quorum.shared.releases.begin()),
        }
    }

    /// Goes on until all is done; `verdict` is called after every step.
    fn step(&mut self, task: &mut Context<'_>) -> bool {
        let now = self.quorum.now();
        let mut moved = false;
        for (number, (sweep, release)) in self.sweeps.iter_mut().enumerate() {
            for server in sweep.due(now) {
                let member = &self.quorum.members[server];
                let call =
                    if self.quietly { member.withdraw(release.clone()) } else { member.release(release.clone()) };
                self.flights.send(server, u32::try_from(number).unwrap_or(u32::MAX), now, call);
                moved = true;
            }
        }
        while let Poll::Ready(Completed { server, round, reply, .. }) = self.flights.poll(&self.quorum, task) {
            let mut state = self.quorum.shared.state();
            self.sweeps[round as usize].0.answered(self.quorum.now(), server, reply, &mut state.rng);
            moved = true;
        }
        moved
    }

    /// Votes that come now were overtaken by the release, or not: their servers say.
    fn hear_votes(&mut self, task: &mut Context<'_>) -> bool {
        let Some((hold, votes)) = &mut self.late else { return false };
        let mut moved = false;
        while let Poll::Ready(landed) = votes.poll(&self.quorum, task) {
            let (server, executed) = (landed.server, landed.reply.as_ref().ok().map(|answered| answered.at));
            let mut state = self.quorum.shared.state();
            let State { clocks, health, .. } = &mut *state;
            voted_late(hold, self.quorum.now(), clocks, health, landed);
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

    /// Whether nothing is left to be done as it stands; nobody is woken for what is.
    pub(crate) fn is_over(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Ready when nothing is left to be done.
    pub(crate) fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        while self.step(task) | self.hear_votes(task) {}
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
            let waker = self.quota.of(self.sweeps[0].0.awaits(), task.waker());
            let moved = self.step(&mut Context::from_waker(&waker));
            if let Some(verdict) = self.sweeps[0].0.verdict(self.quorum.now()) {
                return Poll::Ready(verdict);
            }
            if !moved {
                self.alarm.set(self.wakes().min(self.quorum.now() + LOOK), task.waker());
                return Poll::Pending;
            }
        }
    }
}

impl Quorum {
    /// Goes on in the background with what is left to be given back.
    pub(crate) fn go_on(&self, mut sweeping: Sweeping) {
        if sweeping.is_done() || self.shared.is_forked() {
            return;
        }
        self.spawn(async move { std::future::poll_fn(|task| sweeping.poll(task)).await });
    }

    pub(crate) async fn give(self, request: Release) -> Reply<Released> {
        let mut releasing = Releasing(Some(self.sweep_of(request)));
        let verdict = unconstrained(|task| match &mut releasing.0 {
            Some(sweeping) => sweeping.poll_verdict(task),
            None => Poll::Pending,
        })
        .await;
        if let Some(sweeping) = releasing.0.take() {
            self.release_behind(sweeping);
        }
        self.answer(verdict)
    }

    /// What is to be done to give a lock back.
    fn sweep_of(&self, request: Release) -> Sweeping {
        let now = self.now();
        let rules = &self.shared.rules;
        let longest = if rules.quarantine.is_zero() { LONGEST } else { rules.quarantine };
        let (traces, request, late, left): (PerServer<_>, Release, _, _) = match self.let_go(&request) {
            Some(mut held) => {
                self.settle(&mut held);
                // A server that votes later may have it for a whole lease from then.
                let left = held.ends.since(now) + held.hold.lease();
                (held.hold.release(), held.hold.giving(request), Some((held.hold, held.late)), left)
            }
            None => ((0..rules.servers()).map(|_| Some(None)).collect(), request, None, longest),
        };
        let sweep = Sweep::begin(rules, traces, now, now + ANSWER, lease::surely_over(now, left));
        Sweeping::new(self, vec![(sweep, request)], late, false)
    }

    /// Takes a name of what is held out of the books; the whole, when it is the last one.
    fn let_go(&self, request: &Release) -> Option<Held> {
        let id: RequestId = match request.scope {
            ReleaseScope::Hold(id) => id,
            ReleaseScope::One(_) | ReleaseScope::All => return None,
        };
        let mut state = self.state();
        let held = state.holds.get_mut(&id)?;
        // An older lease of the same owner is another one.
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

/// A release under way. Whoever waits for it may go; it goes on.
struct Releasing(Option<Sweeping>);

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(sweeping) = self.0.take() {
            let quorum = sweeping.quorum.clone();
            quorum.go_on(sweeping);
        }
    }
}
