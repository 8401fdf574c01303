//! Many requests at once over one connection: for every name, their answers are those of the reference to one request after the other.
//!
//! The store says when it executed each. For equal times, some order must fit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use leasehold::port::{Acquire, Acquired, Lease, Names, Release, Released, Renew, Renewed, StoreTime};
use leasehold::{Error, Fence, Name};
use leasehold_core::backoff::Rng;
use leasehold_core::reference::{Hints, Reference};
use tokio::task::JoinSet;

use super::comparison::{differ, same};
use super::listeners::Listeners;
use super::requests::one_in;
use super::{Manner, patient_hand};
use crate::case::{Checked, Failure};
use crate::hand::{Hand, LONG, named};
use crate::world::World;

const ROUNDS: u64 = 10;
const NAMES: u64 = 32;
/// Maximum number of requests for the same name.
const RIVALS: u64 = 3;

pub(super) async fn many_at_once(world: &World) -> Checked {
    let mut rng = world.rng();
    let (mut hand, mut waiter) = (patient_hand(world).await?, patient_hand(world).await?);
    for round in 0..ROUNDS {
        let names = (0..NAMES).map(|at| named(&format!("{round}-{at}"))).collect();
        let mut crowd = Crowd {
            manner: Manner::of(world),
            names,
            references: HashMap::new(),
            listeners: Listeners::default(),
            lease: LONG + Duration::from_secs(rng.below(2)),
            is_odd: one_in(&mut rng, 3),
        };
        crowd.run(&mut hand, &mut waiter, &mut rng).await.map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(())
}

struct Crowd {
    manner: Manner,
    names: Vec<Name>,
    /// One a name: nothing that is done to one is seen at another.
    references: HashMap<Name, Reference>,
    listeners: Listeners,
    lease: Duration,
    /// Some requests are not like the others.
    is_odd: bool,
}

/// One request.
#[derive(Clone, Debug)]
enum Ask {
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
}

/// Its answer.
#[derive(Clone, Debug)]
enum Answer {
    Acquired(Acquired),
    Renewed(Renewed),
    Released(Released),
}

/// A request that was answered.
#[derive(Clone, Debug)]
struct Asked {
    ask: Ask,
    at: StoreTime,
    answer: Answer,
}

impl Crowd {
    async fn run(&mut self, hand: &mut Hand, waiter: &mut Hand, rng: &mut Rng) -> Checked {
        let asks = self.acquires(hand, rng).await?;
        let first = self.all_at_once(hand, asks).await?;
        self.compare(&first).await?;
        self.wait(waiter, rng).await?;
        let asks = self.releases(hand, &first, rng);
        let second = self.all_at_once(hand, asks).await?;
        self.compare(&second).await?;
        let asks = self.acquires(waiter, rng).await?;
        let third = self.all_at_once(waiter, asks).await?;
        self.compare(&third).await?;
        for name in &self.names {
            waiter.store.unwatch(waiter.client, name.clone()).await;
        }
        Ok(())
    }

    async fn acquires(&self, hand: &mut Hand, rng: &mut Rng) -> Result<Vec<Ask>, Failure> {
        let now = hand.now().await?;
        let mut asks = Vec::new();
        for name in &self.names {
            for _ in 0..1 + rng.below(RIVALS) {
                let mut acquire = Acquire { lease: self.lease, ..hand.asking(name.as_str()) };
                match rng.below(10) {
                    0 if self.is_odd => acquire.not_after = now - Duration::from_millis(1),
                    1 if self.is_odd => acquire.seen = Fence::at(now).plus(rng.below(8_000_000)),
                    2 if self.is_odd => acquire.block = 3,
                    _ => {}
                }
                asks.push(Ask::Acquire(acquire));
            }
        }
        Ok(asks)
    }

    /// Half of the names are waited for.
    async fn wait(&mut self, waiter: &mut Hand, rng: &mut Rng) -> Checked {
        if !self.manner.waiters {
            return Ok(());
        }
        let mut asks = Vec::new();
        for name in self.names.clone() {
            if one_in(rng, 2) {
                waiter.store.watch(waiter.client, name.clone(), self.listeners.sink(waiter.client)).await?;
                asks.push(Ask::Acquire(Acquire { enlist: true, ..waiter.asking(name.as_str()) }));
            }
        }
        let asked = self.all_at_once(waiter, asks).await?;
        self.compare(&asked).await
    }

    /// Of all that was granted, some of them twice or by another fence, and renewals in between.
    fn releases(&self, hand: &Hand, asked: &[Asked], rng: &mut Rng) -> Vec<Ask> {
        let mut asks = Vec::new();
        for Asked { ask, answer, .. } in asked {
            let (Ask::Acquire(acquire), Answer::Acquired(Acquired::Granted(grants))) = (ask, answer) else { continue };
            let fence = grants[0].block.first;
            let release = Release { last_used: None, ..hand.giving(acquire, Some(fence)) };
            let lease = Lease { name: release.name.clone(), owner: acquire.owner.clone(), fence };
            if one_in(rng, 4) {
                asks.push(Ask::Renew(Renew { lease, hold: Some(acquire.request), term: self.lease, kept: false }));
            }
            if one_in(rng, 4) {
                asks.push(Ask::Release(Release { fence: None, ..release.clone() }));
            }
            asks.push(Ask::Release(release));
        }
        asks
    }

    async fn all_at_once(&mut self, hand: &Hand, asks: Vec<Ask>) -> Result<Vec<Asked>, Failure> {
        let began = Instant::now();
        let asked = all_at_once(hand, asks).await?;
        self.manner.took(began.elapsed());
        Ok(asked)
    }

    /// Whether some order of the requests fits, name by name, and the notified clients are those of the reference.
    async fn compare(&mut self, asked: &[Asked]) -> Checked {
        for name in self.names.clone() {
            let of_name: Vec<&Asked> = asked.iter().filter(|asked| asked.ask.name() == &name).collect();
            let reference = self.references.remove(&name).unwrap_or_else(|| self.manner.reference(0));
            let mut failures = Vec::new();
            let Some((reference, hints)) = self.in_some_order(reference, &of_name, &mut failures) else {
                return Err(format!("{name}: no order fits {of_name:?}: {failures:?}").into());
            };
            self.references.insert(name, reference);
            self.listeners.expect(hints).await?;
        }
        Ok(())
    }

    fn in_some_order(
        &self,
        reference: Reference,
        asked: &[&Asked],
        failures: &mut Vec<String>,
    ) -> Option<(Reference, Hints)> {
        let Some(earliest) = asked.iter().map(|asked| asked.at).min() else { return Some((reference, Hints::new())) };
        for (at, next) in asked.iter().enumerate().filter(|(_, asked)| asked.at == earliest) {
            let mut tried = reference.clone();
            let mut hints = match self.answers_alike(&mut tried, next) {
                Ok(hints) => hints,
                Err(failure) => {
                    failures.push(failure.to_string());
                    continue;
                }
            };
            let rest: Vec<&Asked> =
                asked.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, a)| *a).collect();
            if let Some((reference, later)) = self.in_some_order(tried, &rest, failures) {
                hints.extend(later);
                return Some((reference, hints));
            }
        }
        None
    }

    fn answers_alike(&self, reference: &mut Reference, asked: &Asked) -> Result<Hints, Failure> {
        match (&asked.ask, &asked.answer) {
            (Ask::Acquire(ask), Answer::Acquired(theirs)) => match (theirs, reference.acquire(asked.at, ask)?) {
                (Acquired::Granted(theirs), Acquired::Granted(ours)) => {
                    self.manner.same_grant(&ask.owner, &theirs[0], &ours[0])?;
                }
                (Acquired::Busy(theirs), Acquired::Busy(ours)) => self.manner.same_busy(theirs, &ours)?,
                (Acquired::TooLate, Acquired::TooLate) => {}
                (theirs, ours) => differ("acquire", theirs, &ours)?,
            },
            (Ask::Renew(ask), Answer::Renewed(theirs)) => {
                match (theirs, reference.renew(asked.at, std::slice::from_ref(ask))[0]) {
                    (Renewed::Kept { left: theirs }, Renewed::Kept { left: ours }) => {
                        self.manner.same_left(Some(&ask.lease.owner), Some(*theirs), Some(ours))?;
                    }
                    (theirs, ours) => same("renewal", *theirs, ours)?,
                }
            }
            (Ask::Release(ask), Answer::Released(theirs)) => {
                let (ours, hints) = reference.release(asked.at, ask);
                same("release", *theirs, ours)?;
                return Ok(hints);
            }
            (ask, answer) => differ("the kind of answer", ask, answer)?,
        }
        Ok(Hints::new())
    }
}

