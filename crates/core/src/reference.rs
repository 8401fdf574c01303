//! The reference store: the meaning of correct. `apply(now, request)` decides, and nothing else.
//!
//! The memory store wraps it, the simulation runs it, and conformance compares other stores with it. It reads no clock: `now` is
//! the store's clock as the caller passes it in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use smallvec::{SmallVec, smallvec};

use crate::error::{Error, ErrorKind};
use crate::fence::{Block, Fence, Memory, Reservation};
use crate::lease::Lease;
use crate::name::Name;
use crate::owner::{ClientId, RequestId, StoreOwner};
use crate::port::{
    About, Acquire, Acquired, Break, BreakOptions, BreakRefusal, Broken, Busy, Cooldown, Granted, Holder, Inspected,
    Mode, Notification, Release, ReleaseScope, Released, Renew, Renewed,
};
use crate::time::StoreTime;

/// How long a waiting client stays on the list without asking again, unless the store says otherwise.
const ENLISTED_FOR: Duration = Duration::from_secs(3);
/// How many given-back holds a row remembers, for releases that are sent again.
const GIVEN_MAX: usize = 64;
/// Below this many records nothing is swept.
const SWEEP_MIN: usize = 128;
/// How long the record of a name's last fence outlives its lock, where the clock may go back.
pub const FENCES_KEPT_FOR: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// Waiting clients to notify that a name may be free.
pub type Hints = SmallVec<[(ClientId, Name); 1]>;

/// Lock state and the rules that change it.
#[derive(Clone, Debug)]
pub struct Reference {
    records: HashMap<Name, Record, FixedState>,
    /// Names that were freed, with the time when their record may be forgotten.
    idle: VecDeque<(StoreTime, Name)>,
    fences_kept_for: Duration,
    memory: Memory,
    enlisted_for: Duration,
    /// From this many records on, records that are no longer needed are swept.
    sweep_at: usize,
}

/// The record of a name. A store that keeps rows elsewhere loads one, lets the rules here change it, and saves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The largest fence ever given out for this name.
    pub last: Fence,
    /// One row a holder.
    pub rows: SmallVec<[Row; 1]>,
    /// Nobody may come before this.
    pub cooldown_until: StoreTime,
    /// The last holder, while the name lingers.
    pub left_by: Option<Box<LeftBy>>,
    /// Clients that wait, in the order they came.
    pub waiters: VecDeque<Waiter>,
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The owner.
    pub owner: StoreOwner,
    /// The fences of the grant.
    pub block: Block,
    /// Whether they were taken. A server of a quorum gives the name to a ballot, and not its fences, where those do not grow.
    pub fenced: bool,
    /// Holds that are not given back; for a private owner just one.
    pub holds: SmallVec<[Hold; 1]>,
    /// Holds given back, so that a release sent again counts once.
    pub given: VecDeque<RequestId>,
    /// The end of the hold that lasts longest.
    pub expires: StoreTime,
    /// The lease that was last asked for.
    pub lease: Duration,
    /// When it was granted.
    pub since: StoreTime,
    /// Its right was taken away; it ends with its lease.
    pub broken: bool,
    /// Every hold of it was taken to be kept by its process; see [`Acquire::kept`].
    pub kept: bool,
    /// Its host, process and label, for people.
    pub about: Arc<About>,
}

/// The last holder of a name that lingers: for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBy {
    /// The owner.
    pub owner: StoreOwner,
    /// The fence of the grant.
    pub fence: Fence,
    /// The lease that was last asked for.
    pub lease: Duration,
    /// When it was granted.
    pub since: StoreTime,
    /// Its host, process and label, for people.
    pub about: Arc<About>,
}

/// One hold, with an end of its own: a process that died does not live on in others of the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The request that took it.
    pub request: RequestId,
    /// Its end.
    pub expires: StoreTime,
}

/// What a request finds at one of its names.
enum Found {
    /// Free, or held by the owner of the request: with these fences.
    Grantable(Block),
    /// Held by another.
    Busy(Box<Busy>),
}

