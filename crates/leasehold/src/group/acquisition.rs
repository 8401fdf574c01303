//! Taking parts one after another: trying, giving back, waiting for one alone. Dropped at any moment, it leaks nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backoff::{self, Rng};
use leasehold_core::multi::{GroupAcquire, Step};
use leasehold_core::{Error, Moment};

use super::group_guard::GroupGuard;
use super::group_queue::GroupWaiter;
use super::parts::{self, Part};
use crate::client::status::Holder;
use crate::lock::{Attempt, Patience};
use crate::runtime::acquire_call::Alarm;
use crate::runtime::handle::Handle;

/// How long stores are asked again who do not answer, before anything is taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes all, or none.
pub(super) async fn take(mut parts: Vec<Part>, patience: Patience) -> Result<Attempt<GroupGuard>, Error> {
    let limit = match patience {
        Patience::Until(limit) | Patience::OnceUntil(limit) => Some(limit),
        Patience::Once | Patience::Forever => None,
    };
    let once = matches!(patience, Patience::Once | Patience::OnceUntil(_));
    let mut rng = Rng::new(leasehold_clock::seed()?);
    if !prepared(&mut parts, once, limit, &mut rng).await? {
        return Ok(Attempt::Busy(Holder::unknown(parts[0].names()[0].clone())));
    }
    let pursuit = GroupAcquire::new(parts.len(), rng.draw());
    let guards = parts.iter().map(|_| None).collect();
    let guest = GroupWaiter::enter(&parts);
    let last = Last::Nothing;
    Taking { parts, pursuit, guards, guest, since: Moment::default(), last, once, limit }.run().await
}

/// Whether the stores were asked in time.
async fn prepared(parts: &mut [Part], once: bool, limit: Option<Moment>, rng: &mut Rng) -> Result<bool, Error> {
    let timer = parts[0].client().clone();
    let patient = leasehold_clock::now() + PATIENCE;
    for attempt in 0.. {
        let error = match until(&timer, limit, pin!(parts::prepare(parts))).await {
            None => return Ok(false),
            Some(Ok(())) => break,
            Some(Err(error)) => error,
        };
        let again = leasehold_clock::now() + backoff::retry_pause(rng, attempt);
        if once || !error.is_retryable() || again > limit.unwrap_or(patient) {
            return Err(error);
        }
        sleep(&timer, again).await;
    }
    Ok(true)
}

struct Taking {
    parts: Vec<Part>,
    pursuit: GroupAcquire,
    guards: Vec<Option<GroupGuard>>,
    guest: GroupWaiter,
    /// Since when something is held.
    since: Moment,
    last: Last,
    once: bool,
    limit: Option<Moment>,
}

/// What was said last: for one whose time runs out.
enum Last {
    Nothing,
    Busy(Holder),
    Failed(Error),
}

impl Taking {
    async fn run(mut self) -> Result<Attempt<GroupGuard>, Error> {
        let timer = self.parts[0].client().clone();
        loop {
            let step = self.pursuit.step();
            if matches!(step, Step::Try(_) | Step::Wait(_)) && !self.once && !self.holds() {
                self.guest.stand_aside(&timer, self.limit).await;
            }
            match step {
                Step::Try(part) => {
                    let patience = self.limit.map_or(Patience::Once, Patience::OnceUntil);
                    if let Some(ended) = self.ask(part, patience).await? {
                        return Ok(ended);
                    }
                }
                Step::Wait(part) => {
                    let patience = match (self.once, self.limit) {
                        (true, _) => Patience::Once,
                        (_, Some(limit)) => Patience::Until(limit),
                        (_, None) => Patience::Forever,
                    };
                    if let Some(ended) = self.ask(part, patience).await? {
                        return Ok(ended);
                    }
                }
                Step::GiveBack => self.give_back().await,
                Step::Pause(pause) => {
                    let end = leasehold_clock::now() + pause;
                    sleep(&timer, end.min(self.limit.unwrap_or(end))).await;
                    self.pursuit.paused();
                }
                Step::Look => {
                    if let Some(guard) = self.look().await? {
                        return Ok(Attempt::Granted(guard));
                    }
                }
            }
        }
    }

    fn holds(&self) -> bool {
        self.guards.iter().any(Option::is_some)
    }