impl Ask {
    fn name(&self) -> &Name {
        match self {
            Self::Acquire(Acquire { names: Names::One(name), .. }) | Self::Release(Release { name, .. }) => name,
            Self::Acquire(acquire) => acquire.names.first(),
            Self::Renew(renew) => &renew.lease.name,
        }
    }
}

async fn all_at_once(hand: &Hand, asks: Vec<Ask>) -> Result<Vec<Asked>, Failure> {
    let mut calls = JoinSet::new();
    for ask in asks {
        let store = hand.store.clone();
        calls.spawn(async move {
            let (at, answer) = match ask.clone() {
                Ask::Acquire(acquire) => {
                    let answered = store.acquire(acquire).await?;
                    (answered.at, Answer::Acquired(answered.result))
                }
                Ask::Renew(renew) => {
                    let answered = store.renew(vec![renew]).await?;
                    (answered.at, Answer::Renewed(answered.result[0]))
                }
                Ask::Release(release) => {
                    let answered = store.release(release).await?;
                    (answered.at, Answer::Released(answered.result))
                }
            };
            Ok::<_, Error>(Asked { ask, at, answer })
        });
    }
    let mut asked = Vec::new();
    while let Some(finished) = calls.join_next().await {
        asked.push(finished??);
    }
    Ok(asked)
}