/// One client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The client.
    pub client: ClientId,
    /// When it is forgotten if it does not ask again.
    pub until: StoreTime,
}

impl Reference {
    /// An empty store that remembers the fences of free names for `fences_kept_for`. Where its clock can never go back, zero is
    /// enough: the clock alone keeps fences growing.
    pub fn new(seed: u64, fences_kept_for: Duration) -> Self {
        Self {
            records: HashMap::with_hasher(FixedState::with_seed(seed)),
            idle: VecDeque::new(),
            fences_kept_for,
            memory: Memory::Lasting,
            enlisted_for: ENLISTED_FOR,
            sweep_at: SWEEP_MIN,
        }
    }

    /// As a store that can forget what it granted: see [`Memory::Fallible`].
    #[must_use]
    pub fn fallible(mut self) -> Self {
        self.memory = Memory::Fallible;
        self
    }

    /// A waiting client stays on the list for so long without asking again. A store that finds out by itself that a client is gone can
    /// keep it for longer, and write less often that it is still there.
    #[must_use]
    pub fn enlisting_for(mut self, span: Duration) -> Self {
        self.enlisted_for = span;
        self
    }

    /// Takes names, all or none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unfit`] for a mode that is not kept here, and for a name whose last fence is more than 8 days ahead of the clock;
    /// [`ErrorKind::AlreadyHeld`] when several names are asked for and the
    /// owner holds some of them already. One that is shared and holds them all re-enters them all.
    pub fn acquire(&mut self, now: StoreTime, request: &Acquire) -> Result<Acquired, Error> {
        if request.mode != Mode::Exclusive {
            let what = "this store keeps exclusive locks only";
            return Err(Error::new(ErrorKind::Unfit, "acquire", what));
        }
        // Late, but granted before: the same answer again, for this copy of the sending may be the only one that is answered.
        if now > request.not_after && !self.has(now, request) {
            return Ok(Acquired::TooLate);
        }
        self.forget(now);
        if self.records.len() >= self.sweep_at {
            self.sweep(now);
        }
        let names = request.names.as_slice();
        let whole = names.len() == 1 || self.holds_all(now, request);
        let mut blocks: SmallVec<[Block; 1]> = SmallVec::new();
        for name in names {
            match self.find(now, name, request, whole)? {
                Found::Grantable(block) => blocks.push(block),
                Found::Busy(busy) => {
                    if request.enlist {
                        self.enlist(now, name, request.request.client);
                    }
                    return Ok(Acquired::Busy(busy));
                }
            }
        }
        let grants = names.iter().zip(blocks).map(|(name, block)| {
            let record = self.records.entry(name.clone()).or_default();
            record.grant(now, request, block)
        });
        Ok(Acquired::Granted(grants.collect()))
    }

    /// Whether this very request holds all its names.
    fn has(&self, now: StoreTime, request: &Acquire) -> bool {
        let holds = |row: &Row| !row.broken && row.hold(request.request).is_some_and(|hold| hold.expires > now);
        let mut names = request.names.as_slice().iter();
        names.all(|name| self.records.get(name).is_some_and(|record| record.rows.iter().any(holds)))
    }

    /// Whether a shared owner holds every name already, by any requests.
    fn holds_all(&self, now: StoreTime, request: &Acquire) -> bool {
        let ours = |row: &Row| row.expires > now && row.owner == request.owner && !row.broken;
        let held = |name| self.records.get(name).is_some_and(|record| record.rows.iter().any(ours));
        matches!(request.owner, StoreOwner::Shared(_)) && request.names.as_slice().iter().all(held)
    }

