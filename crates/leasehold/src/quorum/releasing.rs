//! Giving a lock back at every server.

use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::port::{Give, Release, Released, Reply};
use leasehold_core::quorum::{PerServer, Sweep};
use leasehold_core::{Error, Moment, RequestId, lease};

use super::alarm::Alarm;
use super::background;
use super::flights::{Flights, Landed};
use super::{Held, Quorum};
use crate::errand::Errand;

/// Whoever gives back is answered by then, though servers are silent.
const ANSWER: Duration = Duration::from_millis(1_500);
/// What nobody here knows of any more may last so long at most.
const LONGEST: Duration = Duration::from_secs(60);

/// Sweeps under way, with what is sent to each server.
pub(super) struct Sweeping {
    quorum: Quorum,
    sweeps: Vec<(Sweep, Release)>,
    quietly: bool,
    flights: Flights<Released>,
    alarm: Alarm,
    /// Until every server was heard of: a process that ends must not leave locks behind.
    errand: Option<Errand>,
}

impl Sweeping {
    pub(super) fn new(quorum: &Quorum, sweeps: Vec<(Sweep, Release)>, quietly: bool) -> Self {
        Self {
            quorum: quorum.clone(),
            sweeps,
            quietly,
            flights: Flights::new(),
            alarm: Alarm::new(),
            errand: Some(quorum.shared.errands.begin()),
        }
    }

    /// Goes on until all is done; `verdict` is called after every step.
    fn step(&mut self, task: &mut Context<'_>) -> bool {
        let now = leasehold_clock::now();
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
        while let Poll::Ready(Landed { server, round, reply, .. }) = self.flights.poll(&self.quorum, task) {
            let mut state = self.quorum.shared.state();
            self.sweeps[round as usize].0.answered(leasehold_clock::now(), server, reply, &mut state.rng);
            moved = true;
        }
        moved
    }

    fn wakes(&self) -> Moment {
        self.sweeps.iter().map(|(sweep, _)| sweep.wakes()).min().unwrap_or(Moment::NEVER)
    }

    fn is_done(&self) -> bool {
        self.sweeps.iter().all(|(sweep, _)| sweep.is_done())
    }

    /// Ready when nothing is left to be done.
    pub(super) fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        while self.step(task) {}
        if self.sweeps.iter().all(|(sweep, _)| sweep.is_heard()) {
            self.errand = None;
        }
        if self.is_done() {
            return Poll::Ready(());
        }
        self.alarm.set(self.wakes().max(leasehold_clock::now() + Duration::from_millis(1)), task.waker());
        Poll::Pending
    }

    fn poll_verdict(&mut self, task: &mut Context<'_>) -> Poll<Result<Released, Error>> {
        loop {
            let moved = self.step(task);
            if let Some(verdict) = self.sweeps[0].0.verdict(leasehold_clock::now()) {
                return Poll::Ready(verdict);
            }
            if !moved {
                self.alarm.set(self.wakes(), task.waker());
                return Poll::Pending;
            }
        }
    }
}

impl Quorum {
    /// Goes on in the background with what is left to be given back.
    pub(super) fn go_on(&self, mut sweeping: Sweeping) {
        if sweeping.is_done() || self.shared.is_forked() {
            return;
        }
        background::spawn(async move { std::future::poll_fn(|task| sweeping.poll(task)).await });
    }

    pub(super) async fn give(self, request: Release) -> Reply<Released> {
        let mut releasing = Releasing(Some(self.sweep_of(request)));
        let verdict = std::future::poll_fn(|task| match &mut releasing.0 {
            Some(sweeping) => sweeping.poll_verdict(task),
            None => Poll::Pending,
        })
        .await;
        drop(releasing);
        self.answer(verdict)
    }

    /// What is to be done to give a lock back.
    fn sweep_of(&self, request: Release) -> Sweeping {
        let now = leasehold_clock::now();
        let rules = &self.shared.rules;
        let longest = if rules.quarantine.is_zero() { LONGEST } else { rules.quarantine };
        let (traces, request, late, left): (PerServer<_>, Release, _, _) = match self.let_go(&request) {
            Some(mut held) => {
                self.settle(&mut held);
                // A server that votes later may have it for a whole lease from then.
                let left = held.ends.since(now) + held.hold.lease();
                (held.hold.release(), held.hold.giving(request), Some(held.late), left)
            }
            None => ((0..rules.servers()).map(|_| Some(None)).collect(), request, None, longest),
        };
        if let Some(late) = late {
            self.finish(late);
        }
        let sweep = Sweep::begin(rules, traces, now, now + ANSWER, lease::surely_over(now, left));
        Sweeping::new(self, vec![(sweep, request)], false)
    }

    /// Takes a name of what is held out of the books; the whole, when it is the last one.
    fn let_go(&self, request: &Release) -> Option<Held> {
        let id: RequestId = match request.give {
            Give::Hold(id) => id,
            Give::One(_) | Give::All => return None,
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
        Some(Held { hold, names: Vec::new(), ends, late: Flights::new() })
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
