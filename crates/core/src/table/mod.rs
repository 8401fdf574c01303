//! The local table: everything that one client decides, as pure state. `step(now, input)` gives out what is to be done.
//!
//! A thin shell around it sends what it is told to send, brings the answers back, and wakes tasks. The simulation is another such
//! shell. The life of one acquire:
//!
//! 1. [`Input::Acquire`]: the name is free here, so the task is told to [`TaskEffect::Call`] the store. Held here by the same owner, it
//!    re-enters at once. Held here by another, it queues: one task of a client asks the store, the rest wait in line.
//! 2. [`Input::Answer`]: granted, and the task is told so; or busy, and the first in line watches, asks again and sleeps.
//! 3. [`Input::Release`]: handed to the next in line with the next fence of the block, or given back to the store.
//! 4. [`Input::Tick`]: leases are renewed, and lost on time, whatever the network does.
//!
//! Every call ends with exactly one [`Input::Answer`] or [`Input::Unsent`], also when the task that made it has gone. A grant told
//! to a task that has gone is released by the shell.

mod acquire;
mod detach;
mod entry;
mod groups;
mod holds;
mod losses;
mod pending_release;
mod queue;
mod renewal;
mod types;
mod waiters;
mod withdrawal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

pub use types::{
    AcquireRequest, Answer, Context, FailedRenewal, Grant, HoldId, How, Input, Loss, LossReport, Output, Outputs,
    Request, Sending, Settings, TaskEffect, TicketId,
};

use crate::backoff::{self, Rng};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::{Owner, RequestId};
use crate::port::{Busy, Notification};
use crate::time::{Moment, StoreTime};
use entry::{Ask, Entry, Held, OrphanedLease};
use types::CallKind;

/// A hold whose lock was lost, and what to release with the last guard of its lease.
type LostHold = (Arc<LossReport>, Option<Arc<OrphanedLease>>);

/// The state of one client.
#[derive(Debug)]
pub struct Table {
    entries: HashMap<Name, Entry, FixedState>,
    /// Guards whose lock was lost, and what to release when the last guard of that lease is gone.
    ghosts: HashMap<HoldId, LostHold, FixedState>,
    /// What the last renewals of a lease failed with, since one succeeded.
    failures: HashMap<Name, SmallVec<[FailedRenewal; 1]>, FixedState>,
    /// How many guards hold a lock.
    guards: usize,
    /// Where a group waits at the moment.
    groups: HashMap<TicketId, Name, FixedState>,
    /// Re-entries that wait for a longer lease; one that is cancelled leaves.
    lengthening: BTreeMap<TicketId, PendingExtension>,
    timers: BTreeSet<(Moment, Name)>,
    settings: Settings,
    rng: Rng,
    /// How much of true time the client's clock has missed, as far as the wall clock told: all times in the table have it added.
    jumped: Duration,
    /// How much of that came while the call that is being answered was under way.
    jumped_meanwhile: Duration,
    /// A smoothed round trip.
    round_trip: Duration,
    /// Numbers for requests, tickets and holds.
    last_number: u64,
    closed: bool,
}

