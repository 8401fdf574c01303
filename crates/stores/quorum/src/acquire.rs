//! Taking a lock: one voting round after the other, until one has a verdict.

use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::port::{Acquire, Acquired, Answered, Release, ReleaseScope, Reply};
use leasehold_core::quorum::attempt::Send;
use leasehold_core::quorum::{Attempt, Clocks, Health, Hold, Sweep, Verdict, Vote};
use leasehold_core::{Error, Moment, Name, Outcome, RequestId, backoff, lease};

use crate::release::ReleaseSweep;
use crate::server_calls::{Completed, InFlightCalls, Reading};
use crate::state::{Held, State};
use crate::store::Quorum;
use crate::timer_queue::Alarm;
use crate::wake_threshold::{WakeThreshold, unconstrained};

/// Number of rounds without a majority, because several clients asked at the same time, after which the lock counts as
/// busy.
const ROUNDS_MAX: u32 = 4;
/// The upper bits of a request's number tell its attempts apart.
const ATTEMPT_BITS: u32 = 40;

impl Quorum {
    pub(crate) async fn take(self, request: Acquire) -> Reply<Acquired> {
        let began = self.now();
        let not_after = {
            let mut state = self.state();
            let at = state.at(began);
            began + request.not_after.since(at)
        };
        if let Some(granted) = self.granted_before(&request, began, not_after).await {
            return self.answer(granted);
        }
        self.read_clocks().await;
        let mut tries = 0;
        loop {
            tries += 1;
            let now = self.now();
            if now > not_after {
                return self.answer(Ok(Acquired::TooLate));
            }
            let mut voting = VotingRound::begin(&self, &request, now);
            let verdict = unconstrained(|task| voting.poll(task)).await;
            match verdict {
                Verdict::Granted(mut granted) => {
                    voting.keep(request.request, now + granted.left);
                    // Counted from this attempt; the client counts from the first.
                    granted.left += now.since(began);
                    let grants = request.names.as_slice().iter().map(|_| granted).collect();
                    return self.answer(Ok(Acquired::Granted(grants)));
                }
                Verdict::Busy { busy, split } => {
                    voting.give_back().await;
                    if !split || tries == ROUNDS_MAX {
                        return self.answer(Ok(Acquired::Busy(busy)));
                    }
                    self.pause(busy.free_in.unwrap_or_default()).await;
                }
                // Not one server answered: it may be this process that was not scheduled.
                Verdict::Failed { silent: true, .. } if tries < ROUNDS_MAX => {
                    voting.give_back().await;
                    let pause = backoff::retry_pause(&mut self.state().rng, tries);
                    self.pause(pause).await;
                }
                Verdict::Failed { error, .. } => {
                    voting.give_back().await;
                    return self.answer(Err(error));
                }
            }
        }
    }

    /// The request was granted before and is sent again: the same answer, if a majority confirms the grant. `None` if
    /// it is certainly gone: then it is released and requested again.
    async fn granted_before(
        &self,
        request: &Acquire,
        began: Moment,
        not_after: Moment,
    ) -> Option<Result<Acquired, Error>> {
        let names = self.state().holds.get(&request.request)?.names.clone();
        if names != request.names.as_slice() {
            // A part of it was released: the rest is released too, and everything is requested again.
            for name in names {
                let _ = self.clone().give(remains(request, name)).await;
            }
            return None;
        }
        let held = self.state().holds.remove(&request.request)?;
        let ends = held.ends;
        let mut voting = VotingRound::repeat(self, request.request, held, began, not_after);
        match unconstrained(|task| voting.poll(task)).await {
            Verdict::Granted(granted) => {
                voting.keep(request.request, began + granted.left);
                Some(Ok(Acquired::Granted(request.names.as_slice().iter().map(|_| granted).collect())))
            }
            // Its lease was broken or has ended; what is left of it is still its own to release.
            Verdict::Busy { busy, .. } => {
                voting.keep(request.request, ends);
                Some(Ok(Acquired::Busy(busy)))
            }
            // No server says that it is gone: it stays on record, to be requested again or released.
            Verdict::Failed { error, .. } if error.outcome() == Outcome::Unknown => {
                voting.keep(request.request, ends);
                Some(Err(error))
            }
            // It is gone, and what is left of it must not block the name.
            Verdict::Failed { .. } => {
                voting.give_back().await;
                None
            }
        }
    }

