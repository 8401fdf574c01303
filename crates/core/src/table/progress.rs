//! What comes next for a name: the last part of every step.
//!
//! Inputs and answers change entries and touch their names. Here each name that was touched is looked at once more: the first in line asks,
//! waits or withdraws, the timer is set, and an entry that nobody needs is forgotten. Nothing that is called from here calls back.

use super::Table;
use super::types::{Output, Outputs};
use crate::name::{Name, Names};
use crate::time::Moment;

impl Table {
    /// Decides what comes next for every name that was touched.
    pub(super) fn advance(&mut self, now: Moment, out: &mut Outputs) {
        while let Some(name) = self.agenda.next_name() {
            self.settle(now, &name, out);
        }
    }

    /// Nobody holds the name here, and nothing is going on with the store: the first in line asks, unless something stands against it.
    fn start_next(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get(name) else { return };
        let Some((id, ticket)) = entry.wait().asker() else { return self.withdraw(now, name, out) };
        let yields = entry.wait().yield_until > now && entry.wait().pending.is_none() && !ticket.want.once;
        match ticket.want.names.clone() {
            Names::One(_) if yields => self.await_turn(now, name, None, out),
            Names::One(_) => self.send_acquire(now, name, out),
            Names::Many(names) => {
                if self.can_group_ask(now, id, name, &names, out) {
                    self.send_acquire(now, name, out);
                }
            }
        }
    }

    /// Decides what comes next for a name and sets its timer, or lets the name go when nothing is left of it.
    fn settle(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(mut entry) = self.entries.get_mut(name) else { return };
        if entry.is_undecided() {
            self.start_next(now, name, out);
            let Some(decided) = self.entries.get_mut(name) else { return };
            entry = decided;
        }
        if entry.is_idle() && entry.wait().pending.is_none() && entry.wait().yield_until <= now {
            self.timers.reset(name, entry.timer.0, Moment::NEVER);
            if entry.wait().watched || entry.wait().enlisted {
                out.push(Output::Unwatch(name.clone()));
            }
            self.entries.remove(name);
            super::shrink(&mut self.entries);
            return;
        }
        entry.tidy(now);
        let due = entry.due();
        if due != entry.timer.0 {
            self.timers.reset(name, entry.timer.0, due);
            entry.timer.0 = due;
        }
    }
}