    fn has_failed(&self) -> bool {
        matches!(self.last, Last::Failed(_))
    }

    /// Asks for one part. What it answers ends the attempt; or it fails, and nothing is held then.
    async fn ask(&mut self, at: usize, patience: Patience) -> Result<Option<Attempt<GroupGuard>>, Error> {
        let waits = matches!(patience, Patience::Until(_) | Patience::Forever);
        let part = &self.parts[at];
        match part.lock.attempt_for(part.owner.clone(), patience, GroupGuard::of_one_step).await {
            Ok(Attempt::Granted(guard)) if guard.has_entered() => {
                // It came to hold it after it was looked whether it does. What was entered is left again.
                let error = parts::already_held(part.client(), guard.guards()[0].name());
                self.guards[at] = Some(guard);
                return Err(self.fails(error).await);
            }
            Ok(Attempt::Granted(guard)) => {
                if !self.holds() {
                    self.since = leasehold_clock::now();
                }
                self.guards[at] = Some(guard);
                self.pursuit.granted(at);
                self.last = Last::Nothing;
                return Ok(None);
            }
            // One that is still being withdrawn, after an error, is not asked for.
            Ok(Attempt::Busy(holder)) if self.has_failed() && holder == Holder::unknown(holder.name.clone()) => {}
            Ok(Attempt::Busy(holder)) => self.last = Last::Busy(holder),
            Err(error) if error.is_retryable() && !waits && !self.once => self.last = Last::Failed(error),
            Err(error) => return Err(self.fails(error).await),
        }
        self.guest.refused();
        self.pursuit.refused(at);
        let is_over = self.limit.is_some_and(|limit| limit <= leasehold_clock::now());
        if !(self.once || waits || is_over) {
            return Ok(None);
        }
        self.give_back().await;
        match std::mem::replace(&mut self.last, Last::Nothing) {
            Last::Failed(error) => Err(error),
            Last::Busy(holder) => Ok(Some(Attempt::Busy(holder))),
            Last::Nothing => Ok(Some(Attempt::Busy(Holder::unknown(self.parts[at].names()[0].clone())))),
        }
    }

    async fn fails(&mut self, error: Error) -> Error {
        self.give_back().await;
        error
    }

    /// Gives back all that is held, and waits for it: but no longer than there is time. What is left goes on in the background.
    async fn give_back(&mut self) {
        let timer = self.parts[0].client().clone();
        let guard = GroupGuard::join(self.guards.iter_mut().filter_map(Option::take));
        let held_for = leasehold_clock::now().since(self.since);
        // That it did not go well, or was lost meanwhile, concerns nobody: it was not handed out.
        let _ = until(&timer, self.limit, pin!(guard.release())).await;
        self.pursuit.gave_back(held_for);
    }

    /// All are held: whether they still are, for long enough.
    async fn look(&mut self) -> Result<Option<GroupGuard>, Error> {
        let parts = self.parts.iter().zip(&self.guards);
        let left = parts.map(|(part, guard)| (guard.as_ref().and_then(GroupGuard::time_left), part.lock.options.term));
        match self.pursuit.looked(left) {
            Ok(true) => {
                let guards = self.parts.iter().zip(self.guards.iter_mut().filter_map(Option::take));
                let mut guards: Vec<(usize, GroupGuard)> = guards.map(|(part, guard)| (part.given_at, guard)).collect();
                guards.sort_by_key(|(given_at, _)| *given_at);
                let guard = GroupGuard::join(guards.into_iter().map(|(_, guard)| guard));
                Ok(Some(guard.of_several_steps(self.since)))
            }
            Ok(false) => Ok(None),
            Err(error) => Err(self.fails(error).await),
        }
    }
}

async fn sleep(timer: &Handle, end: Moment) {
    until(timer, Some(end), std::future::pending::<()>()).await;
}

/// What a future comes to, unless the time is over before that.
pub(super) async fn until<F: Future>(timer: &Handle, limit: Option<Moment>, future: F) -> Option<F::Output> {
    let mut alarm = limit.map(|limit| Alarm::new(timer, limit));
    let mut future = pin!(future);
    poll_fn(|task| match future.as_mut().poll(task) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => match &mut alarm {
            Some(alarm) => alarm.poll(task).map(|()| None),
            None => Poll::Pending,
        },
    })
    .await
}