    pub(crate) async fn pause(&self, span: Duration) {
        let until = self.now() + span;
        let mut alarm = Alarm::new(self.host());
        std::future::poll_fn(|task| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            alarm.set(until, task.waker());
            Poll::Pending
        })
        .await;
    }

    /// A unique request id for one attempt.
    fn attempt_of(&self, request: RequestId) -> RequestId {
        let mut state = self.state();
        state.attempts += 1;
        RequestId { number: request.number | (state.attempts << ATTEMPT_BITS), ..request }
    }
}

/// One voting round in progress.
struct VotingRound {
    quorum: Quorum,
    attempt: Option<Attempt>,
    calls: InFlightCalls<Answered<Vote>>,
    wake_threshold: WakeThreshold,
    alarm: Alarm,
    /// If this repeats a grant: the request it was granted to, and its end. The grant stays valid even if the repeat is
    /// dropped.
    granted: Option<(RequestId, Moment)>,
}

impl VotingRound {
    fn begin(quorum: &Quorum, request: &Acquire, now: Moment) -> Self {
        let request = Acquire { request: quorum.attempt_of(request.request), ..request.clone() };
        let begun = {
            let state = quorum.state();
            Attempt::begin(&quorum.shared.rules, request, now, &state.clocks, state.left_out(now))
        };
        Self::of(quorum, begun, now)
    }

    /// Repeats a granted request, and waits until `until` for servers to confirm that they have it.
    fn repeat(quorum: &Quorum, request: RequestId, held: Held, now: Moment, until: Moment) -> Self {
        let (mut attempt, sends) = held.hold.repeat(now, &quorum.state().clocks);
        attempt.wait_until(until);
        let mut voting = Self::of(quorum, (attempt, sends), now);
        // Votes that are still in flight count as much as those that are sent now.
        voting.calls.join(held.late);
        voting.granted = Some((request, held.ends));
        voting
    }

    fn of(quorum: &Quorum, (attempt, sends): (Attempt, Vec<Send>), now: Moment) -> Self {
        let quorum = quorum.clone();
        let (calls, wake_threshold, alarm) =
            (InFlightCalls::new(), WakeThreshold::default(), Alarm::new(quorum.host()));
        let mut voting = Self { quorum, attempt: Some(attempt), calls, wake_threshold, alarm, granted: None };
        voting.send(now, sends);
        voting
    }

