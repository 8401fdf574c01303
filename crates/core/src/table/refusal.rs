//! A call for the first in line brought no lock: the store refused it, it failed, or it came too late.

use smallvec::SmallVec;

use super::Table;
use super::entry::State;
use super::queue::Ticket;
use super::types::{Output, Outputs, TaskEffect, TicketId};
use crate::error::Error;
use crate::name::Name;
use crate::port::Busy;
use crate::time::Moment;

impl Table {
    /// Another holds the name: the first in line waits for its turn.
    pub(super) fn refused(&mut self, now: Moment, name: &Name, busy: Busy, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let wait = entry.wait_mut();
        if wait.pending.as_ref().is_some_and(|pending| pending.is_group()) {
            return self.group_refused(now, name, Some(busy), out);
        }
        wait.turns = 0;
        let hinted = wait.hinted;
        wait.refused(busy.clone());
        self.refuse_tries(name, &busy, out);
        if hinted || self.entries.get(name).is_some_and(|entry| entry.wait().queue.is_empty()) {
            self.retry_acquire(name);
        } else {
            self.await_turn(now, name, busy.free_in, out);
        }
    }

    /// The call came after its `not_after`, so nothing will come of it: the same again, or nothing if nobody wants it.
    pub(super) fn too_late(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.wait().pending.as_ref().is_some_and(|pending| pending.is_group()) {
            self.group_refused(now, name, None, out);
        } else {
            self.retry_acquire(name);
        }
    }

    /// A subscription was confirmed, or failed: either way, ask again.
    pub(super) fn watched(&mut self, now: Moment, name: &Name, failed: Option<Error>, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if !matches!(entry.state, State::Subscribing) {
            return;
        }
        entry.state = State::Idle;
        match failed {
            None => entry.wait_mut().watched = true,
            Some(error) => self.acquire_failed(now, name, &error, out),
        }
        self.agenda.touch(name);
    }

    /// A call for the first in line failed: its task fails too, or tries again after a pause.
    pub(super) fn acquire_failed(&mut self, now: Moment, name: &Name, error: &Error, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let wait = entry.wait_mut();
        wait.attempts += 1;
        let asker = wait.pending.as_ref().map(|pending| pending.asker);
        let asker = asker.or_else(|| wait.queue.head().map(|(id, _)| id));
        if error.is_retryable() {
            wait.begin_patience(now, asker, self.settings.patience);
        }
        let is_final = |(id, ticket): (TicketId, &Ticket)| {
            let is_over = ticket.patience.is_some_and(|over| now >= over);
            let acquire_answered = Some(id) == asker && (!error.is_retryable() || is_over);
            // The tasks behind it would hear of the silence only when their turn comes.
            let behind = wait.unanswered && error.is_retryable() && is_over;
            (acquire_answered || behind || ticket.request.once).then_some(id)
        };
        let failed: SmallVec<[TicketId; 1]> = wait.queue.iter().filter_map(is_final).collect();
        for id in failed {
            wait.queue.remove(id);
            out.push(Output::To(id, TaskEffect::Failed(error.clone())));
            self.groups.remove(&id);
        }
        if wait.is_group_gone() {
            self.group_gone(now, name, out);
        } else if wait.queue.is_empty() {
            self.retry_acquire(name);
        } else {
            self.sleep_after_failure(now, name, out);
        }
    }

    /// The task that was to send a call for its name was dropped first: the next in line takes over. `number`: of the acquire, if it was
    /// one and not a subscription.
    pub(super) fn call_unsent(&mut self, now: Moment, name: &Name, number: Option<u64>, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let wait = entry.wait();
        let is_current = match (&entry.state, number) {
            (State::Subscribing, None) => true,
            (State::Acquiring, Some(number)) => wait.pending.as_ref().is_some_and(|pending| pending.number() == number),
            _ => false,
        };
        if is_current && wait.is_group_gone() {
            self.group_gone(now, name, out);
        } else if is_current {
            self.retry_acquire(name);
        }
    }
}
