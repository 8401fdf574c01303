//! What can be seen of a table. Nothing here changes anything.

use std::sync::Arc;
use std::time::Duration;

use super::Table;
use super::entry::{Entry, State};
use super::held::Held;
use super::types::{HoldId, LossReport};
use crate::name::Name;
use crate::owner::{Owner, RequestId};
use crate::port::{Busy, Notification};
use crate::time::Moment;

impl Table {
    /// When the next [`Input::Tick`](super::Input::Tick) is due.
    pub fn next_timer(&self) -> Option<Moment> {
        self.timers.first().map(|(when, _)| *when - self.jumped)
    }

    /// How long a hold is still valid; none when it is not.
    pub fn time_left(&self, now: Moment, name: &Name, hold: HoldId) -> Option<Duration> {
        self.left_of(now + self.jumped, name, hold)
    }

    /// The same at a moment in the table's time.
    pub(super) fn left_of(&self, now: Moment, name: &Name, hold: HoldId) -> Option<Duration> {
        let held = self.entries.get(name)?.held()?;
        let end = held.holds.iter().find(|h| h.id == hold)?.end.min(held.deadline);
        (now < end).then(|| end.since(now))
    }

    /// Whether a hold is still counted as held; its time may be over before the table has noticed.
    pub fn is_held(&self, name: &Name, hold: HoldId) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.position(hold).is_some())
    }

    /// Whether this client holds a name validly for that owner; none if a lease of it may still be on its way back, so that only the
    /// store knows.
    pub fn holds_for(&self, now: Moment, name: &Name, owner: &Owner) -> Option<bool> {
        let Some(entry) = self.entries.get(name) else { return Some(false) };
        let wait = entry.wait();
        match &entry.state {
            State::Held(held) => Some(held.holder == *owner && now + self.jumped < held.deadline),
            State::Releasing(_) | State::Withdrawing(_) => None,
            _ => (wait.pending.is_none() && wait.releases.is_empty()).then_some(false),
        }
    }

    /// How many holds this client has of a name, seen from one of them.
    pub fn holds(&self, name: &Name, hold: HoldId) -> u32 {
        let held = self.entries.get(name).and_then(Entry::held);
        held.filter(|held| held.holds.iter().any(|h| h.id == hold)).map_or(0, |held| held.holds.len() as u32)
    }

    /// The request under which the store counts what this client holds of a name, seen from one of its holds.
    pub fn request_of(&self, name: &Name, hold: HoldId) -> Option<RequestId> {
        let held = self.entries.get(name)?.held()?;
        let is_there = held.holds.iter().any(|h| h.id == hold);
        is_there.then_some(RequestId { client: self.settings.client, number: held.number })
    }

    /// The holder of a name, here or as the store said last: for a task whose time to wait is over.
    pub fn busy(&self, now: Moment, name: &Name) -> Option<Busy> {
        let now = now + self.jumped;
        let entry = self.entries.get(name)?;
        match entry.held() {
            Some(held) => Some(self.busy_here(now, name, held)),
            None => entry.wait().busy.as_deref().cloned(),
        }
    }

    /// How a hold was lost, if it was and its guard is still there.
    pub fn loss(&self, hold: HoldId) -> Option<&Arc<LossReport>> {
        self.lost_holds.get(&hold).map(|lost| &lost.report)
    }

    /// How long a guard has held its lock, or had when it was lost.
    pub fn held_for(&self, now: Moment, name: &Name, hold: HoldId) -> Duration {
        let held = self.entries.get(name).and_then(Entry::held);
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

    pub(super) fn busy_here(&self, now: Moment, name: &Name, held: &Held) -> Busy {
        let holder = held.describe(self.settings.client, now, &self.settings.clock);
        Busy { name: name.clone(), free_in: holder.left, holder: Some(holder), notification: Notification::default() }
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
        self.extensions.is_empty() && self.entries.values().all(Entry::only_waits)
    }

    /// The names in use, for people and for finding out what was left over.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.entries.keys()
    }

    /// How many guards of lost locks have not been dropped yet, how many groups and re-entries wait, and of how many leases the last
    /// renewal failed.
    pub fn remnants(&self) -> usize {
        self.lost_holds.len() + self.groups.len() + self.extensions.len() + self.failures.len()
    }
}
