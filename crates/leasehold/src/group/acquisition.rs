//! Acquires the parts of a group one after another: tries, gives back, waits for one alone. Dropping it at any moment leaks nothing.

use std::time::Duration;

use leasehold_core::backoff::{self, Rng};
use leasehold_core::multi::{GroupAcquire, Step};
use leasehold_core::{Error, Moment};

use super::group_guard::GroupGuard;
use super::group_queue::GroupPlace;
use super::parts::{self, Part};
use crate::client::status::Holder;
use crate::lock::{Attempt, Patience};
use crate::runtime::timer::{sleep_until, timeout_at};

/// How long a store that does not answer is asked again, before anything is acquired.
const PATIENCE: Duration = Duration::from_secs(10);

/// Acquires all parts, or none.
pub(super) async fn acquire(mut parts: Vec<Part>, patience: Patience) -> Result<Attempt<GroupGuard>, Error> {
    let mut rng = Rng::new(leasehold_clock::seed()?);
    if !prepare(&mut parts, patience, &mut rng).await? {
        return Ok(Attempt::Busy(Holder::unknown(parts[0].names()[0].clone())));
    }
    let acquisition = Acquisition {
        plan: GroupAcquire::new(parts.len(), rng.draw()),
        guards: parts.iter().map(|_| None).collect(),
        place: GroupPlace::enter(&parts),
        parts,
        since: Moment::default(),
        refusal: None,
        patience,
    };
    acquisition.run().await
}

/// Whether the stores were asked in time.
async fn prepare(parts: &mut [Part], patience: Patience, rng: &mut Rng) -> Result<bool, Error> {
    let shell = parts[0].shell().clone();
    let patient = leasehold_clock::now() + PATIENCE;
    for attempt in 0.. {
        let error = match timeout_at(&shell, patience.limit, parts::prepare(parts)).await {
            None => return Ok(false),
            Some(Ok(())) => break,
            Some(Err(error)) => error,
        };
        let again = leasehold_clock::now() + backoff::retry_pause(rng, attempt);
        if patience.once || !error.is_retryable() || again > patience.limit.unwrap_or(patient) {
            return Err(error);
        }
        sleep_until(&shell, again).await;
    }
    Ok(true)
}

struct Acquisition {
    parts: Vec<Part>,
    /// Decides what comes next.
    plan: GroupAcquire,
    guards: Vec<Option<GroupGuard>>,
    place: GroupPlace,
    /// Since when something is held.
    since: Moment,
    /// Why the last part that was asked for was not granted: who holds it, or why its store did not answer.
    refusal: Option<Result<Holder, Error>>,
    patience: Patience,
}

impl Acquisition {
    async fn run(mut self) -> Result<Attempt<GroupGuard>, Error> {
        let shell = self.parts[0].shell().clone();
        loop {
            let step = self.plan.step();
            if matches!(step, Step::Try(_) | Step::Wait(_)) && !self.patience.once && !self.holds() {
                self.place.stand_aside(&shell, self.patience.limit).await;
            }
            match step {
                Step::Try(part) => {
                    let once = Patience { once: true, ..self.patience };
                    if let Some(ended) = self.ask(part, once).await? {
                        return Ok(ended);
                    }
                }
                Step::Wait(part) => {
                    if let Some(ended) = self.ask(part, self.patience).await? {
                        return Ok(ended);
                    }
                }
                Step::GiveBack => self.give_back().await,
                Step::Pause(pause) => {
                    let end = leasehold_clock::now() + pause;
                    sleep_until(&shell, end.min(self.patience.limit.unwrap_or(end))).await;
                    self.plan.paused();
                }
                Step::Look => {
                    if let Some(guard) = self.check().await? {
                        return Ok(Attempt::Granted(guard));
                    }
                }
            }
        }
    }

    fn holds(&self) -> bool {
        self.guards.iter().any(Option::is_some)
    }

    /// Asks for one part. Returns the result that ends the acquisition, if any; on an error nothing is held.
    async fn ask(&mut self, at: usize, patience: Patience) -> Result<Option<Attempt<GroupGuard>>, Error> {
        let waits = !patience.once;
        let part = &self.parts[at];
        match part.lock.attempt(patience, GroupGuard::of_one_step).await {
            Ok(Attempt::Granted(guard)) if guard.has_entered() => {
                // The owner came to hold it after that was checked. What was entered is left again.
                let error = parts::already_held(part.shell(), guard.guards()[0].name());
                self.guards[at] = Some(guard);
                return Err(self.fails(error).await);
            }
            Ok(Attempt::Granted(guard)) => {
                if !self.holds() {
                    self.since = leasehold_clock::now();
                }
                self.guards[at] = Some(guard);
                self.plan.granted(at);
                self.refusal = None;
                return Ok(None);
            }
            // A request that is still being withdrawn, after an error, does not reach the store.
            Ok(Attempt::Busy(holder))
                if matches!(self.refusal, Some(Err(_))) && holder == Holder::unknown(holder.name.clone()) => {}
            Ok(Attempt::Busy(holder)) => self.refusal = Some(Ok(holder)),
            Err(error) if error.is_retryable() && !waits && !self.patience.once => self.refusal = Some(Err(error)),
            Err(error) => return Err(self.fails(error).await),
        }
        self.place.refused();
        self.plan.refused(at);
        let is_over = self.patience.limit.is_some_and(|limit| limit <= leasehold_clock::now());
        if !(self.patience.once || waits || is_over) {
            return Ok(None);
        }
        self.give_back().await;
        let holder = self.refusal.take().transpose()?;
        let holder = holder.unwrap_or_else(|| Holder::unknown(self.parts[at].names()[0].clone()));
        Ok(Some(Attempt::Busy(holder)))
    }

    async fn fails(&mut self, error: Error) -> Error {
        self.give_back().await;
        error
    }

    /// Gives back everything that is held, and waits for that until the limit. What is left goes on in the background.
    async fn give_back(&mut self) {
        let shell = self.parts[0].shell().clone();
        let guard = GroupGuard::join(self.guards.iter_mut().filter_map(Option::take));
        let held_for = leasehold_clock::now().since(self.since);
        // An error or a loss does not matter: the guard was not handed out.
        let _ = timeout_at(&shell, self.patience.limit, guard.release()).await;
        self.plan.gave_back(held_for);
    }

    /// All are held: checks whether they still are, for long enough.
    async fn check(&mut self) -> Result<Option<GroupGuard>, Error> {
        let parts = self.parts.iter().zip(&self.guards);
        let left = parts.map(|(part, guard)| (guard.as_ref().and_then(GroupGuard::time_left), part.lock.options.term));
        match self.plan.looked(left) {
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
