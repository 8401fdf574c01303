//! One round: a store, the reference, and the requests to both, one after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::port::{Acquire, Acquired, Break, ClientId, Names, Renewed, RequestId, StoreTime};
use leasehold::{ErrorKind, Fence, Name};
use leasehold_core::backoff::Rng;
use leasehold_core::reference::Reference;

use super::comparison::{differ, same};
use super::listeners::Listeners;
use super::requests::{any_of, one_in};
use super::{Kind, Manner, SLACK_MAX};
use crate::case::{Checked, Failure};
use crate::hand::{Hand, named};

/// An end that is closer than this is waited for before a request: the answer takes a while.
const AHEAD: Duration = Duration::from_millis(10);

/// A store and the reference, and the requests to both.
pub(super) struct Pair {
    pub(super) hands: Vec<Arc<Hand>>,
    pub(super) names: Vec<Name>,
    pub(super) manner: Manner,
    pub(super) kind: Kind,
    pub(super) taken: Vec<Taken>,
    /// By name: all fences that were granted.
    pub(super) fences: HashMap<Name, Vec<Fence>>,
    reference: Reference,
    listeners: Listeners,
    /// When a client was last put on the list of a name.
    enlisted: HashMap<(ClientId, Name), StoreTime>,
    /// The ends that were known before the step: of holds, of lingering and of waiting.
    ends: Vec<StoreTime>,
    /// The number of the last request.
    number: u64,
}

/// An acquire that was sent, and the fences it was granted.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) hand: usize,
    pub(super) acquire: Acquire,
    pub(super) fences: Vec<Fence>,
}

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Both answered the same.
    Compared,
    /// The store answered at the very moment of an end, so that both answers would be right.
    Unclear,
}

impl Pair {
    pub(super) async fn new(
        hands: &[Arc<Hand>],
        names: Vec<Name>,
        manner: Manner,
        kind: Kind,
        rng: &mut Rng,
    ) -> Result<Self, Failure> {
        let listeners = Listeners::default();
        for hand in hands {
            for name in &names {
                hand.store.watch(hand.client, name.clone(), listeners.sink(hand.client)).await?;
            }
        }
        Ok(Self {
            hands: hands.to_vec(),
            names,
            manner,
            kind,
            taken: Vec::new(),
            fences: HashMap::new(),
            reference: manner.reference(rng.draw()),
            listeners,
            enlisted: HashMap::new(),
            ends: Vec::new(),
            // Requests of a round have numbers of their own.
            number: rng.draw() >> 1,
        })
    }

    pub(super) fn new_request(&mut self, hand: usize) -> RequestId {
        self.number += 1;
        RequestId { client: self.hands[hand].client, number: self.number }
    }

    pub(super) async fn step(&mut self, rng: &mut Rng) -> Result<Step, Failure> {
        if one_in(rng, 6) {
            self.let_something_end(rng).await?;
        }
        let now = self.settle().await?;
        match (rng.below(24), self.taken.is_empty()) {
            (0..=2, false) => self.acquire_again(now, rng).await,
            (3..=6, false) => self.renew(rng).await,
            (7..=13, false) => self.release(rng).await,
            (14..=15, _) => self.break_one(rng).await,
            (16, _) => self.look(rng).await,
            (17, _) => self.leave(rng).await,
            _ => self.acquire_new(now, rng).await,
        }
    }

