//! Several names together, all or none: while a group waits for one of them it has no hold and no place on any other.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Table;
use super::entry::{Entry, PendingAcquire, Phase};
use super::types::{AcquireRequest, Output, Outputs, TaskEffect, TicketId};
use crate::error::{Error, ErrorKind};
use crate::name::{Name, Names};
use crate::port::Busy;
use crate::time::Moment;

impl Table {
    pub(super) fn acquire_many(
        &mut self,
        now: Moment,
        id: TicketId,
        names: &Arc<[Name]>,
        want: AcquireRequest,
        out: &mut Outputs,
    ) {
        let holds_one = |name: &&Name| {
            let held = self.entries.get(*name).and_then(|entry| entry.held.as_deref());
            held.is_some_and(|held| held.holder == want.owner && held.releasing.is_none() && now < held.deadline)
        };
        if let Some(name) = names.iter().find(holds_one) {
            let what = "this owner already holds one of the names; release it first, or take it alone to re-enter";
            let error = Error::new(ErrorKind::AlreadyHeld, "acquire", what).on_lock(name);
            return out.push(Output::To(id, TaskEffect::Failed(error)));
        }
        let home = names.iter().find(|name| !self.is_free_here(name, id)).unwrap_or(&names[0]).clone();
        self.groups.insert(id, home.clone());
        self.enqueue(id, &home, want, out);
        self.answer_tries(now, &home, out);
        self.group_tries(now, id, out);
    }

    /// A group that asks just once, and is in line behind others that wait, has its answer now, as one who wants just that name would.
    fn group_tries(&mut self, now: Moment, id: TicketId, out: &mut Outputs) {
        let Some(home) = self.groups.get(&id).cloned() else { return };
        let in_line = |table: &Self| table.entries.get(&home).is_some_and(|entry| entry.wait().queue.contains(id));
        // Where nothing is going on, the first in line asks at the end of this step.
        let once = |entry: &Entry| {
            let is_busy = entry.held.is_some() || !entry.wait().phase.is_idle();
            is_busy && entry.wait().queue.get(id).is_some_and(|ticket| ticket.want.once)
        };
        if self.entries.get(&home).is_some_and(once) {
            self.try_among_others(now, id, &home, out);
            if !in_line(self) {
                self.groups.remove(&id);
            }
        }
    }

    /// Nobody here holds it, asks for it or came for it before.
    fn is_free_here(&self, name: &Name, id: TicketId) -> bool {
        self.entries.get(name).is_none_or(|entry| {
            let unused = entry.held.is_none() && entry.wait().phase.is_idle();
            let reserved = entry.held.is_none() && entry.wait().phase.is_reserved_for(id);
            reserved || unused && entry.wait().head().is_none_or(|(head, _)| id < head)
        })
    }

    /// The group is first in line at `home`: whether it may ask for all. Else it goes to wait where another name is in use.
    pub(super) fn can_group_ask(
        &mut self,
        now: Moment,
        id: TicketId,
        home: &Name,
        names: &Arc<[Name]>,
        out: &mut Outputs,
    ) -> bool {
        let fits = |entry: &Entry| {
            let want = entry.wait().queue.get(id).map(|ticket| &ticket.want);
            entry.wait().pending.as_ref().zip(want).is_none_or(|(pending, want)| pending.fits(want))
        };
        if !self.entries.get(home).is_some_and(fits) {
            self.withdraw(now, home, out);
            return false;
        }
        let in_use = names.iter().find(|name| *name != home && !self.is_free_here(name, id)).cloned();
        if let Some(other) = in_use {
            let asking = |entry: &Entry| {
                matches!(entry.wait().phase, Phase::Acquiring | Phase::Reserved(_)) && entry.held.is_none()
            };
            let soon_free = self.entries.get(&other).is_some_and(asking);
            let Some(entry) = self.entries.get_mut(home) else { return false };
            // Where the store keeps it waiting here, it stays while another merely asks there: two groups would drive each other
            // from queue to queue, asking all the time.
            if entry.wait().pending.is_some() || entry.wait().enlisted && soon_free {
                entry.wait_mut().attempts += 1;
                self.sleep_after_failure(now, home, out);
                return false;
            }
            self.move_to(id, home, &other, out);
            self.agenda.touch(home);
            self.agenda.touch(&other);
            self.answer_tries(now, &other, out);
            self.group_tries(now, id, out);
            return false;
        }
        if self.group_yields(now, home, names, out) {
            return false;
        }
        for name in names.iter().filter(|name| *name != home) {
            let entry = self.entries.entry(name.clone()).or_default();
            entry.wait_mut().phase = Phase::Reserved(id);
            self.agenda.touch(name);
        }
        true
    }

    /// Whether others go first at one of the names: then the group waits at home, as one who wants just that name would.
    fn group_yields(&mut self, now: Moment, home: &Name, names: &Arc<[Name]>, out: &mut Outputs) -> bool {
        let until = names.iter().filter_map(|name| self.entries.get(name)).map(|entry| entry.wait().yield_until).max();
        let until = until.unwrap_or_default();
        let Some(entry) = self.entries.get_mut(home) else { return false };
        let once = entry.wait().head().is_some_and(|(_, ticket)| ticket.want.once);
        if until <= now || once || entry.wait().pending.is_some() {
            return false;
        }
        entry.wait_mut().yield_until = until;
        self.await_turn(now, home, None, out);
        true
    }

