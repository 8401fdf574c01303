//! Tasks that go, and tasks that wake.

use super::Table;
use super::entry::State;
use super::types::{Output, Outputs, TaskEffect, TicketId};
use crate::name::{Name, Names};
use crate::time::Moment;

impl Table {
    /// A task no longer wants a name. What it had under way goes on without it.
    pub(super) fn cancel(&mut self, now: Moment, id: TicketId, name: &Name, out: &mut Outputs) {
        let home = self.groups.remove(&id).unwrap_or_else(|| name.clone());
        self.extensions.remove(&id);
        let Some(entry) = self.entries.get_mut(&home) else { return };
        let slept = entry.is_asker(id);
        let Some(ticket) = entry.wait_mut().queue.remove(id) else { return };
        if matches!(ticket.request.names, Names::Many(_)) {
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
        let State::Sleeping(until) = entry.state else { return };
        if entry.wait().queue.head().is_none_or(|(head, _)| head != id) {
            return;
        }
        if now < until {
            return out.push(Output::To(id, TaskEffect::Sleep(until)));
        }
        self.retry_acquire(&home);
    }
}
