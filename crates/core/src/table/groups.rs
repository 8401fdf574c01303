//! Several names together, all or none: while a group waits for one of them it has no hold and no place on any other.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Table;
use super::entry::{Entry, State};
use super::types::{AcquireRequest, Output, Outputs, TaskEffect, TicketId};
use crate::error::{Error, ErrorKind};
use crate::name::{Name, Names};
use crate::port::Busy;
use crate::time::Moment;

impl Table {
    pub(super) fn acquire_many(&mut self, now: Moment, id: TicketId, request: AcquireRequest, out: &mut Outputs) {
        let Names::Many(names) = request.names.clone() else { return };
        let holds_one = |name: &&Name| {
            let held = self.entries.get(*name).and_then(Entry::held);
            held.is_some_and(|held| held.holder == request.owner && now < held.deadline)
        };
        if let Some(name) = names.iter().find(holds_one) {
            let what = "this owner already holds one of the names; release it first, or take it alone to re-enter";
            let error = Error::new(ErrorKind::AlreadyHeld, "acquire", what).on_lock(name);
            return out.push(Output::To(id, TaskEffect::Failed(error)));
        }
        let home = names.iter().find(|name| !self.is_free_here(name, id)).unwrap_or(&names[0]).clone();
        self.groups.insert(id, home.clone());
        self.enqueue(id, &home, request, out);
        self.answer_tries(now, &home, out);
        self.group_tries(now, id, out);
    }

    /// A group that asks only once and waits behind others is answered now, like a task that wants that name alone.
    fn group_tries(&mut self, now: Moment, id: TicketId, out: &mut Outputs) {
        let Some(home) = self.groups.get(&id).cloned() else { return };
        let in_line = |table: &Self| table.entries.get(&home).is_some_and(|entry| entry.wait().queue.contains(id));
        // If nothing is going on, the first in line asks at the end of this step.
        let once = |entry: &Entry| {
            let is_busy = !matches!(entry.state, State::Idle);
            is_busy && entry.wait().queue.get(id).is_some_and(|ticket| ticket.request.once)
        };
        if self.entries.get(&home).is_some_and(once) {
            self.try_among_others(now, id, &home, out);
            if !in_line(self) {
                self.groups.remove(&id);
            }
        }
    }

    /// Nobody here holds it, asks for it or came for it before. A task that is about to ask again in this step may have a pending
    /// acquire: what that may have been granted is not forgotten.
    fn is_free_here(&self, name: &Name, id: TicketId) -> bool {
        self.entries.get(name).is_none_or(|entry| match entry.state {
            State::Idle => {
                let wait = entry.wait();
                wait.pending.is_none() && wait.queue.head().is_none_or(|(head, _)| id < head)
            }
            State::Reserved(group) => group == id,
            _ => false,
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
            let request = entry.wait().queue.get(id).map(|ticket| &ticket.request);
            entry.wait().pending.as_ref().zip(request).is_none_or(|(pending, request)| pending.fits(request))
        };
        if !self.entries.get(home).is_some_and(fits) {
            self.withdraw(now, home, out);
            return false;
        }
        let in_use = names.iter().find(|name| *name != home && !self.is_free_here(name, id)).cloned();
        if let Some(other) = in_use {
            let asking = |entry: &Entry| matches!(entry.state, State::Acquiring | State::Reserved(_));
            let soon_free = self.entries.get(&other).is_some_and(asking);
            let Some(entry) = self.entries.get_mut(home) else { return false };
            // If the store has it on the list of waiters here, it stays while another merely asks there: else two groups would drive each
            // other from queue to queue, asking all the time.
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
            entry.state = State::Reserved(id);
            self.agenda.touch(name);
        }
        true
    }

    /// Whether others go first at one of the names: then the group waits at home, like a task that wants that name alone.
    fn group_yields(&mut self, now: Moment, home: &Name, names: &Arc<[Name]>, out: &mut Outputs) -> bool {
        let until = names.iter().filter_map(|name| self.entries.get(name)).map(|entry| entry.wait().yield_until).max();
        let until = until.unwrap_or_default();
        let Some(entry) = self.entries.get_mut(home) else { return false };
        let once = entry.wait().queue.head().is_some_and(|(_, ticket)| ticket.request.once);
        if until <= now || once || entry.wait().pending.is_some() {
            return false;
        }
        entry.wait_mut().yield_until = until;
        self.await_turn(now, home, None, out);
        true
    }

    /// Leaves one queue for another. If it becomes the first in line there, it sleeps in place of the one that was first.
    fn move_to(&mut self, id: TicketId, from: &Name, to: &Name, out: &mut Outputs) {
        let Some(ticket) = self.entries.get_mut(from).and_then(|entry| entry.wait_mut().queue.remove(id)) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(from) {
            entry.state = State::Idle;
        }
        self.groups.insert(id, to.clone());
        let entry = self.entries.entry(to.clone()).or_default();
        entry.wait_mut().queue.insert(id, ticket);
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
        let (id, names, is_unsettled) = (pending.asker, pending.call.names.clone(), pending.unsettled_until.is_some());
        let Some(ticket) = entry.wait().queue.get(id) else { return self.group_gone(now, home, out) };
        let once = ticket.request.once;
        // An earlier sending may have been granted, and one of its names taken away since: the others are given back first.
        if is_unsettled && !once {
            return self.group_gone(now, home, out);
        }
        if let (true, Some(busy)) = (once, &busy) {
            entry.wait_mut().queue.remove(id);
            self.groups.remove(&id);
            out.push(Output::To(id, TaskEffect::Busy(Box::new(busy.clone()))));
            return self.group_gone(now, home, out);
        }
        entry.wait_mut().pending = None;
        entry.state = State::Idle;
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
        if entry.is_reserved_for(id) {
            entry.state = State::Idle;
        }
        let first = entry.wait().queue.head().is_some_and(|(head, _)| head == id);
        if matches!(entry.state, State::Idle) && first {
            self.await_turn(now, name, free_in, out);
        }
        self.agenda.touch(name);
    }

    /// Gives the other names of a group back to the tasks that queue for them: all are free before any task moves.
    pub(super) fn unreserve(&mut self, id: TicketId, names: &Names) {
        let mut freed: SmallVec<[&Name; 4]> = SmallVec::new();
        for name in names.as_slice() {
            if let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.is_reserved_for(id)) {
                entry.state = State::Idle;
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
        match entry.state {
            State::Acquiring if asking => {}
            _ if asking => self.group_gone(now, home, out),
            _ => self.next_asker(home, true, out),
        }
        self.agenda.touch(home);
    }

    /// Nobody wants the group any more: each of its names is let go, after releasing what it may have been granted.
    pub(super) fn group_gone(&mut self, now: Moment, home: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(home) else { return };
        let Some(pending) = entry.wait_mut().pending.take() else { return };
        entry.state = State::Idle;
        if pending.unsettled_until.is_none() {
            self.unreserve(pending.asker, &pending.call.names);
            return self.agenda.touch(home);
        }
        for name in pending.call.names.as_slice() {
            let entry = self.entries.entry(name.clone()).or_default();
            if name == home || entry.is_reserved_for(pending.asker) {
                let mut single = pending.clone();
                single.call.names = Names::One(name.clone());
                entry.wait_mut().pending = Some(single);
                self.withdraw(now, name, out);
            }
        }
    }
}