    /// What a request finds at one of its names. `whole`: its owner holds all the other names as well.
    fn find(&self, now: StoreTime, name: &Name, request: &Acquire, whole: bool) -> Result<Found, Error> {
        let record = self.records.get(name);
        let row = record.and_then(|record| record.rows.iter().find(|row| row.expires > now));
        let Some(record) = record.filter(|record| row.is_some() || record.cooldown_until > now) else {
            let last = record.map_or(Fence::NONE, |record| record.last);
            let &Acquire { seen, clock: believed, .. } = request;
            let block = Reservation { memory: self.memory, last, seen, now, believed }.reserve(request.block);
            return block.map(Found::Grantable).ok_or_else(|| unfit_fence(last.max(seen)).on_lock(name));
        };
        if let Some(row) = row
            && row.owner == request.owner
            && !row.broken
        {
            let new = row.hold(request.request).is_none_or(|hold| hold.expires <= now);
            if new && !whole {
                let what = "this owner already holds one of the names; release it first, or take it alone to re-enter";
                return Err(Error::new(ErrorKind::AlreadyHeld, "acquire", what).on_lock(name));
            }
            return Ok(Found::Grantable(row.block));
        }
        Ok(Found::Busy(Box::new(record.busy(now, name, row))))
    }

    fn enlist(&mut self, now: StoreTime, name: &Name, client: ClientId) {
        let record = self.records.entry(name.clone()).or_default();
        record.enlist(now + self.enlisted_for, client);
    }

    /// Renews leases: one result each, in order. Never makes one again.
    pub fn renew(&mut self, now: StoreTime, leases: &[Renew]) -> Vec<Renewed> {
        leases.iter().map(|renew| self.renew_one(now, renew)).collect()
    }

    fn renew_one(&mut self, now: StoreTime, renew: &Renew) -> Renewed {
        let Some(row) = self.row(now, &renew.lease) else { return Renewed::Lost };
        let meant = |hold: &Hold| renew.hold.is_none_or(|id| id == hold.request) && hold.expires > now;
        if row.broken {
            // The holds of others tell nothing of this one.
            return if row.holds.iter().any(meant) { Renewed::Broken } else { Renewed::Lost };
        }
        let mut end = None;
        for hold in row.holds.iter_mut().filter(|hold| meant(hold)) {
            hold.expires = hold.expires.max(now + renew.term);
            end = end.max(Some(hold.expires));
        }
        let Some(end) = end else { return Renewed::Lost };
        row.lease = renew.term;
        row.kept &= renew.kept;
        row.look_again();
        Renewed::Kept { left: end.since(now) }
    }

    fn row(&mut self, now: StoreTime, lease: &Lease) -> Option<&mut Row> {
        let rows = &mut self.records.get_mut(&lease.name)?.rows;
        rows.iter_mut().find(|row| row.expires > now && row.owner == lease.owner && row.block.first == lease.fence)
    }

    /// Gives a hold back, and says which waiting client to notify.
    pub fn release(&mut self, now: StoreTime, request: &Release) -> (Released, Hints) {
        let nothing = |released| (released, Hints::new());
        let Some(record) = self.records.get_mut(&request.name) else { return nothing(Released::NotHeld) };
        let Some(at) = record.rows.iter().position(|row| row.is_of(now, request)) else {
            return nothing(Released::NotHeld);
        };
        if let Some(left) = record.rows[at].give_back(now, request) {
            if left != Released::NotHeld {
                record.cooldown(now, request.cooldown, at);
            }
            return nothing(left);
        }
        record.cooldown(now, request.cooldown, at);
        let row = record.rows.remove(at);
        let nobody_came_after = row.fenced && record.last == row.block.last();
        if let (true, Some(used)) = (nobody_came_after, request.last_used) {
            record.last = used.clamp(row.block.first, row.block.last());
        }
        record.waiters.retain(|waiter| waiter.client != request.client && waiter.until > now);
        let waiters = u32::try_from(record.waiters.len()).unwrap_or(u32::MAX);
        let hints = if request.cooldown.is_zero() { record.hints(&request.name) } else { Hints::new() };
        if request.rejoin {
            record.enlist(now + self.enlisted_for, request.client);
        }
        self.retire(now, &request.name);
        (Released::Released { waiters: Some(waiters) }, hints)
    }

    /// Takes a client off a name's list of waiters. If it was the head of the list and the name is free, it may have been notified
    /// and not have come: then the next one is notified.
    pub fn leave(&mut self, now: StoreTime, client: ClientId, name: &Name) -> Hints {
        let Some(record) = self.records.get_mut(name) else { return Hints::new() };
        let was_head = record.waiters.front().is_some_and(|waiter| waiter.client == client);
        record.waiters.retain(|waiter| waiter.client != client && waiter.until > now);
        let hints = if was_head && record.free_at() <= now { record.hints(name) } else { Hints::new() };
        self.retire(now, name);
        hints
    }

