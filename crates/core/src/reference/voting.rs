//! The reference store as one server of a quorum.

use std::time::Duration;

use super::{Hints, Record, Reference, Row};
use crate::fence::Fence;
use crate::name::Name;
use crate::port::{Acquire, Busy, Release, Released};
use crate::quorum::clocks::is_near;
use crate::quorum::member::{Ballot, Voted};
use crate::time::StoreTime;

impl Reference {
    /// Takes the names of a ballot, all or none, and its fences where all of them are larger than those before.
    ///
    /// `floor`: none is taken that is not above this.
    pub fn vote(&mut self, now: StoreTime, ballot: &Ballot, floor: Fence) -> Voted {
        let request = &ballot.acquire;
        if now > request.not_after && !self.has(now, request) {
            return Voted::TooLate;
        }
        self.forget(now);
        let names = request.names.as_slice();
        for name in names {
            if let Some(busy) = self.occupied(now, name, ballot) {
                if request.enlist {
                    self.enlist(now, name, request.request.client);
                }
                return Voted::Busy(Box::new(busy));
            }
        }
        let takes = names.iter().all(|name| self.takes(now, name, ballot, floor));
        let known = names.iter().filter_map(|name| self.records.get(name)).map(|record| record.last).max();
        let mut left = Duration::MAX;
        for name in names {
            let record = self.records.entry(name.clone()).or_default();
            left = left.min(record.take_ballot(now, ballot, takes));
            if takes {
                record.last = record.last.max(ballot.block.last());
            }
        }
        if takes { Voted::Took { left } } else { Voted::Held { left, last: known.unwrap_or_default() } }
    }

    /// The holder of a name if it is not this very request or, for a ballot of a majority, not the same grant.
    fn occupied(&self, now: StoreTime, name: &Name, ballot: &Ballot) -> Option<Busy> {
        let record = self.records.get(name)?;
        let row = record.rows.iter().find(|row| row.expires > now);
        let free = row.is_none() && record.cooldown_until <= now;
        if free || row.is_some_and(|row| row.is_asked_by(ballot)) {
            return None;
        }
        Some(record.busy(now, name, row))
    }

    /// Whether the fences of a ballot are taken for a name. One that is executed twice is answered as it was the first time, unless
    /// the same request has proposed larger ones since: then it is stale.
    fn takes(&self, now: StoreTime, name: &Name, ballot: &Ballot, floor: Fence) -> bool {
        if ballot.again {
            return true;
        }
        let (record, block) = (self.records.get(name), ballot.block);
        let ours = |row: &&Row| row.expires > now && row.is_asked_by(ballot) && row.block.first >= block.first;
        if let Some(row) = record.and_then(|record| record.rows.iter().find(ours)) {
            return row.fenced && row.block == block;
        }
        let last = record.map_or(Fence::NONE, |record| record.last);
        block.first > last.max(floor) && is_near(block.first, now)
    }

    /// Gives back what a ballot took, and tells nobody.
    pub fn withdraw(&mut self, now: StoreTime, request: &Release) -> Released {
        let (released, _untold): (Released, Hints) = self.release(now, request);
        released
    }
}

impl Record {
    /// The name is of this ballot from now on, if it was not before; its fences are where they are taken. Answers how much of its lease is
    /// left.
    fn take_ballot(&mut self, now: StoreTime, ballot: &Ballot, takes: bool) -> Duration {
        let request: &Acquire = &ballot.acquire;
        self.waiters.retain(|waiter| waiter.client != request.request.client && waiter.until > now);
        if let Some(row) = self.rows.iter_mut().find(|row| row.expires > now && row.is_asked_by(ballot)) {
            if takes || ballot.block.first > row.block.first {
                (row.block, row.fenced) = (ballot.block, takes);
            }
            return row.expires.since(now);
        }
        self.left_by = None;
        self.rows.clear();
        self.rows.push(Row { fenced: takes, ..Row::taken(now, request, ballot.block) });
        request.lease
    }
}

impl Row {
    fn is_asked_by(&self, ballot: &Ballot) -> bool {
        let request = &ballot.acquire;
        let same_grant = ballot.again && self.block.first == ballot.block.first;
        self.owner == request.owner && !self.broken && (self.hold(request.request).is_some() || same_grant)
    }
}
