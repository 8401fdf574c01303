//! Taking a lock: one attempt after the other, each to its verdict.

use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::port::{Acquire, Acquired, Answered, Release, ReleaseScope, Reply};
use leasehold_core::quorum::attempt::Send;
use leasehold_core::quorum::{Attempt, Clocks, Health, Hold, Sweep, Verdict, Vote};
use leasehold_core::{Error, Moment, Name, Outcome, RequestId, backoff, lease};

use crate::release::Sweeping;
use crate::server_calls::{Completed, InFlightCalls, Reading};
use crate::state::{Held, State};
use crate::store::Quorum;
use crate::timer_queue::Alarm;
use crate::wake_threshold::{WakeThreshold, unconstrained};

/// Where nobody has a majority because several asked at the same time, it is tried again so often before that is called busy.
const TRIES: u32 = 4;
/// Attempts are told apart by the upper bits of the number of a request.
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
        self.learn_clocks().await;
        let mut tries = 0;
        loop {
            tries += 1;
            let now = self.now();
            if now > not_after {
                return self.answer(Ok(Acquired::TooLate));
            }
            let mut voting = Voting::begin(&self, &request, now);
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
                    if !split || tries == TRIES {
                        return self.answer(Ok(Acquired::Busy(busy)));
                    }
                    self.pause(busy.free_in.unwrap_or_default()).await;
                }
                // Not one server was heard of: it may be this process that was not served.
                Verdict::Failed { silent: true, .. } if tries < TRIES => {
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

    /// The same request again, which was granted: the same answer, if a majority says that it still is. None where it is certain that
    /// it is not: then it is given back, and asked for afresh.
    async fn granted_before(
        &self,
        request: &Acquire,
        began: Moment,
        not_after: Moment,
    ) -> Option<Result<Acquired, Error>> {
        let names = self.state().holds.get(&request.request)?.names.clone();
        if names != request.names.as_slice() {
            // A part of it was given back: the rest is, too, and all is asked for anew.
            for name in names {
                let _ = self.clone().give(remains(request, name)).await;
            }
            return None;
        }
        let held = self.state().holds.remove(&request.request)?;
        let ends = held.ends;
        let mut voting = Voting::repeat(self, request.request, held, began, not_after);
        match unconstrained(|task| voting.poll(task)).await {
            Verdict::Granted(granted) => {
                voting.keep(request.request, began + granted.left);
                Some(Ok(Acquired::Granted(request.names.as_slice().iter().map(|_| granted).collect())))
            }
            // Its right was taken away, or it ended: what is left of it is still its own to give back.
            Verdict::Busy { busy, .. } => {
                voting.keep(request.request, ends);
                Some(Ok(Acquired::Busy(busy)))
            }
            // Nobody says that it is gone: it stays in the books, to be asked for again or given back.
            Verdict::Failed { error, .. } if error.outcome() == Outcome::Unknown => {
                voting.keep(request.request, ends);
                Some(Err(error))
            }
            // It is gone, and what is left of it must not stand in the way.
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

    /// An id for one attempt of a request, that no other has.
    fn attempt_of(&self, request: RequestId) -> RequestId {
        let mut state = self.state();
        state.attempts += 1;
        RequestId { number: request.number | (state.attempts << ATTEMPT_BITS), ..request }
    }
}

/// One attempt under way.
struct Voting {
    quorum: Quorum,
    attempt: Option<Attempt>,
    flights: InFlightCalls<Answered<Vote>>,
    quota: WakeThreshold,
    alarm: Alarm,
    /// What it repeats was granted to this request, and lasts until then: it is no less granted when nobody waits for the repeat.
    granted: Option<(RequestId, Moment)>,
}

impl Voting {
    fn begin(quorum: &Quorum, request: &Acquire, now: Moment) -> Self {
        let request = Acquire { request: quorum.attempt_of(request.request), ..request.clone() };
        let begun = {
            let state = quorum.state();
            Attempt::begin(&quorum.shared.rules, request, now, &state.clocks, state.left_out(now))
        };
        Self::of(quorum, begun, now)
    }

    /// Asks once more for what was granted to a request, and waits until then for servers to say that they have it.
    fn repeat(quorum: &Quorum, request: RequestId, held: Held, now: Moment, until: Moment) -> Self {
        let (mut attempt, sends) = held.hold.repeat(now, &quorum.state().clocks);
        attempt.wait_until(until);
        let mut voting = Self::of(quorum, (attempt, sends), now);
        // Votes that are still under way tell as much as those that are sent now.
        voting.flights.join(held.late);
        voting.granted = Some((request, held.ends));
        voting
    }

    fn of(quorum: &Quorum, (attempt, sends): (Attempt, Vec<Send>), now: Moment) -> Self {
        let quorum = quorum.clone();
        let (flights, quota, alarm) = (InFlightCalls::new(), WakeThreshold::default(), Alarm::new(quorum.host()));
        let mut voting = Self { quorum, attempt: Some(attempt), flights, quota, alarm, granted: None };
        voting.send(now, sends);
        voting
    }

    fn send(&mut self, now: Moment, sends: Vec<Send>) {
        for Send { server, round, ballot } in sends {
            let call = self.quorum.members[server].vote(ballot);
            self.flights.send(server, round, now, call);
        }
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Verdict> {
        loop {
            let Some(attempt) = &mut self.attempt else { return Poll::Pending };
            let waker = self.quota.of(attempt.awaits(), task.waker());
            let landed = self.flights.poll(&self.quorum, &mut Context::from_waker(&waker));
            let (now, mut guard) = (self.quorum.now(), self.quorum.shared.state());
            let state = &mut *guard;
            let sends = match landed {
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

    /// It was granted: whatever is still under way is looked at later, and wakes nobody.
    fn keep(mut self, request: RequestId, ends: Moment) {
        self.put_away(request, ends);
    }

    /// Into the books.
    fn put_away(&mut self, request: RequestId, ends: Moment) {
        let Some(attempt) = self.attempt.take() else { return };
        let names = attempt.request().names.as_slice().to_vec();
        let mut held = Held { hold: Hold::of(attempt), names, ends, late: std::mem::take(&mut self.flights) };
        self.quorum.settle(&mut held);
        let joined_from = held.hold.vacant().next().map(|_| held.hold.joined_from());
        let mut state = self.quorum.state();
        state.keep(self.quorum.now(), request, held);
        if let Some(from) = joined_from {
            self.quorum.join_behind(&mut state, from, request);
        }
    }

    /// It was not granted: gives everything back, and waits no longer than it takes to send that.
    async fn give_back(mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let late = std::mem::take(&mut self.flights);
        let mut sweeping = sweeping(&self.quorum, attempt, late);
        std::future::poll_fn(|task| {
            // Sent before anything else of ours, so that it does not stand in our own way.
            let _ = sweeping.poll(task);
            Poll::Ready(())
        })
        .await;
        self.quorum.release_behind(sweeping);
    }
}

/// How what is left of a request is given back.
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

/// Gives back what an attempt may have taken, name by name.
fn sweeping(quorum: &Quorum, attempt: Attempt, late: InFlightCalls<Answered<Vote>>) -> Sweeping {
    let (now, rules) = (quorum.now(), &quorum.shared.rules);
    let lease = attempt.request().lease;
    let give_up = lease::surely_over(now + rules.limit(lease) * 4, lease);
    let names = attempt.request().names.as_slice();
    let sweeps = names.iter().map(|name| {
        let sweep = Sweep::begin(rules, attempt.traces(), now, Moment::NEVER, give_up);
        (sweep, attempt.giving_back(name))
    });
    let sweeps = sweeps.collect();
    Sweeping::new(quorum, sweeps, Some((Hold::of(attempt), late)), true)
}

impl Drop for Voting {
    fn drop(&mut self) {
        if self.quorum.shared.is_forked() {
            return;
        }
        // Nobody waits for the verdict any more.
        if let Some((request, ends)) = self.granted {
            self.put_away(request, ends);
        } else if let Some(attempt) = self.attempt.take() {
            let late = std::mem::take(&mut self.flights);
            self.quorum.go_on(sweeping(&self.quorum, attempt, late));
        }
    }
}

impl Quorum {
    /// Waits in the background for calls that nobody waits for.
    pub(crate) fn finish<T: Reading + Unpin + std::marker::Send + 'static>(&self, mut flights: InFlightCalls<T>) {
        while flights.ended(self).is_some() {}
        if flights.is_empty() || self.shared.is_forked() {
            return;
        }
        self.not_waited_for(&flights);
        let quorum = self.clone();
        self.spawn(async move {
            while let Some(Completed { server, reply, .. }) = flights.next(&quorum).await {
                if let Err(error) = reply {
                    quorum.state().health.failed(server, quorum.now(), Some(error));
                }
            }
        });
    }

    /// Servers whose calls nobody waits for are left out for a while, when there are many.
    pub(crate) fn not_waited_for<T: Reading + Unpin>(&self, flights: &InFlightCalls<T>) {
        let mut state = self.state();
        flights.servers().for_each(|server| state.stragglers[server] += 1);
    }

    /// Votes that came after the verdict.
    pub(crate) fn settle(&self, held: &mut Held) {
        while let Some(landed) = held.late.ended(self) {
            let mut state = self.state();
            let State { clocks, health, .. } = &mut *state;
            voted_late(&mut held.hold, self.now(), clocks, health, landed);
        }
    }
}

/// A vote that came after the verdict.
pub(crate) fn voted_late(
    hold: &mut Hold,
    now: Moment,
    clocks: &Clocks,
    health: &mut Health,
    landed: Completed<Answered<Vote>>,
) {
    let Completed { server, round, sent, reply } = landed;
    let failed = reply.as_ref().err().cloned();
    hold.voted(now, clocks, server, round, sent, reply);
    if let Some(error) = failed.filter(|error| error.outcome() != Outcome::Applied) {
        health.failed(server, now, Some(error));
    }
}