    /// The holders of a name.
    pub fn inspect(&self, now: StoreTime, name: &Name) -> Inspected {
        match self.records.get(name) {
            Some(record) => record.inspect(now, name),
            None => Inspected { name: name.clone(), holders: Vec::new(), cooldown: None, waiters: Some(0) },
        }
    }

    /// Held and lingering names that begin with `prefix`, in order, after `after`, at most `limit`.
    pub fn list(&self, now: StoreTime, prefix: &str, after: Option<&Name>, limit: usize) -> Vec<Inspected> {
        let wanted = |name: &&Name| name.as_str().starts_with(prefix) && after.is_none_or(|after| *name > after);
        let mut names: Vec<&Name> = self
            .records
            .iter()
            .filter(|(_, record)| record.free_at() > now)
            .map(|(name, _)| name)
            .filter(wanted)
            .collect();
        names.sort();
        names.truncate(limit);
        names.into_iter().map(|name| self.inspect(now, name)).collect()
    }

    /// Takes a lock away from its holder; answers who it was, and which clients to notify. The fence count is untouched, unless it is to be
    /// reset. With a fence given, nothing is changed unless that fence holds the lock: a name that is free or lingers is left alone.
    pub fn break_lock(&mut self, now: StoreTime, name: &Name, options: BreakOptions) -> (Broken, Hints) {
        let was = self.inspect(now, name);
        if let Some(fence) = options.fence {
            let is_free = was.holders.is_empty() && was.cooldown.is_none();
            let is_held_under_it =
                !was.holders.is_empty() && was.holders.iter().all(|holder| holder.fence == Some(fence));
            if !is_held_under_it {
                let refused = (!is_free).then_some(BreakRefusal::OtherFence);
                return (Broken { was, refused }, Hints::new());
            }
        }
        let mut hints = Hints::new();
        if let Some(record) = self.records.get_mut(name) {
            if options.reset_fence {
                record.last = Fence::NONE;
            }
            match options.how {
                Break::AtLeaseEnd => record.rows.iter_mut().for_each(|row| row.broken = true),
                Break::Now => {
                    record.rows.clear();
                    record.cooldown_until = StoreTime::default();
                    record.left_by = None;
                    record.waiters.retain(|waiter| waiter.until > now);
                    hints = record.hints(name);
                }
            }
            self.retire(now, name);
        }
        (Broken { was, refused: None }, hints)
    }

    /// Inserts the record of a name.
    pub fn put(&mut self, name: Name, record: Record) {
        self.records.insert(name, record);
    }

    /// Removes the record of a name.
    pub fn take(&mut self, name: &Name) -> Option<Record> {
        self.records.remove(name)
    }

    /// How many names have a record: held, waited for, or remembered for their fence.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no name has a record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Forgets a free name, at once where its fences cannot be given again, else when the clock has passed them.
    fn retire(&mut self, now: StoreTime, name: &Name) {
        let Some(record) = self.records.get(name) else { return };
        if record.is_idle(now) && self.fences_kept_for.is_zero() && record.last < Fence::at(now) {
            self.records.remove(name);
            self.shrink();
        } else if record.rows.is_empty() {
            let keep = self.fences_kept_for.max(Duration::from_millis(1));
            self.idle.push_back((now.max(record.cooldown_until) + keep, name.clone()));
        }
    }

    fn forget(&mut self, now: StoreTime) {
        while self.idle.front().is_some_and(|(when, _)| *when <= now) {
            let Some((_, name)) = self.idle.pop_front() else { return };
            if self.records.get(&name).is_some_and(|record| record.is_idle(now) && record.last < Fence::at(now)) {
                self.records.remove(&name);
                self.shrink();
            }
        }
    }