    fn send(&mut self, now: Moment, sends: Vec<Send>) {
        for Send { server, round, ballot } in sends {
            let call = self.quorum.members[server].vote(ballot);
            self.calls.send(server, round, now, call);
        }
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Verdict> {
        loop {
            let Some(attempt) = &mut self.attempt else { return Poll::Pending };
            let waker = self.wake_threshold.of(attempt.awaits(), task.waker());
            let completed = self.calls.poll(&self.quorum, &mut Context::from_waker(&waker));
            let (now, mut guard) = (self.quorum.now(), self.quorum.shared.state());
            let state = &mut *guard;
            let sends = match completed {
                Poll::Ready(Completed { server, round, sent, reply }) => {
                    attempt.voted(now, &state.clocks, server, round, sent, reply)
                }
                Poll::Pending if now >= attempt.wakes() => attempt.tick(now, &state.clocks),
                Poll::Pending => {
                    self.alarm.set(attempt.wakes(), task.waker());
                    return Poll::Pending;
                }
            };
            if let Some(verdict) = attempt.verdict(now, &mut state.rng) {
                for (server, error) in attempt.silent() {
                    state.health.failed(server, now, error.cloned());
                }
                return Poll::Ready(verdict);
            }
            drop(guard);
            self.send(now, sends);
        }
    }

    /// The lock was granted: the calls still in flight are checked later, and wake no task.
    fn keep(mut self, request: RequestId, ends: Moment) {
        self.record(request, ends);
    }

    /// Records the grant.
    fn record(&mut self, request: RequestId, ends: Moment) {
        let Some(attempt) = self.attempt.take() else { return };
        let names = attempt.request().names.as_slice().to_vec();
        let mut held = Held { hold: Hold::of(attempt), names, ends, late: std::mem::take(&mut self.calls) };
        self.quorum.settle(&mut held);
        let joined_from = held.hold.vacant().next().map(|_| held.hold.joined_from());
        let mut state = self.quorum.state();
        state.keep(self.quorum.now(), request, held);
        if let Some(from) = joined_from {
            self.quorum.defer_rejoin(&mut state, from, request);
        }
    }

    /// The lock was not granted: releases everything, and waits only until that is sent.
    async fn give_back(mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let late = std::mem::take(&mut self.calls);
        let mut sweep = sweep_of_attempt(&self.quorum, attempt, late);
        std::future::poll_fn(|task| {
            // Sent before any later request of ours, so that it does not block one.
            let _ = sweep.poll(task);
            Poll::Ready(())
        })
        .await;
        self.quorum.defer_release(sweep);
    }
}

/// The release of what is left of a request.
fn remains(request: &Acquire, name: Name) -> Release {
    Release {
        client: request.request.client,
        name,
        owner: request.owner.clone(),
        fence: None,
        scope: ReleaseScope::Hold(request.request),
        last_used: None,
        cooldown: Duration::ZERO,
        rejoin: false,
    }
}

/// Releases what an attempt may have taken, name by name.
fn sweep_of_attempt(quorum: &Quorum, attempt: Attempt, late: InFlightCalls<Answered<Vote>>) -> ReleaseSweep {
    let (now, rules) = (quorum.now(), &quorum.shared.rules);
    let lease = attempt.request().lease;
    let give_up = lease::surely_over(now + rules.limit(lease) * 4, lease);
    let names = attempt.request().names.as_slice();
    let sweeps = names.iter().map(|name| {
        let sweep = Sweep::begin(rules, attempt.traces(), now, Moment::NEVER, give_up);
        (sweep, attempt.giving_back(name))
    });
    let sweeps = sweeps.collect();
    ReleaseSweep::new(quorum, sweeps, Some((Hold::of(attempt), late)), true)
}

impl Drop for VotingRound {
    fn drop(&mut self) {
        if self.quorum.shared.is_forked() {
            return;
        }
        // The caller dropped the future.
        if let Some((request, ends)) = self.granted {
            self.record(request, ends);
        } else if let Some(attempt) = self.attempt.take() {
            let late = std::mem::take(&mut self.calls);
            self.quorum.continue_in_background(sweep_of_attempt(&self.quorum, attempt, late));
        }
    }
}

impl Quorum {
    /// Waits in the background for calls without a waiting caller.
    pub(crate) fn finish<T: Reading + Unpin + std::marker::Send + 'static>(&self, mut calls: InFlightCalls<T>) {
        while calls.ended(self).is_some() {}
        if calls.is_empty() || self.shared.is_forked() {
            return;
        }
        self.count_stragglers(&calls);
        let quorum = self.clone();
        self.spawn(async move {
            while let Some(Completed { server, reply, .. }) = calls.next(&quorum).await {
                if let Err(error) = reply {
                    quorum.state().health.failed(server, quorum.now(), Some(error));
                }
            }
        });
    }

    /// A server with many calls that no caller waits for is left out for a while.
    pub(crate) fn count_stragglers<T: Reading + Unpin>(&self, calls: &InFlightCalls<T>) {
        let mut state = self.state();
        calls.servers().for_each(|server| state.stragglers[server] += 1);
    }

    /// Processes votes that came after the verdict.
    pub(crate) fn settle(&self, held: &mut Held) {
        while let Some(completed) = held.late.ended(self) {
            let mut state = self.state();
            let State { clocks, health, .. } = &mut *state;
            voted_late(&mut held.hold, self.now(), clocks, health, completed);
        }
    }
}

/// Processes a vote that came after the verdict.
pub(crate) fn voted_late(
    hold: &mut Hold,
    now: Moment,
    clocks: &Clocks,
    health: &mut Health,
    completed: Completed<Answered<Vote>>,
) {
    let Completed { server, round, sent, reply } = completed;
    let failed = reply.as_ref().err().cloned();
    hold.voted(now, clocks, server, round, sent, reply);
    if let Some(error) = failed.filter(|error| error.outcome() != Outcome::Applied) {
        health.failed(server, now, Some(error));
    }
}
