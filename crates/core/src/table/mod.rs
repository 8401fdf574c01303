//! The local table: every decision of one client, as pure state. `step(now, input)` answers with the effects to carry out.
//!
//! A thin shell around it sends calls, brings the answers back, and wakes tasks. The simulation is another such shell. The life of
//! one acquire:
//!
//! 1. [`Input::Acquire`]: if the name is free here, the task makes a [`TaskEffect::Call`] to the store. If the same owner holds it
//!    here, it re-enters at once. If another holds it here, it queues: one task of a client asks the store, the rest wait in line.
//! 2. [`Input::Answer`]: granted, and the task has the lock; or busy, and the first in line watches, asks again and sleeps.
//! 3. [`Input::Release`]: handed off to the next in line with the next fence of the block, or given back to the store.
//! 4. [`Input::Tick`]: leases are renewed, and lost on time even if the network is silent.
//!
//! Every call ends with exactly one [`Input::Answer`] or [`Input::Unsent`], even if the task that made it has gone. The shell releases
//! a grant whose task has gone.

mod acquire;
mod agenda;
mod cancel;
mod detach;
mod entry;
mod groups;
mod held;
mod losses;
mod pending_release;
mod progress;
mod queue;
mod reentry;
mod refusal;
mod release;
mod renewal;
mod types;
mod view;
mod wait_state;
mod waiters;
mod withdrawal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
use crate::owner::RequestId;
use crate::time::{Moment, StoreTime};
use agenda::Agenda;
use entry::Entry;
use losses::LostHold;
use types::{CallKind, Numbers};

/// The state of one client.
#[derive(Debug)]
pub struct Table {
    entries: HashMap<Name, Entry, FixedState>,
    /// Guards whose lock was lost.
    lost_holds: HashMap<HoldId, LostHold, FixedState>,
    /// The failed renewals of a lease since one succeeded.
    failures: HashMap<Name, SmallVec<[FailedRenewal; 1]>, FixedState>,
    /// How many guards hold a lock.
    guards: usize,
    /// The name at which each group waits at the moment.
    groups: HashMap<TicketId, Name, FixedState>,
    /// Re-entries that wait for a longer lease; one that is cancelled leaves.
    extensions: BTreeMap<TicketId, PendingExtension>,
    /// When each name next needs attention by itself. Its entry has the same time.
    timers: BTreeSet<(Moment, Name)>,
    agenda: Agenda,
    settings: Settings,
    rng: Rng,
    /// How much true time the client's clock has missed, as the wall clock shows. All times in the table have it added.
    jumped: Duration,
    /// How much of that came while the call that is being answered was under way.
    jumped_meanwhile: Duration,
    /// A smoothed round trip.
    round_trip: Duration,
    /// Numbers for requests, tickets and holds.
    numbers: Numbers,
    closed: bool,
}