    /// Forgets names whose lease ran out and was never released. Done whenever the records have doubled, so it costs a grant nothing
    /// that grows.
    pub fn sweep(&mut self, now: StoreTime) {
        let kept = self.fences_kept_for;
        self.records
            .retain(|_, record| !record.is_idle(now) || record.free_at() + kept > now || record.last >= Fence::at(now));
        self.shrink();
        self.sweep_at = (self.records.len() * 2).max(SWEEP_MIN);
    }

    fn shrink(&mut self) {
        if self.records.capacity() > 1024 && self.records.len() < self.records.capacity() / 8 {
            self.records.shrink_to(self.records.len() * 2);
        }
    }
}

impl Record {
    /// Ends the kept holds of clients that are certain to be gone; says whether there were any.
    pub fn bury(&mut self, mut gone: impl FnMut(ClientId) -> bool) -> bool {
        let mut any = false;
        for row in self.rows.iter_mut().filter(|row| row.kept) {
            row.holds.retain(|hold| {
                let gone = gone(hold.request.client);
                any |= gone;
                !gone
            });
            row.look_again();
        }
        self.rows.retain(|row| !row.holds.is_empty());
        any
    }

    /// Grants the name with the fences of `block` where it is free, else re-enters what its owner holds.
    fn grant(&mut self, now: StoreTime, request: &Acquire, block: Block) -> Granted {
        self.waiters.retain(|waiter| waiter.client != request.request.client && waiter.until > now);
        if let Some(row) = self.rows.iter_mut().find(|row| row.expires > now && row.owner == request.owner) {
            return row.enter(now, request);
        }
        self.last = block.last();
        self.left_by = None;
        self.rows.clear();
        self.rows.push(Row::taken(now, request, block));
        Granted { block, holds: 1, left: request.lease }
    }

    fn busy(&self, now: StoreTime, name: &Name, row: Option<&Row>) -> Busy {
        Busy {
            name: name.clone(),
            holder: row.map(|row| row.holder(now)),
            free_in: Some(self.free_at().since(now)),
            notification: Notification::default(),
        }
    }

    /// Keeps others out for so long, also when the lock is free before. It is the row `at` that wants so.
    fn cooldown(&mut self, now: StoreTime, span: Duration, at: usize) {
        if !span.is_zero() {
            self.left_by = Some(Box::new(LeftBy::of(&self.rows[at])));
            self.cooldown_until = self.cooldown_until.max(now + span);
        }
    }

    fn enlist(&mut self, until: StoreTime, client: ClientId) {
        match self.waiters.iter_mut().find(|waiter| waiter.client == client) {
            Some(waiter) => waiter.until = until,
            None => self.waiters.push_back(Waiter { client, until }),
        }
    }

    /// Only the first waiting client is notified.
    fn hints(&self, name: &Name) -> Hints {
        self.waiters.iter().take(1).map(|waiter| (waiter.client, name.clone())).collect()
    }

    fn free_at(&self) -> StoreTime {
        self.rows.iter().map(|row| row.expires).max().unwrap_or_default().max(self.cooldown_until)
    }

    fn is_idle(&self, now: StoreTime) -> bool {
        self.free_at() <= now && self.waiters.iter().all(|waiter| waiter.until <= now)
    }

    /// The holders of the name.
    pub fn inspect(&self, now: StoreTime, name: &Name) -> Inspected {
        let holders: Vec<_> = self.rows.iter().filter(|row| row.expires > now).map(|row| row.holder(now)).collect();
        let cooldown = (holders.is_empty() && self.cooldown_until > now).then(|| Cooldown {
            left: self.cooldown_until.since(now),
            last: self.left_by.as_ref().map(|left_by| left_by.holder()),
        });
        let waiters = self.waiters.iter().filter(|waiter| waiter.until > now).count();
        Inspected { name: name.clone(), holders, cooldown, waiters: Some(u32::try_from(waiters).unwrap_or(u32::MAX)) }
    }
}

impl LeftBy {
    fn of(row: &Row) -> Self {
        let Row { owner, block, lease, since, about, .. } = row;
        Self { owner: owner.clone(), fence: block.first, lease: *lease, since: *since, about: about.clone() }
    }

