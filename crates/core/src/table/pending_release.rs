//! Releases that nobody waits for: sent again until they are answered, or what they release is over anyway.

use std::time::Duration;

use super::Table;
use super::entry::{Leaving, OrphanedLease};
use super::types::{CallKind, Context, Output, Outputs, Request, Sending};
use crate::backoff;
use crate::name::Name;
use crate::port::{Released, Reply};
use crate::time::{Moment, StoreTime};

impl Table {
    /// Releases what is left of a lost lease.
    pub(super) fn leave(&mut self, now: Moment, ghost: OrphanedLease, out: &mut Outputs) {
        self.leave_at(now, ghost, now, out);
    }

    /// A lease was released at `at`, but a sending of its acquire may still be executed: released once more when that is past.
    pub(super) fn leave_late(&mut self, now: Moment, mut ghost: OrphanedLease, at: StoreTime, out: &mut Outputs) {
        let again = now + ghost.wait_out(at);
        self.leave_at(now, ghost, again, out);
    }

    /// Releases what is left of a lease, not before `again`.
    pub(super) fn leave_at(&mut self, now: Moment, ghost: OrphanedLease, again: Moment, out: &mut Outputs) {
        let number = self.numbers.next();
        let name = ghost.request.name.clone();
        let entry = self.entries.entry(name.clone()).or_default();
        entry.leaving.push(Leaving { number, ghost, again, attempts: 0, sent: false });
        self.leave_again(now, &name, out);
        self.agenda.touch(&name);
    }

    /// Sends those again whose time has come.
    pub(super) fn leave_again(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let closed = self.closed;
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.leaving.retain(|leaving| leaving.is_under_way() || !leaving.is_over(now, closed));
        for leaving in entry.leaving.iter_mut().filter(|leaving| now >= leaving.again) {
            leaving.again = Moment::NEVER;
            leaving.sent = true;
            let what = CallKind::Leave { name: name.clone(), number: leaving.number };
            let request = Request::Release(leaving.ghost.request.clone());
            out.push(Output::Background(Box::new(Sending { context: Context::new(now, what), request })));
        }
    }

    /// One was answered: settled, unless the acquire may still be executed after it.
    pub(super) fn left(&mut self, now: Moment, name: &Name, number: u64, reply: Reply<Released>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(at) = entry.leaving.iter().position(|leaving| leaving.number == number) else { return };
        let leaving = &mut entry.leaving[at];
        match reply {
            Ok(answered) => {
                if leaving.ghost.taint.is_some_and(|taint| answered.at <= taint) {
                    leaving.again = now + leaving.ghost.wait_out(answered.at);
                } else {
                    entry.leaving.swap_remove(at);
                }
                if let Released::Released { .. } = answered.result {
                    self.hint_waiters(name);
                }
            }
            Err(_) => {
                leaving.again = now + backoff::retry_pause(&mut self.rng, leaving.attempts);
                leaving.attempts += 1;
            }
        }
        self.agenda.touch(name);
    }
}

impl Leaving {
    /// When it needs attention. A store whose clock was set back is not waited for beyond the end of what it may have.
    pub(super) fn due(&self) -> Moment {
        match self.is_under_way() || self.ghost.request.owner.is_shared() {
            true => self.again,
            false => self.again.min(self.ghost.over),
        }
    }

    fn is_under_way(&self) -> bool {
        self.again == Moment::NEVER
    }

    /// Nothing of it can be left in the store. A shared owner's lease may be kept by others, and this hold with it.
    fn is_over(&self, now: Moment, closed: bool) -> bool {
        let shared = self.ghost.request.owner.is_shared();
        now >= self.ghost.over && (!shared || (closed && self.sent))
    }
}

impl OrphanedLease {
    /// From now on it is about whatever a late sending may be granted; answers how long that can happen.
    fn wait_out(&mut self, at: StoreTime) -> Duration {
        self.request.fence = None;
        self.request.last_used = None;
        self.request.linger = Duration::ZERO;
        self.taint.map_or(Duration::ZERO, |taint| taint.since(at)) + Duration::from_millis(1)
    }
}
