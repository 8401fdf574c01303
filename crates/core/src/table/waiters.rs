//! Waiting for one's turn: being refused, subscribing, sleeping, waking, asking again.

use std::time::Duration;

use super::Table;
use super::entry::State;
use super::queue::Ticket;
use super::types::{AcquireRequest, CallKind, Output, Outputs, Request, Sending, TaskEffect, TicketId};
use crate::backoff;
use crate::name::Name;
use crate::options::WaitMode;
use crate::port::{Busy, Notification};
use crate::time::Moment;

/// A lease is checked at most once in this time, however many hints come.
pub(super) const CHECK_PAUSE: Duration = Duration::from_millis(100);

impl Table {
    /// A task waits for its turn.
    pub(super) fn enqueue(&mut self, id: TicketId, name: &Name, request: AcquireRequest, out: &mut Outputs) {
        let entry = self.entries.entry(name.clone()).or_default();
        entry.wait_mut().queue.insert(id, Ticket { request, patience: None });
        self.sleep_in_place(name, id, out);
        self.agenda.touch(name);
    }

    /// The first in line asks again at the end of the step; if nobody waits any more, the pending acquire is withdrawn.
    pub(super) fn retry_acquire(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.state = State::Idle;
        self.agenda.touch(name);
    }

    /// Tasks that ask only once are refused if another task here holds the name.
    pub(super) fn answer_tries(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get(name) else { return };
        let held = match &entry.state {
            State::Held(held) => held,
            State::Releasing(releasing) => &releasing.held,
            _ => return,
        };
        let Some(wait) = &entry.wait else { return };
        if wait.queue.iter().any(|(_, ticket)| ticket.request.once) {
            let busy = self.busy_here(now, name, held);
            self.refuse_tries(name, &busy, out);
        }
    }

    pub(super) fn refuse_tries(&mut self, name: &Name, busy: &Busy, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let once: Vec<TicketId> =
            entry.wait().queue.iter().filter(|(_, ticket)| ticket.request.once).map(|(id, _)| id).collect();
        for id in once {
            entry.wait_mut().queue.remove(id);
            self.groups.remove(&id);
            out.push(Output::To(id, TaskEffect::Busy(Box::new(busy.clone()))));
        }
    }

    /// No task is going to ask for a while: tasks that ask only once are refused with what is known.
    fn refuse_tries_now(&mut self, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get(name) else { return };
        if entry.wait().queue.iter().any(|(_, ticket)| ticket.request.once) {
            let busy = entry.last_busy(name);
            self.refuse_tries(name, &busy, out);
        }
    }

    /// The first in line subscribes if it has not, else it sleeps.
    pub(super) fn await_turn(&mut self, now: Moment, name: &Name, free_in: Option<Duration>, out: &mut Outputs) {
        if self.entries.get(name).is_some_and(|entry| entry.wait().yield_until > now) {
            self.refuse_tries_now(name, out);
        }
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some((id, ticket)) = entry.wait().queue.head() else { return self.retry_acquire(name) };
        let no_hints = entry.wait().busy.as_ref().is_some_and(|busy| busy.notification == Notification::Never);
        let notified = self.settings.hints && ticket.request.options.wait_mode == WaitMode::Notified && !no_hints;
        if notified && !entry.wait().watched {
            entry.state = State::Subscribing;
            let sending = Sending::new(now, CallKind::Watch { name: name.clone() }, Request::Watch(name.clone()));
            return out.push(Output::To(id, TaskEffect::Call(sending)));
        }
        let until = if entry.wait().yield_until > now {
            entry.wait().yield_until
        } else if !notified {
            now + backoff::spin_pause(&mut self.rng, entry.wait().attempts, free_in)
        } else {
            let sure = self.settings.unlayered
                && entry.wait().busy.as_ref().is_some_and(|busy| busy.notification == Notification::Sure);
            now + backoff::until_recheck(&mut self.rng, free_in, sure)
        };
        entry.state = State::Sleeping(until);
        out.push(Output::To(id, TaskEffect::Sleep(until)));
    }