impl Table {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        let hasher = || FixedState::with_seed(settings.seed);
        Self {
            entries: HashMap::with_hasher(hasher()),
            lost_holds: HashMap::with_hasher(hasher()),
            failures: HashMap::with_hasher(hasher()),
            guards: 0,
            groups: HashMap::with_hasher(hasher()),
            extensions: BTreeMap::new(),
            timers: BTreeSet::new(),
            agenda: Agenda::default(),
            rng: Rng::new(settings.seed),
            settings,
            jumped: Duration::ZERO,
            jumped_meanwhile: Duration::ZERO,
            round_trip: Duration::ZERO,
            numbers: Numbers::default(),
            closed: false,
        }
    }

    /// A number for a task that is about to ask for something.
    pub fn ticket(&mut self) -> TicketId {
        TicketId(self.numbers.next())
    }

    /// An id for a request that the table has no part in.
    pub fn request(&mut self) -> RequestId {
        RequestId { client: self.settings.client, number: self.numbers.next() }
    }

    /// Handles one event at `now`, and adds its effects to `out`.
    pub fn step(&mut self, now: Moment, input: Input, out: &mut Outputs) {
        let (before, at) = (out.len(), now + self.jumped);
        match input {
            Input::Acquire(id, request) => self.acquire(at, id, request, out),
            Input::Cancel(id, name) => self.cancel(at, id, &name, out),
            Input::Woke(id, name) => self.woke(at, id, &name, out),
            Input::Release(hold, name) => self.release_hold(at, hold, &name, out),
            Input::Extend(id, hold, name, term) => self.extend(at, id, hold, &name, term, out),
            Input::Answer(context, answer) => self.answer(at, context, answer, out),
            Input::Unsent(context) => self.unsent(at, context, out),
            Input::Hint(name) => self.hint(at, &name),
            Input::HintAll => self.hint_all(),
            Input::HintHeld(name) => self.check_held(at, &name),
            Input::Tick => self.tick(at, out),
            Input::Jumped(ahead) => self.jumped(at, ahead, out),
            Input::Close => self.close(at, out),
        }
        self.finish(now, before, out);
    }

    /// A guard gives its hold back: the step for [`Input::Release`], without a copy of the name.
    pub fn release(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        let before = out.len();
        self.release_hold(now + self.jumped, hold, name, out);
        self.finish(now, before, out);
    }

    fn answer(&mut self, now: Moment, context: Context, answer: Answer, out: &mut Outputs) {
        let Context { sent, missed, what } = context;
        self.jumped_meanwhile = self.jumped.saturating_sub(missed);
        if let Some(at) = answer.at() {
            let took = now.since(sent);
            self.settings.clock.observe(sent, now, at, self.settings.call_limit);
            self.round_trip = backoff::smoothed(self.round_trip, took);
        }
        match (what, answer) {
            (CallKind::Acquire { name, number, not_after }, Answer::Acquire(reply)) => {
                self.acquire_answered(now, sent, &name, number, not_after, reply, out);
            }
            (CallKind::Watch { name }, Answer::Watch(reply)) => self.watched(now, &name, reply.err(), out),
            (CallKind::Release { name, number, hold }, Answer::Release(reply)) => {
                self.released(now, sent, &name, number, hold, reply, out);
            }
            (CallKind::Renew(leases), Answer::Renew(reply)) => self.renewed(now, sent, &leases, reply, out),
            (CallKind::Extend { name, number, ticket, then, before }, Answer::Renew(reply)) => {
                self.extension_answered(now, sent, &name, number, ticket, then, before, reply, out);
            }
            (what, answer) => debug_assert!(false, "{what:?} was answered with {answer:?}"),
        }
    }

    /// The task that was to send a call was dropped before.
    pub(super) fn unsent(&mut self, now: Moment, context: Context, out: &mut Outputs) {
        match context.what {
            CallKind::Acquire { name, number, .. } => self.call_unsent(now, &name, Some(number), out),
            CallKind::Watch { name } => self.call_unsent(now, &name, None, out),
            CallKind::Extend { name, number, ticket, then, before } => {
                self.extensions.remove(&ticket);
                let held = self.entries.get_mut(&name).and_then(Entry::held_mut);
                if let Some(held) = held.filter(|held| held.number == number) {
                    held.was_not_asked(context.sent, then.term(), before);
                }
            }
            what @ (CallKind::Release { .. } | CallKind::Renew(_)) => {
                let error = || Error::new(ErrorKind::Unreachable, "call", "it was not sent");
                let answer = match &what {
                    CallKind::Renew(_) => Answer::Renew(Err(error())),
                    _ => Answer::Release(Err(error())),
                };
                self.answer(now, Context { sent: context.sent, missed: Duration::ZERO, what }, answer, out);
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
        for id in std::mem::take(&mut self.extensions).into_keys() {
            out.push(Output::To(id, TaskEffect::Failed(closed_error())));
        }
        let mut holds: Vec<HoldId> = self.lost_holds.keys().copied().collect();
        holds.sort();
        for hold in holds {
            let release = self.lost_holds.get_mut(&hold).and_then(|lost| lost.take_release(self.jumped));
            if let Some(release) = release {
                self.release_beside(now, release, now, out);
            }
        }
    }

    fn close_name(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let tickets: Vec<TicketId> = entry.wait().queue.iter().map(|(id, _)| id).collect();
        for id in tickets {
            out.push(Output::To(id, TaskEffect::Failed(closed_error())));
            self.cancel(now, id, name, out);
        }
        self.close_held(now, name, out);
        self.agenda.touch(name);
    }
}

/// A task that re-enters a lease which is too short for it, and waits for the store to lengthen it.
#[derive(Debug)]
struct PendingExtension {
    /// Errors are final from then on.
    patience: Moment,
    attempts: u32,
    /// Its request, while it sleeps between two tries.
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
    Error::new(ErrorKind::Closed, "acquire", "the client was closed").with_hint("connect again")
}

fn shrink<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V, FixedState>) {
    if map.capacity() > 1024 && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests;
