//! A process: the table that ships, a clock, tasks, and the calls it waits for.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::table::{Context, HoldId, Request, Sending, Table, TicketId};
use leasehold_core::{ClientId, Moment, Names, Options, Owner};

use crate::clock::Clock;
use crate::invariants::extending::Extension;
use crate::invariants::releasing::Giving;

/// One process and all that is in it.
#[derive(Debug)]
pub struct Process {
    /// Its client.
    pub id: ClientId,
    /// The state that ships.
    pub table: Table,
    /// Its clock.
    pub clock: Clock,
    /// It was closed.
    pub closed: bool,
    /// It was not killed.
    pub alive: bool,
    /// It does nothing before then.
    pub asleep_until: u64,
    /// It slept last until then.
    pub awake_since: u64,
    /// It is cut off from the store until then.
    pub cut_until: u64,
    /// The usual one-way delay to the store.
    pub latency: u64,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// Its calls under way.
    pub calls: Vec<Call>,
    /// When its next timer is put down for.
    pub tick_at: u64,
    /// When each name was last granted by the store.
    pub leased_since: [u64; 3],
    /// When the call that is being answered was sent, on true time.
    pub answering_since: u64,
    /// And on its own clock.
    pub answering_sent: Moment,
    /// Its clock stood still, and it has not been told.
    pub misled: bool,
    /// For how long it was told that its clock had stood still, in all.
    pub skipped: Duration,
    /// How long it goes on asking a store that does not answer.
    pub patience: Duration,
    /// Guards on their way back.
    pub giving: Vec<Giving>,
}

/// A call under way.
#[derive(Debug)]
pub struct Call {
    /// Its number.
    pub id: u64,
    /// To be handed back with its answer.
    pub context: Context,
    /// Which answer it awaits.
    pub kind: Kind,
    /// When it was sent, on true time and on the client's clock.
    pub sent: (u64, Moment),
}

/// Which answer a call awaits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An acquire.
    Acquire,
    /// A renewal.
    Renew,
    /// A release.
    Release,
    /// A subscription.
    Watch,
}

impl Kind {
    /// Of a request.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Acquire(_) => Self::Acquire,
            Request::Renew(_) => Self::Renew,
            Request::Release(_) => Self::Release,
            Request::Watch(_) => Self::Watch,
        }
    }
}

/// A task: takes locks, holds them, lets them go.
#[derive(Debug, Default)]
pub struct Task {
    /// How many locks it is still going to take.
    pub rounds: u64,
    /// What it waits for.
    pub want: Option<Wanting>,
    /// What it holds.
    pub guards: Vec<Guard>,
    /// Counts up whenever what was put down for this task no longer counts.
    pub turn: u32,
    /// Counts up with every sleep.
    pub sleep: u32,
    /// It has finished.
    pub done: bool,
}

/// A wish under way.
#[derive(Debug)]
pub struct Wanting {
    /// Its ticket.
    pub ticket: TicketId,
    /// What is wanted.
    pub names: Names,
    /// For whom.
    pub owner: Owner,
    /// How.
    pub options: Arc<Options>,
    /// Ask once.
    pub once: bool,
    /// Only a longer lease is wanted.
    pub extends: Option<Extension>,
    /// What it is about to send.
    pub sending: Option<Box<Sending>>,
    /// Since when.
    pub since: u64,
    /// When it first asked since the store last answered about its names, on the client's own clock, and what that had skipped by then.
    pub asks_since: Option<(Moment, Duration)>,
    /// The call that it sent last.
    pub call: u64,
    /// The store has answered it once.
    pub heard: bool,
    /// Its owner may hold the name already.
    pub again: bool,
}

/// A guard in a task's hands.
#[derive(Debug, Clone)]
pub struct Guard {
    /// The number of the name.
    pub name: usize,
    /// Its hold.
    pub hold: HoldId,
    /// Its owner.
    pub owner: Owner,
    /// How it was taken.
    pub options: Arc<Options>,
}

impl Process {
    /// The task behind a ticket, unless it has gone.
    pub fn task_of(&self, ticket: TicketId) -> Option<usize> {
        self.tasks.iter().position(|task| task.want.as_ref().is_some_and(|want| want.ticket == ticket))
    }

    /// The store answered one task about these names: the others that wait for one of them begin their patience anew with their next
    /// question, as the store was not silent.
    pub fn store_answered(&mut self, names: &Names) {
        for want in self.tasks.iter_mut().filter_map(|task| task.want.as_mut()) {
            if want.names.as_slice().iter().any(|name| names.as_slice().contains(name)) {
                want.asks_since = None;
            }
        }
    }

    /// Whether every task is done.
    pub fn is_done(&self) -> bool {
        self.tasks.iter().all(|task| task.done)
    }
}
