//! What comes next for a name: the last part of every step.
//!
//! Inputs and answers change entries and touch their names. Here each name that was touched is looked at once more: the first in line
//! asks, waits or withdraws, the timer is set, and an entry that nobody needs is forgotten. Nothing that is called from here calls back.

use super::Table;
use super::entry::State;
use super::types::{Output, Outputs, TaskEffect};
use crate::name::{Name, Names};
use crate::time::Moment;

impl Table {
    /// The end of every step, which began with `before` outputs.
    pub(super) fn finish(&mut self, now: Moment, before: usize, out: &mut Outputs) {
        let now = now + self.jumped;
        while let Some((id, request)) = self.agenda.requests.pop() {
            self.acquire_again(now, id, request, out);
        }
        while let Some(name) = self.agenda.next_name() {
            self.settle(now, &name, out);
        }
        if !self.jumped.is_zero() {
            self.convert_times(&mut out[before..]);
        }
    }

    /// Decides what comes next for a name and sets its timer, or forgets the name if nothing is left of it.
    fn settle(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(mut entry) = self.entries.get_mut(name) else { return };
        if matches!(entry.state, State::Idle) && entry.is_wanted() {
            self.start_next(now, name, out);
            let Some(decided) = self.entries.get_mut(name) else { return };
            entry = decided;
        }
        if matches!(entry.state, State::Idle) && entry.wait.as_ref().is_none_or(|wait| wait.is_unused(now)) {
            if entry.timer != Moment::NEVER {
                self.timers.remove(&(entry.timer, name.clone()));
            }
            if entry.wait().watched || entry.wait().enlisted {
                out.push(Output::Unwatch(name.clone()));
            }
            self.entries.remove(name);
            return super::shrink(&mut self.entries);
        }
        entry.tidy(now);
        let due = entry.due();
        if due != entry.timer {
            let before = std::mem::replace(&mut entry.timer, due);
            if before != Moment::NEVER {
                self.timers.remove(&(before, name.clone()));
            }
            if due != Moment::NEVER {
                self.timers.insert((due, name.clone()));
            }
        }
    }

    /// Nobody holds the name here, and nothing is going on with the store: the first in line asks, unless something stands against it.
    fn start_next(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get(name) else { return };
        let wait = entry.wait();
        let Some((id, ticket)) = wait.asker() else {
            if wait.pending.is_some() {
                self.withdraw(now, name, out);
            }
            return;
        };
        let yields = wait.yield_until > now && wait.pending.is_none() && !ticket.request.once;
        match ticket.request.names.clone() {
            Names::One(_) if yields => self.await_turn(now, name, None, out),
            Names::One(_) => self.send_acquire(now, id, name, out),
            Names::Many(names) => {
                if self.can_group_ask(now, id, name, &names, out) {
                    self.send_acquire(now, id, name, out);
                }
            }
        }
    }

    /// Tasks sleep by the client's clock, which knows nothing of what it missed.
    fn convert_times(&self, outputs: &mut [Output]) {
        for output in outputs {
            match output {
                Output::To(_, TaskEffect::Sleep(until)) => *until = *until - self.jumped,
                Output::To(_, TaskEffect::Call(sending))
                | Output::ForHold(_, sending)
                | Output::Background(sending) => sending.context.missed = self.jumped,
                _ => {}
            }
        }
    }
}