    /// Sends the first in line to sleep for a while, as a call for it failed.
    pub(super) fn sleep_after_failure(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        self.refuse_tries_now(name, out);
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some((id, _)) = entry.wait().queue.head() else { return self.retry_acquire(name) };
        let until = now + backoff::retry_pause(&mut self.rng, entry.wait().attempts.saturating_sub(1));
        entry.state = State::Sleeping(until);
        out.push(Output::To(id, TaskEffect::Sleep(until)));
    }

    /// After the first in line has gone, the next one sleeps in its place.
    pub(super) fn next_asker(&mut self, name: &Name, slept: bool, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Sleeping(until) = entry.state else { return };
        match entry.wait().queue.head() {
            None => self.retry_acquire(name),
            Some((next, _)) if slept => out.push(Output::To(next, TaskEffect::Sleep(until))),
            Some(_) => {}
        }
    }

    /// A task that asks only once meets others that wait: the first in line asks for both now. If no task is going to ask for a while,
    /// it is refused.
    pub(super) fn try_among_others(&mut self, now: Moment, id: TicketId, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let nobody_asks = match &entry.state {
            // A grant that nobody took is free again with one answer; a lost acquire stays open for longer.
            State::Withdrawing(release) => release.is_pausing() || release.unsettled_until.is_some(),
            State::Releasing(releasing) => releasing.release.is_pausing(),
            State::Held(_) | State::Acquiring => false,
            _ => entry.wait().yield_until > now,
        };
        if nobody_asks {
            let busy = entry.last_busy(name);
            entry.wait_mut().queue.remove(id);
            return out.push(Output::To(id, TaskEffect::Busy(Box::new(busy))));
        }
        if let State::Sleeping(_) = entry.state {
            self.retry_acquire(name);
        }
    }

    /// A hint about one name. If the name is held here, an operator may have taken the lease away.
    pub(super) fn hint(&mut self, now: Moment, name: &Name) {
        self.check_held(now, name);
        self.hint_waiters(name);
    }

    /// Asks the store soon whether it still has the lease that is held here, but not for every hint: many may come at once.
    pub(super) fn check_held(&mut self, now: Moment, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let from = now.max(entry.wait().check_from);
        match entry.held_mut() {
            // A lease that is about to end is known soon enough, and is shorter than stores accept.
            Some(held) if held.check_due == Moment::NEVER && held.deadline > from + CHECK_PAUSE * 2 => {
                held.check_due = from;
            }
            _ => return,
        }
        entry.wait_mut().check_from = from + CHECK_PAUSE;
        self.agenda.touch(name);
    }

    pub(super) fn hint_waiters(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.wait_mut().hinted = true;
        entry.wait_mut().turns = 0;
        if let State::Sleeping(_) = entry.state {
            entry.wait_mut().yield_until = Moment::default();
            self.retry_acquire(name);
        }
    }

    pub(super) fn hint_all(&mut self) {
        // Any client that may publish can cause this again and again: names that are just held cost nothing.
        let wanted = self.entries.iter().filter(|(_, entry)| entry.is_wanted());
        let mut names: Vec<Name> = wanted.map(|(name, _)| name.clone()).collect();
        names.sort();
        for name in &names {
            self.hint_waiters(name);
        }
    }

    /// A task that came back with an older ticket may be the first in line: it sleeps in place of the one that was first.
    pub(super) fn sleep_in_place(&mut self, name: &Name, id: TicketId, out: &mut Outputs) {
        let Some(entry) = self.entries.get(name) else { return };
        if let (State::Sleeping(until), Some((head, _))) = (&entry.state, entry.wait().queue.head())
            && head == id
        {
            out.push(Output::To(id, TaskEffect::Sleep(*until)));
        }
    }
}
