//! A layer of chaos around a store: on command it loses, delays and hangs calls and loses hints; it counts calls by
//! kind.
//!
//! It never changes an answer, except for a planted bug: [`Fault::Hide`].

mod store;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::port::{Acquire, Acquired, Answered, Notification, Reply};
use leasehold::{Layer, Outcome, Store};
use leasehold_core::backoff::Rng;
use tokio::sync::watch;

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The store's clock.
    Clock,
    /// Acquire.
    Acquire,
    /// Renew.
    Renew,
    /// Release.
    Release,
    /// Subscribe.
    Watch,
    /// End a subscription.
    Unwatch,
    /// Inspect, list and break.
    Operate,
}

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is applied; its answer is lost, so the outcome is unknown.
    LoseReply,
    /// It is not applied; the caller hears this outcome (not applied or unknown).
    LoseRequest(Outcome),
    /// It is applied this much later.
    Delay(Duration),
    /// It is applied at once and answered this much later.
    DelayReply(Duration),
    /// It is neither applied nor answered before [`Chaos::calm`].
    Hang,
    /// It is pending for this many polls, then applied, then pending for as many again.
    Polls(u32),
    /// A renewal is answered as if it had succeeded, whatever the store said. For planting a bug.
    Hide,
    /// An acquire stays in a dead socket until [`Chaos::deliver`]; the caller hears that the outcome is unknown.
    Park,
}

/// A layer of chaos; a clone is the same layer.
#[derive(Clone)]
pub struct Chaos(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Hung calls go on when it changes.
    calmed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    storm: Option<(Rng, u64)>,
    counts: HashMap<Kind, u64>,
    parked: Vec<(Arc<dyn Store>, Acquire)>,
    hints_lost: bool,
    /// How many hints came through.
    hints: u64,
    /// Acquires are held up until there were more hints than this.
    told_after: Option<u64>,
    /// Whether there is a subscription, and the number of acquires since it began or was last read.
    watched: bool,
    asked_since: u64,
}

struct Rule {
    kind: Kind,
    fault: Fault,
    /// How often it still applies.
    times: u32,
}

impl Default for Chaos {
    fn default() -> Self {
        Self::new()
    }
}

impl Chaos {
    /// A layer that does nothing but count.
    pub fn new() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), calmed: watch::Sender::new(0) }))
    }

    /// The next calls of this kind meet this fault. Earlier rules go first.
    pub fn next(&self, kind: Kind, times: u32, fault: Fault) {
        self.state().rules.push(Rule { kind, fault, times });
    }

    /// Every call of this kind meets this fault, until it is calm again.
    pub fn every(&self, kind: Kind, fault: Fault) {
        self.next(kind, u32::MAX, fault);
    }

    /// Every acquire, renewal, release and subscription is lost or late with this chance, in one of many ways.
    pub fn storm(&self, rng: Rng, per_cent: u64) {
        self.state().storm = Some((rng, per_cent));
    }

    /// Hints are lost from now on, or not.
    pub fn lose_hints(&self, lost: bool) {
        self.state().hints_lost = lost;
    }

    /// From now until one is granted, an acquire is delayed until another hint has come. So only a client that is
    /// notified of a release gets the lock; one that rechecks does not, however slow the machine is.
    pub fn only_when_told(&self) {
        let mut state = self.state();
        state.told_after = Some(state.hints);
    }

    /// Whether a hint reaches the client. It releases the acquires that are delayed until a hint.
    fn hints(&self) -> bool {
        let mut state = self.state();
        if state.hints_lost {
            return false;
        }
        state.hints += 1;
        if state.told_after.take().is_some() {
            self.0.calmed.send_modify(|times| *times += 1);
        }
        true
    }

    /// No more faults; calls that hang go on.
    pub fn calm(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.storm = None;
        self.0.calmed.send_modify(|times| *times += 1);
    }

    /// Lets the parked acquires arrive, and returns their results.
    pub async fn deliver(&self) -> Vec<Reply<Acquired>> {
        let parked = std::mem::take(&mut self.state().parked);
        let mut replies = Vec::new();
        for (store, request) in parked {
            replies.push(store.acquire(request).await);
        }
        replies
    }

    /// How many acquires are parked.
    pub fn parked(&self) -> usize {
        self.state().parked.len()
    }

    /// How many calls of this kind were made.
    pub fn count(&self, kind: Kind) -> u64 {
        self.state().counts.get(&kind).copied().unwrap_or_default()
    }

    /// How many calls were made in all.
    pub fn total(&self) -> u64 {
        self.state().counts.values().sum()
    }

    /// From now on, acquires count for [`Chaos::asked_while_watching`].
    pub fn expect_asking(&self) {
        self.state().asked_since = 0;
    }

    /// Whether there is a subscription, and the store was called after it began: from then on a waiter sleeps.
    pub fn asked_while_watching(&self) -> bool {
        let state = self.state();
        state.watched && state.asked_since > 0
    }

    /// A refused acquire that will be notified sleeps from then on: it counts as watching and as having called.
    fn answered(&self, reply: &Reply<Acquired>) {
        if matches!(reply, Ok(Answered { result: Acquired::Granted(_), .. })) {
            self.state().told_after = None;
        }
        if let Ok(Answered { result: Acquired::Busy(busy), .. }) = reply
            && busy.notification == Notification::Coming
        {
            let mut state = self.state();
            state.watched = true;
            state.asked_since += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call; returns its fault, and how it learns that the chaos has ended. Both count from this moment.
    fn meet(&self, kind: Kind) -> Option<(Fault, watch::Receiver<u64>)> {
        let mut state = self.state();
        let calmed = self.0.calmed.subscribe();
        *state.counts.entry(kind).or_default() += 1;
        match kind {
            Kind::Watch => (state.watched, state.asked_since) = (true, 0),
            Kind::Unwatch => state.watched = false,
            Kind::Acquire => state.asked_since += 1,
            _ => {}
        }
        if kind == Kind::Acquire && state.told_after.is_some_and(|before| state.hints <= before) {
            return Some((Fault::Hang, calmed));
        }
        if let Some(rule) = state.rules.iter_mut().find(|rule| rule.kind == kind && rule.times > 0) {
            rule.times = if rule.times == u32::MAX { u32::MAX } else { rule.times - 1 };
            return Some((rule.fault, calmed));
        }
        let (rng, per_cent) = state.storm.as_mut()?;
        let stormy = matches!(kind, Kind::Acquire | Kind::Renew | Kind::Release | Kind::Watch);
        (stormy && rng.below(100) < *per_cent).then(|| (Fault::any(rng), calmed))
    }
}

impl Fault {
    fn any(rng: &mut Rng) -> Self {
        let late = Duration::from_micros(rng.below(3_000));
        match rng.below(6) {
            0 => Self::LoseReply,
            1 => Self::LoseRequest(Outcome::NotApplied),
            2 => Self::LoseRequest(Outcome::Unknown),
            3 => Self::Delay(late),
            4 => Self::DelayReply(late),
            _ => Self::Polls(1 + u32::try_from(rng.below(4)).unwrap_or_default()),
        }
    }
}

impl Layer for Chaos {
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::Stormy { chaos: self.clone(), inner })
    }
}
