//! Detaching a lease: this client forgets it, and the owner can go on with it elsewhere until it ends.

use std::time::Duration;

use super::Table;
use super::entry::Entry;
use super::losses::{lost, lost_by};
use super::types::{HoldId, Outputs};
use crate::error::{Error, ErrorKind};
use crate::lease;
use crate::name::Name;
use crate::time::Moment;

impl Table {
    /// Whether a guard's lease may be left to its owner, and how long to wait before that. A sending of its request whose answer was
    /// lost may still be executed: while this client has the lease, it would see to what comes of that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when it is gone. [`ErrorKind::BadArgument`] when its guard keeps it, its owner was generated, this client has
    /// other guards on it, or the lease was lengthened beyond this guard's end: for another guard, or with an answer that was lost.
    pub fn check_detach(&self, now: Moment, hold: HoldId, name: &Name) -> Result<Duration, Error> {
        if self.time_left(now, name, hold).is_none() {
            return Err(self.loss(hold).map_or_else(|| lost("leave"), |report| lost_by("leave", report.loss)));
        }
        let Some(held) = self.entries.get(name).and_then(Entry::held) else {
            return Err(lost("leave"));
        };
        if held.holds.iter().any(|hold| hold.is_kept()) {
            return Err(refused("a kept lock ends with its guard; take it with a fixed lease"));
        }
        if !held.is_shared() {
            return Err(refused("nobody else can be an owner that was generated; take it for an explicit one"));
        }
        if held.holds.len() > 1 {
            return Err(refused("this client has other guards on it; release them first"));
        }
        let end = held.holds.iter().map(|hold| hold.end).max().unwrap_or_default();
        // A quorum counts the rest of a lease from before it asked its servers: that alone is more than the guard asked for.
        if held.outlasts && held.deadline.max(held.asked_until) > end.max(held.at_least) + self.settings.call_limit {
            let why = "the store has this lease for longer than this guard, or may have, which would keep others out after its end";
            return Err(refused(why).with_hint("extend the guard to the end of the lease first, or release it"));
        }
        let settled = lease::surely_over(held.granted, self.settings.call_limit);
        let open = held.is_unsettled() && now + self.jumped < settled;
        Ok(if open { settled.since(now + self.jumped) } else { Duration::ZERO })
    }

    /// Forgets a lease that [`Table::check_detach`] allows to be left at once. Tasks that wait for it here ask the store from now on.
    pub fn detach(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.position(hold).is_some()) else { return };
        self.guards -= entry.take_held().map_or(0, |held| held.holds.len());
        self.forget_failures(name);
        let before = out.len();
        self.agenda.touch(name);
        self.finish(now, before, out);
    }
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::BadArgument, "leave", why)
}