    /// Waits until the next end has passed, or for a while.
    async fn let_something_end(&mut self, rng: &mut Rng) -> Checked {
        let now = self.hands[0].now().await?;
        self.find_ends();
        let within = if one_in(rng, 8) { self.manner.believes } else { Duration::from_secs(1) };
        let next = self.ends.iter().map(|end| end.since(now)).filter(|left| *left > Duration::ZERO && *left < within);
        // A store that believes for long is not waited for.
        let pause = next.max().unwrap_or(Duration::from_millis(rng.below(50))).min(Duration::from_secs(4));
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Waits until no end is near by the store's clock; returns that clock.
    async fn settle(&mut self) -> Result<StoreTime, Failure> {
        loop {
            let now = self.hands[0].now().await?;
            self.find_ends();
            let near = |end: &&StoreTime| **end + self.manner.slack > now && **end < now + AHEAD;
            let Some(last) = self.ends.iter().filter(near).max() else { return Ok(now) };
            if self.manner.slack.is_zero() {
                return Ok(now);
            }
            tokio::time::sleep((*last + self.manner.slack).since(now) + Duration::from_millis(1)).await;
        }
    }

    fn find_ends(&mut self) {
        self.ends.clear();
        for name in &self.names {
            let Some(record) = self.reference.take(name) else { continue };
            let holds = record.rows.iter().flat_map(|row| row.holds.iter().map(|hold| hold.expires));
            let waiters = record.waiters.iter().map(|waiter| waiter.until);
            self.ends.extend(holds.chain(waiters).chain([record.cooldown_until]));
            self.reference.put(name.clone(), record);
        }
    }

    /// Whether the store may have seen one of the ends as over, or as not over, from `from` to `to`.
    fn is_unclear(&self, from: StoreTime, to: StoreTime) -> bool {
        let slack = self.manner.slack;
        let is_near = |end: &StoreTime| from < *end + slack && *end <= to + slack;
        slack > SLACK_MAX || (slack > Duration::ZERO || from < to) && self.ends.iter().any(is_near)
    }

    /// Waits for a call, and sees how long it takes.
    async fn timed<T>(&mut self, call: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let answer = call.await;
        self.manner.took(began.elapsed());
        answer
    }

    async fn acquire_new(&mut self, now: StoreTime, rng: &mut Rng) -> Result<Step, Failure> {
        let taken = self.new_acquire(now, rng)?;
        self.taken.push(taken);
        self.acquire(self.taken.len() - 1).await
    }

    /// Sends one again, as it was or with another lease, block or end.
    async fn acquire_again(&mut self, now: StoreTime, rng: &mut Rng) -> Result<Step, Failure> {
        let request = any_of(&self.taken, rng).acquire.request;
        let at = self.taken.iter().position(|taken| taken.acquire.request == request).unwrap_or_default();
        if one_in(rng, 2) {
            let mut acquire = self.taken[at].acquire.clone();
            self.change(&mut acquire, now, rng);
            self.taken[at].acquire = acquire;
        }
        self.acquire(at).await
    }

    async fn acquire(&mut self, at: usize) -> Result<Step, Failure> {
        let Taken { hand, mut acquire, .. } = self.taken[at].clone();
        let hand = self.hands[hand].clone();
        let before = hand.now().await?;
        acquire.enlist &= self.may_enlist(hand.client, &acquire.names, before);
        let call = hand.store.acquire(acquire.clone());
        let theirs = self.timed(call).await;
        let (from, to) = match &theirs {
            Ok(answered) => (answered.at, answered.at),
            // It has no time.
            Err(error) if error.kind() == ErrorKind::AlreadyHeld => (before, hand.now().await?),
            Err(error) => return Err(error.clone().into()),
        };
        let may_be_late = from < to && from <= acquire.not_after && acquire.not_after <= to;
        if may_be_late || self.is_unclear(from, to) {
            return Ok(Step::Unclear);
        }
        let ours = self.reference.acquire(to, &acquire);
        match (theirs.map(|answered| answered.result), ours) {
            (Ok(Acquired::Granted(theirs)), Ok(Acquired::Granted(ours))) => {
                same("the number of grants", theirs.len(), ours.len())?;
                self.taken[at].fences.clear();
                for ((name, theirs), ours) in acquire.names.as_slice().iter().zip(theirs).zip(ours) {
                    self.manner.same_grant(&acquire.owner, &theirs, &ours)?;
                    self.taken[at].fences.push(ours.block.first);
                    self.fences.entry(name.clone()).or_default().push(ours.block.first);
                }
            }
            (Ok(Acquired::Busy(theirs)), Ok(Acquired::Busy(ours))) => {
                self.manner.same_busy(&theirs, &ours)?;
                if acquire.enlist {
                    self.enlisted.insert((hand.client, ours.name), to);
                }
            }
            (Ok(Acquired::TooLate), Ok(Acquired::TooLate)) => {}
            (Err(theirs), Err(ours)) => same("the kind of error", theirs.kind(), ours.kind())?,
            (theirs, ours) => differ(&format!("{acquire:?}"), &theirs, &ours)?,
        }
        Ok(Step::Compared)
    }

    /// A waiter whose time is over may or may not still be on the waitlist: only the store knows when it looked.
    fn may_enlist(&self, client: ClientId, names: &Names, now: StoreTime) -> bool {
        let is_fresh = |name: &Name| {
            let last = self.enlisted.get(&(client, name.clone()));
            last.is_none_or(|last| *last + self.manner.believes > now + self.manner.slack)
        };
        names.as_slice().iter().all(is_fresh)
    }

    async fn renew(&mut self, rng: &mut Rng) -> Result<Step, Failure> {
        let renewals = self.new_renewals(rng);
        let call = self.hands[0].store.renew(renewals.clone());
        let theirs = self.timed(call).await?;
        if self.is_unclear(theirs.at, theirs.at) {
            return Ok(Step::Unclear);
        }
        let ours = self.reference.renew(theirs.at, &renewals);
        same("the number of renewals", theirs.result.len(), ours.len())?;
        for ((renewal, theirs), ours) in renewals.iter().zip(theirs.result).zip(ours) {
            match (theirs, ours) {
                (Renewed::Kept { left: theirs }, Renewed::Kept { left: ours }) => {
                    self.manner.same_left(Some(&renewal.lease.owner), Some(theirs), Some(ours))?;
                }
                (theirs, ours) if theirs == ours => {}
                (theirs, ours) => differ(&format!("{renewal:?} among {renewals:?}"), &theirs, &ours)?,
            }
        }
        Ok(Step::Compared)
    }

    async fn release(&mut self, rng: &mut Rng) -> Result<Step, Failure> {
        let mut release = self.new_release(rng);
        let hand = self
            .hands
            .iter()
            .find(|hand| hand.client == release.client)
            .cloned()
            .unwrap_or_else(|| self.hands[0].clone());
        let now = hand.now().await?;
        release.rejoin &= self.may_enlist(release.client, &Names::One(release.name.clone()), now);
        let call = hand.store.release(release.clone());
        let theirs = self.timed(call).await?;
        if self.is_unclear(theirs.at, theirs.at) {
            return Ok(Step::Unclear);
        }
        let (ours, hints) = self.reference.release(theirs.at, &release);
        if theirs.result != ours {
            differ(&format!("{release:?}"), &theirs.result, &ours)?;
        }
        let name = release.name;
        if release.rejoin {
            self.enlisted.insert((release.client, name.clone()), theirs.at);
        }
        // A notification about a name that lingers for another release has no effect.
        if self.reference.inspect(theirs.at, &name).cooldown.is_some() {
            self.listeners.allow(hints);
        } else {
            self.listeners.expect(hints).await?;
        }
        Ok(Step::Compared)
    }

    async fn break_one(&mut self, rng: &mut Rng) -> Result<Step, Failure> {
        let name = self.any_name(rng);
        let options = self.break_options(&name, rng);
        let call = self.hands[0].store.break_lock(name.clone(), options);
        let theirs = self.timed(call).await?;
        if self.is_unclear(theirs.at, theirs.at) {
            return Ok(Step::Unclear);
        }
        let (ours, hints) = self.reference.break_lock(theirs.at, &name, options);
        same("the refusal", theirs.result.refused, ours.refused)?;
        let ours = ours.was;
        self.manner.same_inspected(&theirs.result.was, &ours)?;
        // Waiters of a name that was free before need no further notification.
        if ours.holders.is_empty() && ours.cooldown.is_none() {
            self.listeners.allow(hints);
        } else {
            self.listeners.expect(hints).await?;
        }
        Ok(Step::Compared)
    }

    async fn look(&mut self, rng: &mut Rng) -> Result<Step, Failure> {
        let name = self.any_name(rng);
        let call = self.hands[0].store.inspect(name.clone());
        let theirs = self.timed(call).await?;
        if self.is_unclear(theirs.at, theirs.at) {
            return Ok(Step::Unclear);
        }
        let ours = self.reference.inspect(theirs.at, &name);
        self.manner.same_inspected(&theirs.result, &ours)?;
        Ok(Step::Compared)
    }

    /// A client waits no longer, and then listens again.
    async fn leave(&mut self, rng: &mut Rng) -> Result<Step, Failure> {
        let (name, at) = (self.any_name(rng), rng.below(self.hands.len() as u64) as usize);
        let hand = self.hands[at].clone();
        let before = hand.now().await?;
        hand.store.unwatch(hand.client, name.clone()).await;
        let now = hand.now().await?;
        hand.store.watch(hand.client, name.clone(), self.listeners.sink(hand.client)).await?;
        if self.is_unclear(before, now) {
            return Ok(Step::Unclear);
        }
        let hints = self.reference.leave(now, hand.client, &name);
        self.listeners.expect(hints).await?;
        Ok(Step::Compared)
    }

    /// All that is held, listed; then taken away. `clear`: both are still in step.
    pub(super) async fn end(&mut self, clear: bool) -> Checked {
        self.settle().await?;
        let prefix = self.names[0].as_str().trim_end_matches('0').to_owned();
        let theirs = self.hands[0].store.list(prefix.clone(), None, 10).await?;
        if clear && !self.is_unclear(theirs.at, theirs.at) {
            let ours = self.reference.list(theirs.at, &prefix, None, 10);
            let names = |listed: &[leasehold::port::Inspected]| -> Vec<Name> {
                listed.iter().map(|listed| listed.name.clone()).collect()
            };
            same("the names that are listed", names(&theirs.result), names(&ours))?;
            for (theirs, ours) in theirs.result.iter().zip(&ours) {
                self.manner.same_inspected(theirs, ours)?;
            }
            if self.manner.tells_once {
                self.hear_all().await?;
                self.listeners.check_no_more()?;
            }
        }
        for name in &self.names {
            for hand in &self.hands {
                hand.store.unwatch(hand.client, name.clone()).await;
            }
            self.hands[0].store.break_lock(name.clone(), Break::Now.into()).await?;
        }
        Ok(())
    }

    /// Hints to a client come in the order in which they were given: once it has heard of something new, it has heard of all before.
    async fn hear_all(&mut self) -> Checked {
        for at in 0..self.hands.len() {
            let (hand, other) = (self.hands[at].clone(), self.hands[(at + 1) % self.hands.len()].clone());
            let name = format!("{}-heard-{at}", self.names[0]);
            let holder = other.asking_by(&name, self.new_request(at));
            let fence = other.take(&holder).await?.block.first;
            hand.store.watch(hand.client, named(&name), self.listeners.sink(hand.client)).await?;
            let waiter = Acquire { enlist: true, ..hand.asking_by(&name, self.new_request(at)) };
            hand.acquire(&waiter).await?;
            other.release(&other.giving(&holder, Some(fence))).await?;
            self.listeners.expect([(hand.client, named(&name))]).await?;
            hand.store.unwatch(hand.client, named(&name)).await;
        }
        Ok(())
    }
}