    /// Leaves one queue for another. Where it becomes the first in line there, it sleeps in place of the one that was.
    fn move_to(&mut self, id: TicketId, from: &Name, to: &Name, out: &mut Outputs) {
        let Some(ticket) = self.entries.get_mut(from).and_then(|entry| entry.wait_mut().dequeue(id)) else { return };
        if let Some(entry) = self.entries.get_mut(from) {
            entry.wait_mut().phase = Phase::Idle;
        }
        self.groups.insert(id, to.clone());
        let entry = self.entries.entry(to.clone()).or_default();
        entry.wait_mut().enqueue(id, ticket);
        self.sleep_in_place(to, id, out);
        self.agenda.touch(to);
    }

    /// One of the names is held elsewhere (`busy`), or the sending came too late: hold nothing, and wait for that name alone.
    pub(super) fn group_refused(&mut self, now: Moment, home: &Name, busy: Option<Busy>, out: &mut Outputs) {
        if let Some(busy) = &busy {
            self.note_enlisted(std::slice::from_ref(&busy.name));
        }
        let Some(entry) = self.entries.get_mut(home) else { return };
        let Some(pending) = entry.wait().pending.as_ref() else { return };
        let (id, names, is_unsettled) = (pending.asker, pending.names.clone(), pending.unsettled_until.is_some());
        let Some(ticket) = entry.wait().queue.get(id) else { return self.group_gone(now, home, out) };
        let once = ticket.want.once;
        // An earlier sending may have been granted, and one of its names taken away since: the others are given back first.
        if is_unsettled && !once {
            return self.group_gone(now, home, out);
        }
        if let (true, Some(busy)) = (once, &busy) {
            entry.wait_mut().dequeue(id);
            self.groups.remove(&id);
            out.push(Output::To(id, TaskEffect::Busy(Box::new(busy.clone()))));
            return self.group_gone(now, home, out);
        }
        entry.wait_mut().pending = None;
        entry.wait_mut().phase = Phase::Idle;
        match busy {
            Some(busy) => {
                self.refuse_tries(&busy.name, &busy, out);
                let held = if names.as_slice().contains(&busy.name) { busy.name.clone() } else { home.clone() };
                if held != *home {
                    self.move_to(id, home, &held, out);
                }
                if let Some(entry) = self.entries.get_mut(&held) {
                    entry.wait_mut().refused(busy.clone());
                }
                self.wait_at(now, id, &held, busy.free_in, out);
                self.unreserve(id, &names);
            }
            None => self.unreserve(id, &names),
        }
        self.agenda.touch(home);
    }

    /// The store may have put this client on the list of waiters of these names.
    pub(super) fn note_enlisted(&mut self, names: &[Name]) {
        for name in names {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.wait_mut().enlisted = true;
            }
        }
    }

    fn wait_at(
        &mut self,
        now: Moment,
        id: TicketId,
        name: &Name,
        free_in: Option<std::time::Duration>,
        out: &mut Outputs,
    ) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.wait().phase.is_reserved_for(id) {
            entry.wait_mut().phase = Phase::Idle;
        }
        let first = entry.wait().head().is_some_and(|(head, _)| head == id);
        if entry.wait().phase.is_idle() && entry.held.is_none() && first {
            self.await_turn(now, name, free_in, out);
        }
        self.agenda.touch(name);
    }

    /// Gives the other names of a group back to those who queue for them: all are free before anybody moves.
    pub(super) fn unreserve(&mut self, id: TicketId, names: &Names) {
        let mut freed: SmallVec<[&Name; 4]> = SmallVec::new();
        for name in names.as_slice() {
            if let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.wait().phase.is_reserved_for(id)) {
                entry.wait_mut().phase = Phase::Idle;
                freed.push(name);
            }
        }
        for name in freed {
            self.agenda.touch(name);
        }
    }

    /// A group has left the queue of `home`.
    pub(super) fn group_left(&mut self, now: Moment, id: TicketId, home: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(home) else { return };
        let asking = entry.wait().pending.as_ref().is_some_and(|pending| pending.is_group() && pending.asker == id);
        match entry.wait().phase {
            Phase::Acquiring if asking => {}
            _ if asking => self.group_gone(now, home, out),
            _ => self.next_asker(home, true, out),
        }
        self.agenda.touch(home);
    }

    /// Nobody wants the group any more: each of its names is let go, after releasing what it may have been granted.
    pub(super) fn group_gone(&mut self, now: Moment, home: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(home) else { return };
        let Some(pending) = entry.wait_mut().pending.take() else { return };
        entry.wait_mut().phase = Phase::Idle;
        if pending.unsettled_until.is_none() {
            self.unreserve(pending.asker, &pending.names);
            return self.agenda.touch(home);
        }
        for name in pending.names.as_slice() {
            let entry = self.entries.entry(name.clone()).or_default();
            if name == home || entry.wait().phase.is_reserved_for(pending.asker) {
                let (names, owner) = (Names::One(name.clone()), pending.owner.clone());
                entry.wait_mut().pending = Some(PendingAcquire { names, owner, ..pending });
                self.withdraw(now, name, out);
            }
        }
    }
}
