//! The reference store as one server of a quorum.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::smallvec;

use super::{Hints, Hold, Record, Reference, Row};
use crate::fence::Fence;
use crate::name::Name;
use crate::planted::Bug;
use crate::port::{Acquire, Busy, News, Release, Released};
use crate::quorum::clocks::is_near;
use crate::quorum::member::{Ballot, Voted};
use crate::time::StoreTime;

impl Reference {
    /// Takes the names of a ballot, all or none, and its fences where all of them are larger than those before.
    ///
    /// `floor`: none is taken that is not above this.
    pub fn vote(&mut self, now: StoreTime, ballot: &Ballot, floor: Fence) -> Voted {
        let request = &ballot.acquire;
        if now > request.not_after && !self.has(now, request) && !self.planted.is(Bug::NotAfterIgnored) {
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
            left = left.min(record.seat(now, ballot));
            if takes {
                record.last = record.last.max(ballot.block.last());
            }
        }
        if takes { Voted::Took { left } } else { Voted::Held { left, last: known.unwrap_or_default() } }
    }

    /// Whoever holds a name that is not of this very request; of a majority's, that is not of the same grant.
    fn occupied(&self, now: StoreTime, name: &Name, ballot: &Ballot) -> Option<Busy> {
        let record = self.records.get(name)?;
        let row = record.rows.iter().find(|row| row.expires > now);
        let free = row.is_none() && record.lingers_until <= now;
        if free || row.is_some_and(|row| row.is_asked_by(ballot)) {
            return None;
        }
        let free_in = Some(record.free_at().since(now));
        Some(Busy { name: name.clone(), holder: row.map(|row| row.holder(now)), free_in, news: News::default() })
    }

    /// Whether the fences of a ballot are taken for a name.
    fn takes(&self, now: StoreTime, name: &Name, ballot: &Ballot, floor: Fence) -> bool {
        let record = self.records.get(name);
        let last = record.map_or(Fence::NONE, |record| record.last);
        let block = ballot.block;
        let written = |record: &Record| record.rows.iter().any(|row| row.is_asked_by(ballot) && row.block == block);
        let same = last == block.last() && record.is_some_and(written);
        let grows = block.first > last.max(floor) && is_near(block.first, now);
        ballot.again || same || grows || self.planted.is(Bug::FenceByMax)
    }

    /// Gives back what a ballot took, and tells nobody.
    pub fn withdraw(&mut self, now: StoreTime, request: &Release) -> Released {
        let (released, _untold): (Released, Hints) = self.release(now, request);
        released
    }
}

impl Record {
    /// The name is of this ballot from now on, if it was not before. Answers how much of its lease is left.
    fn seat(&mut self, now: StoreTime, ballot: &Ballot) -> Duration {
        let request: &Acquire = &ballot.acquire;
        self.waiters.retain(|waiter| waiter.client != request.request.client && waiter.until > now);
        if let Some(row) = self.rows.iter_mut().find(|row| row.expires > now && row.is_asked_by(ballot)) {
            row.block = ballot.block;
            return row.expires.since(now);
        }
        self.left_by = None;
        self.rows.clear();
        self.rows.push(Row::taken(now, request, ballot.block));
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

impl Reference {
    /// A planted bug: makes a lock that was gone, by renewing it.
    pub(crate) fn recreate(&mut self, now: StoreTime, renew: &crate::port::Renew) -> crate::port::Renewed {
        let record = self.records.entry(renew.lease.name.clone()).or_default();
        let ours = |row: &Row| row.owner == renew.lease.owner;
        if record.rows.iter().all(|row| row.expires <= now || ours(row)) {
            let request = renew.hold.expect("a simulation names its hold");
            record.rows.clear();
            record.rows.push(Row {
                owner: renew.lease.owner.clone(),
                block: crate::fence::Block { first: renew.lease.fence, len: 1 },
                holds: smallvec![Hold { request, expires: now + renew.term }],
                given: VecDeque::new(),
                expires: now + renew.term,
                lease: renew.term,
                since: now,
                broken: false,
                kept: renew.kept,
                about: Default::default(),
            });
            return crate::port::Renewed::Kept { left: renew.term };
        }
        crate::port::Renewed::Lost
    }
}
