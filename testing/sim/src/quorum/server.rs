//! One simulated server: what it keeps, what of that survives a crash, and its clock.

use std::time::Duration;

use leasehold_core::planted::Planted;
use leasehold_core::port::{Release, Released, Renew};
use leasehold_core::quorum::birth::Facts;
use leasehold_core::quorum::{Ballot, Server, Upheld, Vote};
use leasehold_core::reference::Reference;
use leasehold_core::{Error, Name, RequestId, StoreOwner, StoreTime};

use crate::chance::{Chance, MS, SECOND};
use crate::clock::Clock;

/// What survives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Nothing.
    None,
    /// What was there some time ago.
    Old,
    /// Everything that was ever answered.
    Synced,
}

pub(super) struct Node {
    state: Server,
    saved: Option<Server>,
    memory: Memory,
    clock: Clock,
    run: u64,
    started: StoreTime,
    untouched: bool,
    pub(super) up: bool,
    /// It stands still until then.
    pub(super) still_until: u64,
    quarantine: Duration,
    planted: Planted,
    seed: u64,
}

impl Node {
    pub(super) fn new(chance: &mut Chance, ppm: u64, quarantine: Duration, planted: Planted) -> Self {
        let offset = 1_000 * SECOND + chance.within(0..200 * MS);
        let error = chance.within(0..2 * ppm + 1) as i64 - ppm as i64;
        let clock = Clock::new(offset, error, 1_000);
        let seed = chance.draw();
        let empty = Server::new(reference(seed, planted), planted);
        Self {
            state: empty,
            saved: None,
            memory: chance.pick(&[Memory::None, Memory::None, Memory::Old, Memory::Synced]),
            clock,
            run: 1,
            started: StoreTime::default(),
            untouched: true,
            up: true,
            still_until: 0,
            quarantine,
            planted,
            seed,
        }
    }

    pub(super) fn now(&self, at: u64) -> StoreTime {
        self.clock.store_time(at)
    }

    fn facts(&self) -> Facts {
        let synced = self.memory == Memory::Synced;
        Facts { run: self.run, started: self.started, untouched: self.untouched, synced }
    }

    pub(super) fn vote(&mut self, at: u64, ballot: &Ballot) -> Result<Vote, Error> {
        self.state.vote(self.clock.store_time(at), self.facts(), self.quarantine, ballot)
    }

    pub(super) fn uphold(&mut self, at: u64, leases: &[Renew]) -> Result<Upheld, Error> {
        self.state.uphold(self.clock.store_time(at), self.facts(), self.quarantine, leases)
    }

    pub(super) fn release(&mut self, at: u64, release: &Release) -> Released {
        self.state.store.withdraw(self.clock.store_time(at), release)
    }

    /// Whether it has the lock for this owner.
    pub(super) fn holds(&self, at: u64, name: &Name, owner: &StoreOwner) -> bool {
        let found = self.state.store.inspect(self.clock.store_time(at), name);
        found.holders.iter().any(|holder| holder.owner == *owner)
    }

    /// Whether it has the lock because of this very request.
    pub(super) fn holds_for(&mut self, at: u64, name: &Name, request: RequestId) -> bool {
        let now = self.clock.store_time(at);
        let Some(record) = self.state.store.take(name) else { return false };
        let ours = |row: &leasehold_core::reference::Row| {
            row.expires > now && row.holds.iter().any(|hold| hold.request == request && hold.expires > now)
        };
        let holds = record.rows.iter().any(ours);
        self.state.store.put(name.clone(), record);
        holds
    }

    /// Whether it came back with an old state, in which there may be anything.
    pub(super) fn is_old(&self) -> bool {
        self.memory == Memory::Old && self.run > 2
    }

    pub(super) fn save(&mut self) {
        self.saved = Some(self.state.clone());
    }

    pub(super) fn crash(&mut self) {
        self.up = false;
    }

    pub(super) fn start(&mut self, at: u64) {
        let empty = || Server::new(reference(self.seed, self.planted), self.planted);
        self.state = match self.memory {
            Memory::None => empty(),
            Memory::Old => self.saved.clone().unwrap_or_else(empty),
            Memory::Synced => self.state.clone(),
        };
        self.up = true;
        self.run += 1;
        self.started = self.clock.store_time(at);
        self.untouched = true;
    }

    pub(super) fn empty(&mut self) {
        self.state = Server::new(reference(self.seed, self.planted), self.planted);
        self.untouched = false;
    }
}

fn reference(seed: u64, planted: Planted) -> Reference {
    let mut reference = Reference::new(seed, Duration::from_secs(3_600));
    reference.plant(planted);
    reference
}
