//! Tasks that come, wake and go: each wants a lock, re-enters one, or waits in line for its turn.

use super::Table;
use super::entry::{Phase, Ticket};
use super::types::{AcquireRequest, Loss, Output, Outputs, TaskEffect, TicketId};
use crate::name::{Name, Names};
use crate::time::Moment;

impl Table {
    pub(super) fn acquire(&mut self, now: Moment, id: TicketId, want: AcquireRequest, out: &mut Outputs) {
        if self.closed {
            out.push(Output::To(id, TaskEffect::Failed(super::closed_error())));
            return;
        }
        let mut in_use = false;
        if let Names::One(name) = &want.names
            && let Some(entry) = self.entries.get_mut(name)
        {
            in_use = true;
            if entry.must_queue(now, id, &want) {
                // Who waits in a long line copies no name.
                let once = want.once.then(|| name.clone());
                entry.wait_mut().enqueue(id, Ticket { want, patience: None });
                if let Some(name) = once {
                    self.try_among_others(now, id, &name, out);
                }
                return;
            }
        }
        match want.names.clone() {
            Names::One(name) if in_use => self.acquire_one(now, id, &name, want, out),
            Names::One(name) => self.enqueue(id, &name, want, out),
            Names::Many(names) => self.acquire_many(now, id, &names, want, out),
        }
    }

    /// A task starts over. Where it re-enters a lease that is too short for it, it does so with what is left of its patience.
    pub(super) fn acquire_again(&mut self, now: Moment, id: TicketId, want: AcquireRequest, out: &mut Outputs) {
        let before = self.extensions.remove(&id);
        self.acquire(now, id, want, out);
        if let (Some(before), Some(waiting)) = (before, self.extensions.get_mut(&id)) {
            (waiting.patience, waiting.attempts) = (before.patience, before.attempts);
        }
    }

    /// Re-enters, refuses, or queues a task for one name.
    fn acquire_one(&mut self, now: Moment, id: TicketId, name: &Name, want: AcquireRequest, out: &mut Outputs) {
        if let Some(entry) = self.entries.get_mut(name)
            && let Some(held) = entry.live()
        {
            if now >= held.deadline {
                self.lose_all(now, name, Loss::TimeEnded, true, out);
            } else if held.holder == want.owner {
                return self.reenter(now, id, name, want, out);
            } else if want.once {
                return self.refuse_here(now, id, name, out);
            }
        }
        self.enqueue(id, name, want, out);
    }

    /// A task no longer wants a name. What it had under way goes on without it.
    pub(super) fn cancel(&mut self, now: Moment, id: TicketId, name: &Name, out: &mut Outputs) {
        let home = self.groups.remove(&id).unwrap_or_else(|| name.clone());
        self.extensions.remove(&id);
        let Some(entry) = self.entries.get_mut(&home) else { return };
        let slept = entry.is_asker(id);
        let Some(ticket) = entry.wait_mut().dequeue(id) else { return };
        if ticket.want.names.as_slice().len() > 1 {
            return self.group_left(now, id, &home, out);
        }
        self.next_asker(&home, slept, out);
        self.agenda.touch(&home);
    }

    /// The first in line slept long enough.
    pub(super) fn woke(&mut self, now: Moment, id: TicketId, name: &Name, out: &mut Outputs) {
        if self.extensions.get(&id).is_some_and(|waiting| waiting.asleep.is_some()) {
            return self.reenter_again(id);
        }
        let home = self.groups.get(&id).cloned().unwrap_or_else(|| name.clone());
        let Some(entry) = self.entries.get_mut(&home) else { return };
        let Phase::Sleeping(until) = entry.wait().phase else { return };
        if entry.wait().head().is_none_or(|(head, _)| head != id) {
            return;
        }
        if now < until {
            return out.push(Output::To(id, TaskEffect::Sleep(until)));
        }
        self.retry_acquire(&home);
    }
}
