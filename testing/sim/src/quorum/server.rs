//! One simulated server: what it keeps, what of that survives a crash, and its clock.

use std::time::Duration;

use leasehold_core::port::{Release, Released, Renew};
use leasehold_core::quorum::epoch::Facts;
use leasehold_core::quorum::{Ballot, RenewedVote, Server, Vote};
use leasehold_core::reference::{FENCES_KEPT_FOR, Record, Reference};
use leasehold_core::{Error, Fence, Name, RequestId, StoreOwner, StoreTime};

use super::plan::{Memory, Plan, Setting};
use crate::chance::{Chance, MS, SECOND};
use crate::clock::Clock;

const MILLION: u64 = 1_000_000;

pub(super) struct Node {
    state: Server,
    saved: Option<Server>,
    memory: Memory,
    clock: Clock,
    /// Where its clock was at true zero, and how far from the true rate it goes, in millionths.
    offset: u64,
    error: i64,
    step: u64,
    run: u64,
    started: StoreTime,
    untouched: bool,
    pub(super) up: bool,
    /// It stands still until then.
    pub(super) still_until: u64,
    quarantine: Duration,
    seed: u64,
    /// Answers that counted would be forgotten.
    answered: bool,
    /// When it last forgot something that it had answered, by its clock.
    pub(super) forgot: Option<StoreTime>,
    /// It came back with an old state, in which there may be anything.
    pub(super) is_old: bool,
}

impl Node {
    pub(super) fn new(chance: &mut Chance, plan: &Plan) -> Self {
        let offset = 100_000 * SECOND + chance.within(0..plan.apart);
        let error = chance.within(0..2 * plan.ppm + 1) as i64 - plan.ppm as i64;
        let step = if plan.coarse { MS } else { 1_000 };
        let seed = chance.draw();
        let mut memory = chance.pick(&[Memory::None, Memory::None, Memory::Old, Memory::Synced]);
        if plan.changes_sync {
            memory = chance.pick(&[Memory::Log, Memory::Synced]);
        }
        if plan.setting != Setting::Never {
            memory = Memory::Synced;
        }
        let clock = Clock::new(offset, error, step);
        // Most servers were there long before anybody asked; some are new.
        let age = if chance.permille(850) { 10_000 * SECOND } else { 0 };
        Self {
            state: empty(seed),
            saved: None,
            memory,
            started: clock.store_time(0) - Duration::from_nanos(age),
            clock,
            offset,
            error,
            step,
            run: 1,
            untouched: true,
            up: true,
            still_until: 0,
            quarantine: plan.rules.quarantine,
            seed,
            answered: false,
            forgot: None,
            is_old: false,
        }
    }

    pub(super) fn now(&self, at: u64) -> StoreTime {
        self.clock.store_time(at)
    }

    /// For how long in true time its clock needs to go on by so much.
    pub(super) fn true_span(&self, span: Duration) -> u64 {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2);
        (u128::from(nanos) * u128::from(MILLION) / u128::from(MILLION.saturating_add_signed(self.error))) as u64
    }

    /// Its clock is set, by so much and in this direction.
    pub(super) fn set_clock(&mut self, back: bool, by: u64) {
        self.offset = if back { self.offset.saturating_sub(by) } else { self.offset + by };
        self.clock = Clock::new(self.offset, self.error, self.step);
    }

    fn facts(&self) -> Facts {
        let synced = self.memory == Memory::Synced;
        Facts { run: self.run, started: self.started, untouched: self.untouched, synced }
    }

    pub(super) fn vote(&mut self, at: u64, ballot: &Ballot) -> Result<Vote, Error> {
        let vote = self.state.vote(self.clock.store_time(at), self.facts(), self.quarantine, ballot)?;
        self.answered |= vote.standing.votes();
        Ok(vote)
    }

    pub(super) fn uphold(&mut self, at: u64, leases: &[Renew]) -> Result<RenewedVote, Error> {
        let upheld = self.state.uphold(self.clock.store_time(at), self.facts(), self.quarantine, leases)?;
        self.answered |= upheld.standing.votes();
        Ok(upheld)
    }

    pub(super) fn release(&mut self, at: u64, release: &Release) -> Released {
        self.state.store.withdraw(self.clock.store_time(at), release)
    }

    /// What it has of a name.
    fn record<T>(&mut self, name: &Name, of: impl FnOnce(&Record) -> T) -> Option<T> {
        let record = self.state.store.take(name)?;
        let found = of(&record);
        self.state.store.put(name.clone(), record);
        Some(found)
    }

    /// The largest fence that it knows of a name.
    pub(super) fn last(&mut self, name: &Name) -> Fence {
        self.record(name, |record| record.last).unwrap_or_default()
    }

    /// Whether it has the lock for this owner, with that fence.
    pub(super) fn holds(&mut self, at: u64, name: &Name, owner: &StoreOwner, fence: Fence) -> bool {
        let now = self.now(at);
        let ours = |record: &Record| {
            let mut rows = record.rows.iter();
            rows.any(|row| row.expires > now && row.owner == *owner && row.block.first == fence)
        };
        self.record(name, ours).unwrap_or_default()
    }

    /// Whether it has a lock because of one of the attempts of this request.
    pub(super) fn holds_for(&mut self, at: u64, name: &Name, is_of: impl Fn(RequestId) -> bool) -> bool {
        let now = self.now(at);
        let ours = |record: &Record| {
            let live = record.rows.iter().filter(|row| row.expires > now);
            live.flat_map(|row| &row.holds).any(|hold| hold.expires > now && is_of(hold.request))
        };
        self.record(name, ours).unwrap_or_default()
    }

    pub(super) fn save(&mut self) {
        self.saved = Some(self.state.clone());
        self.answered &= self.memory == Memory::None;
    }

    pub(super) fn keeps_log(&self) -> bool {
        self.memory == Memory::Log
    }

    pub(super) fn crash(&mut self) {
        self.up = false;
    }

    /// It comes back with what it has written; one that keeps a log may sync from now on, or no longer.
    pub(super) fn start(&mut self, at: u64, synced: Option<bool>) {
        let empty = || empty(self.seed);
        let state = match self.memory {
            Memory::None => empty(),
            Memory::Old | Memory::Log => self.saved.clone().unwrap_or_else(empty),
            Memory::Synced => self.state.clone(),
        };
        self.state = state;
        if self.memory != Memory::Synced {
            self.forget(at);
        }
        self.is_old |= matches!(self.memory, Memory::Old | Memory::Log);
        if let (Some(synced), Memory::Log | Memory::Synced) = (synced, self.memory) {
            self.memory = if synced { Memory::Synced } else { Memory::Log };
            self.save();
        }
        self.up = true;
        self.run += 1;
        self.started = self.clock.store_time(at);
        self.untouched = true;
    }

    pub(super) fn empty(&mut self, at: u64) {
        self.state = empty(self.seed);
        self.untouched = false;
        self.forget(at);
    }

    fn forget(&mut self, at: u64) {
        if std::mem::take(&mut self.answered) {
            self.forgot = Some(self.now(at));
        }
    }
}

fn empty(seed: u64) -> Server {
    Server::new(Reference::new(seed, FENCES_KEPT_FOR))
}