impl Table {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        let hasher = || FixedState::with_seed(settings.seed);
        Self {
            entries: HashMap::with_hasher(hasher()),
            ghosts: HashMap::with_hasher(hasher()),
            failures: HashMap::with_hasher(hasher()),
            guards: 0,
            groups: HashMap::with_hasher(hasher()),
            lengthening: BTreeMap::new(),
            timers: BTreeSet::new(),
            rng: Rng::new(settings.seed),
            settings,
            jumped: Duration::ZERO,
            jumped_meanwhile: Duration::ZERO,
            round_trip: Duration::ZERO,
            last_number: 0,
            closed: false,
        }
    }

    /// A number for a task that is about to want something.
    pub fn ticket(&mut self) -> TicketId {
        TicketId(self.number())
    }

    /// An id for a request that the table has no part in.
    pub fn request(&mut self) -> RequestId {
        RequestId { client: self.settings.client, number: self.number() }
    }

    /// Takes in what happened at `now`, and adds what is to be done to `out`.
    pub fn step(&mut self, now: Moment, input: Input, out: &mut Outputs) {
        let before = out.len();
        self.take_in(now + self.jumped, input, out);
        self.tell_in_their_time(&mut out[before..]);
    }

    fn take_in(&mut self, now: Moment, input: Input, out: &mut Outputs) {
        match input {
            Input::Acquire(id, want) => self.acquire(now, id, want, out),
            Input::Cancel(id, name) => self.cancel(now, id, &name, out),
            Input::Woke(id, name) => self.woke(now, id, &name, out),
            Input::Release(hold, name) => self.give(now, hold, &name, out),
            Input::Extend(id, hold, name, term) => self.extend(now, id, hold, &name, term, out),
            Input::Answer(context, answer) => self.answer(now, context, answer, out),
            Input::Unsent(context) => self.unsent(now, context, out),
            Input::Hint(name) => self.hint(now, &name, out),
            Input::HintAll => self.hint_all(now, out),
            Input::HintHeld(name) => self.check_held(now, &name, out),
            Input::Tick => self.tick(now, out),
            Input::Jumped(ahead) => self.jumped(now, ahead, out),
            Input::Close => self.close(now, out),
        }
    }

    /// A guard gives its hold back: the step for [`Input::Release`], without a copy of the name.
    pub fn release(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        let before = out.len();
        self.give(now + self.jumped, hold, name, out);
        self.tell_in_their_time(&mut out[before..]);
    }

    /// Tasks sleep by the client's clock, which knows nothing of what it missed.
    fn tell_in_their_time(&self, outputs: &mut [Output]) {
        if self.jumped.is_zero() {
            return;
        }
        for output in outputs {
            match output {
                Output::To(_, types::TaskEffect::Sleep(until)) => *until = *until - self.jumped,
                Output::To(_, types::TaskEffect::Call(sending))
                | Output::ForHold(_, sending)
                | Output::Background(sending) => sending.context.missed = self.jumped,
                _ => {}
            }
        }
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_timer(&self) -> Option<Moment> {
        self.timers.first().map(|(when, _)| *when - self.jumped)
    }

    /// How long a hold is still valid; none when it is not.
    pub fn time_left(&self, now: Moment, name: &Name, hold: HoldId) -> Option<Duration> {
        self.left_of(now + self.jumped, name, hold)
    }

    /// The same at a moment in the table's time.
    fn left_of(&self, now: Moment, name: &Name, hold: HoldId) -> Option<Duration> {
        let held = self.entries.get(name)?.held.as_deref()?;
        let end = held.holds.iter().find(|h| h.id == hold)?.end.min(held.deadline);
        (now < end && held.releasing.is_none()).then(|| end.since(now))
    }

    /// Whether a hold is still counted as held; its time may be over before the table has noticed.
    pub fn is_held(&self, name: &Name, hold: HoldId) -> bool {
        let held = self.entries.get(name).and_then(|entry| entry.held.as_deref());
        held.is_some_and(|held| held.releasing.is_none() && held.holds.iter().any(|h| h.id == hold))
    }

    /// Whether this client holds a name validly for that owner; none where a lease of it may still be on its way back, and only asking
    /// for it will tell.
    pub fn holds_for(&self, now: Moment, name: &Name, owner: &Owner) -> Option<bool> {
        let Some(entry) = self.entries.get(name) else { return Some(false) };
        match entry.held.as_deref() {
            Some(held) if held.releasing.is_none() => Some(held.holder == *owner && now + self.jumped < held.deadline),
            Some(_) => None,
            None => (entry.series.is_none() && entry.leaving.is_empty()).then_some(false),
        }
    }

    /// How many holds this client has of a name, seen from one of them.
    pub fn holds(&self, name: &Name, hold: HoldId) -> u32 {
        let held = self.entries.get(name).and_then(|entry| entry.held.as_deref());
        held.filter(|held| held.holds.iter().any(|h| h.id == hold)).map_or(0, |held| held.holds.len() as u32)
    }

    /// The request under which the store counts what this client holds of a name, seen from one of its holds.
    pub fn request_of(&self, name: &Name, hold: HoldId) -> Option<RequestId> {
        let held = self.entries.get(name)?.held.as_deref()?;
        let is_there = held.releasing.is_none() && held.holds.iter().any(|h| h.id == hold);
        is_there.then_some(RequestId { client: self.settings.client, number: held.number })
    }

    /// Who holds a name, here or as the store said last: for one whose time to wait is over.
    pub fn busy(&self, now: Moment, name: &Name) -> Option<Busy> {
        let now = now + self.jumped;
        let entry = self.entries.get(name)?;
        match entry.held.as_deref() {
            Some(held) if held.releasing.is_none() => Some(self.busy_here(now, name, held)),
            _ => entry.busy.as_deref().cloned(),
        }
    }

    /// How a hold was lost, if it was and its guard is still there.
    pub fn loss(&self, hold: HoldId) -> Option<&Arc<LossReport>> {
        self.ghosts.get(&hold).map(|(report, _)| report)
    }

    /// How long a guard has held its lock, or had when it was lost.
    pub fn held_for(&self, now: Moment, name: &Name, hold: HoldId) -> Duration {
        let held = self.entries.get(name).and_then(|entry| entry.held.as_deref());
        let here = held.and_then(|held| Some((held, held.holds.iter().find(|h| h.id == hold)?)));
        match here {
            Some((held, hold)) => held.held_for(now + self.jumped, hold),
            None => self.loss(hold).map_or(Duration::ZERO, |report| report.held),
        }
    }

    /// How many guards hold a lock.
    pub fn guards(&self) -> usize {
        self.guards
    }

    fn busy_here(&self, now: Moment, name: &Name, held: &Held) -> Busy {
        let holder = held.describe(self.settings.client, now, &self.settings.clock);
        Busy { name: name.clone(), free_in: holder.left, holder: Some(holder), news: Notification::default() }
    }

    /// How many names are in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no name is in the table.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether nothing is held and no call is under way: tasks at most sleep in line. No lease can come before the next step.
    pub fn only_waits(&self) -> bool {
        self.lengthening.is_empty() && self.entries.values().all(Entry::only_waits)
    }

    /// The names in use, for people and for finding out what was left over.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.entries.keys()
    }

    /// How many guards of lost locks have not been dropped yet, how many groups and re-entries wait, and of how many leases the last
    /// renewal failed.
    pub fn remnants(&self) -> usize {
        self.ghosts.len() + self.groups.len() + self.lengthening.len() + self.failures.len()
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn hold_id(&mut self) -> HoldId {
        HoldId(self.number())
    }

    fn answer(&mut self, now: Moment, context: Context, answer: Answer, out: &mut Outputs) {
        let Context { sent, missed, what } = context;
        self.jumped_meanwhile = self.jumped.saturating_sub(missed);
        if let Some(at) = answer.at() {
            let took = now.since(sent);
            // An answer that a sleeping process finds late says too little of where the store's clock stands.
            if took <= self.settings.call_limit || at > self.settings.clock.latest(now) {
                self.settings.clock.observe(sent, at);
            }
            self.settings.clock.reached(sent, now, at);
            self.round_trip = backoff::smoothed(self.round_trip, took);
        }
        match (what, answer) {
            (CallKind::Ask { name, number, not_after }, Answer::Acquire(reply)) => {
                self.asked(now, sent, &name, number, not_after, reply, out);
            }
            (CallKind::Watch { name }, Answer::Watch(reply)) => self.watched(now, &name, reply.err(), out),
            (CallKind::Release { name, number, hold }, Answer::Release(reply)) => {
                self.released(now, &name, number, hold, reply, out);
            }
            (CallKind::Withdraw { name, number }, Answer::Release(reply)) => {
                self.withdrawn(now, sent, &name, number, reply, out);
            }
            (CallKind::Renew(leases), Answer::Renew(reply)) => self.renewed(now, sent, &leases, reply, out),
            (CallKind::Lengthen { name, number, ticket, then, before }, Answer::Renew(reply)) => {
                self.lengthened(now, sent, &name, number, ticket, then, before, reply, out);
            }
            (CallKind::Leave { name, number }, Answer::Release(reply)) => self.left(now, &name, number, reply, out),
            (what, answer) => debug_assert!(false, "{what:?} was answered with {answer:?}"),
        }
    }

    /// Sets the timer of a name, or lets the name go when nothing is left of it.
    fn settle(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.is_idle() && entry.series.is_none() && entry.give_way <= now {
            if entry.timer.0 != Moment::NEVER {
                self.timers.remove(&(entry.timer.0, name.clone()));
            }
            if entry.watched || entry.enlisted {
                out.push(Output::Unwatch(name.clone()));
            }
            self.entries.remove(name);
            shrink(&mut self.entries);
            return;
        }
        entry.tidy(now);
        let due = entry.due();
        if due != entry.timer.0 {
            if entry.timer.0 != Moment::NEVER {
                self.timers.remove(&(entry.timer.0, name.clone()));
            }
            entry.timer.0 = due;
            if due != Moment::NEVER {
                self.timers.insert((due, name.clone()));
            }
        }
    }

    fn close(&mut self, now: Moment, out: &mut Outputs) {
        self.closed = true;
        let mut names: Vec<Name> = self.entries.keys().cloned().collect();
        names.sort();
        for name in &names {
            self.close_name(now, name, out);
        }
        // A re-entry that waits for a longer lease stands in no queue.
        for id in std::mem::take(&mut self.lengthening).into_keys() {
            out.push(Output::To(id, types::TaskEffect::Failed(closed_error())));
        }
        let mut holds: Vec<HoldId> = self.ghosts.keys().copied().collect();
        holds.sort();
        for hold in holds {
            let ghost = self.ghosts.get_mut(&hold).and_then(|(_, ghost)| ghost.take());
            if let Some(ghost) = ghost.and_then(Arc::into_inner) {
                self.leave(now, ghost, out);
            }
        }
    }

    fn close_name(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let tickets: Vec<TicketId> = entry.queue.iter().map(|(id, _)| id).collect();
        for id in tickets {
            out.push(Output::To(id, types::TaskEffect::Failed(closed_error())));
            self.cancel(now, id, name, out);
        }
        self.close_held(now, name, out);
        self.settle(now, name, out);
    }
}

/// A task that re-enters a lease which is too short for it, and waits for the store to lengthen it.
#[derive(Debug)]
struct PendingExtension {
    /// Errors are final from then on.
    patience: Moment,
    attempts: u32,
    /// What it wants, while it sleeps between two tries.
    asleep: Option<Box<AcquireRequest>>,
}

impl Answer {
    fn at(&self) -> Option<StoreTime> {
        match self {
            Self::Acquire(reply) => reply.as_ref().ok().map(|answered| answered.at),
            Self::Release(reply) => reply.as_ref().ok().map(|answered| answered.at),
            Self::Renew(reply) => reply.as_ref().ok().map(|answered| answered.at),
            Self::Watch(_) => None,
        }
    }
}

fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "acquire", "the client was closed").with_hint("connect anew")
}

fn shrink<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V, FixedState>) {
    if map.capacity() > 1024 && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

impl Entry {
    fn is_asker(&self, id: TicketId) -> bool {
        self.head().is_some_and(|(head, _)| head == id) && !matches!(self.ask, Ask::Idle)
    }
}

#[cfg(test)]
mod tests;