    fn holder(&self) -> Holder {
        Holder {
            owner: self.owner.clone(),
            fence: Some(self.fence),
            holds: 0,
            left: Some(Duration::ZERO),
            lease: Some(self.lease),
            since: Some(self.since),
            broken: false,
            about: self.about.clone(),
        }
    }
}

impl Row {
    /// What a request that found the name free takes.
    fn taken(now: StoreTime, request: &Acquire, block: Block) -> Self {
        Self {
            owner: request.owner.clone(),
            block,
            fenced: true,
            holds: smallvec![Hold { request: request.request, expires: now + request.lease }],
            given: VecDeque::new(),
            expires: now + request.lease,
            lease: request.lease,
            since: now,
            broken: false,
            kept: request.kept,
            about: request.about.clone(),
        }
    }

    /// The owner is here already: the same request sent again, or a re-entry of a shared owner.
    fn enter(&mut self, now: StoreTime, request: &Acquire) -> Granted {
        self.holds.retain(|hold| hold.expires > now);
        let again = self.hold(request.request).is_some() || self.given.contains(&request.request);
        if !again && matches!(self.owner, StoreOwner::Shared(_)) {
            self.holds.push(Hold { request: request.request, expires: now + request.lease });
            self.lease = self.lease.max(request.lease);
            self.look_again();
        }
        self.kept &= request.kept;
        let left = self.hold(request.request).map_or(Duration::ZERO, |hold| hold.expires.since(now));
        Granted { block: self.block, holds: self.count(now), left }
    }

    fn hold(&self, request: RequestId) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.request == request)
    }

    /// After a hold came, went or was renewed.
    fn look_again(&mut self) {
        self.expires = self.holds.iter().map(|hold| hold.expires).max().unwrap_or_default();
    }

    fn count(&self, now: StoreTime) -> u32 {
        let held = self.holds.iter().filter(|hold| hold.expires > now).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    fn is_of(&self, now: StoreTime, request: &Release) -> bool {
        let fence = request.fence.is_none_or(|fence| fence == self.block.first);
        self.expires > now && self.owner == request.owner && fence
    }

    /// Takes a hold off; answers at once where the row stays as it is or keeps other holds.
    fn give_back(&mut self, now: StoreTime, request: &Release) -> Option<Released> {
        self.holds.retain(|hold| hold.expires > now);
        let give = request.scope;
        let id = match give {
            ReleaseScope::All => return None,
            ReleaseScope::Hold(id) | ReleaseScope::One(id) => id,
        };
        if self.given.contains(&id) {
            return Some(Released::StillHeld(self.count(now)));
        }
        match give {
            ReleaseScope::Hold(_) => match self.holds.iter().position(|hold| hold.request == id) {
                Some(at) => drop(self.holds.remove(at)),
                None => return Some(Released::NotHeld),
            },
            _ => drop(self.holds.pop()),
        }
        if self.holds.is_empty() {
            return None;
        }
        self.look_again();
        if self.given.len() == GIVEN_MAX {
            self.given.pop_front();
        }
        self.given.push_back(id);
        Some(Released::StillHeld(self.count(now)))
    }

    fn holder(&self, now: StoreTime) -> Holder {
        Holder {
            owner: self.owner.clone(),
            fence: Some(self.block.first),
            holds: self.count(now),
            left: Some(self.expires.since(now)),
            lease: Some(self.lease),
            since: Some(self.since),
            broken: self.broken,
            about: self.about.clone(),
        }
    }
}

/// The fences of a name were not counted up to where they are.
fn unfit_fence(last: Fence) -> Error {
    let what = format!("the last fence of this lock, {last}, is more than 8 days ahead of the store's clock");
    Error::new(ErrorKind::Unfit, "acquire", what).with_hint(RESET_FENCE)
}

/// What to do about a fence that no clock has counted.
pub const RESET_FENCE: &str = "break it with `reset_fence` to let its fences begin again from the clock; a resource that has seen a larger \
                               fence refuses those until its own record is reset";

mod voting;

#[cfg(test)]
mod tests;
