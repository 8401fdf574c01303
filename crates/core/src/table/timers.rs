//! When each name next needs attention by itself. An entry remembers the time under which its name stands here.

use std::collections::BTreeSet;

use crate::name::Name;
use crate::time::Moment;

#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Moment, Name)>);

impl Timers {
    /// When the first one is due.
    pub(super) fn first(&self) -> Option<Moment> {
        self.0.first().map(|(when, _)| *when)
    }

    /// Takes a name out whose time has come.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<Name> {
        self.first().filter(|when| *when <= now)?;
        self.0.pop_first().map(|(_, name)| name)
    }

    /// Moves the timer of a name from one time to another; [`Moment::NEVER`] is none.
    pub(super) fn reset(&mut self, name: &Name, from: Moment, to: Moment) {
        if from != Moment::NEVER {
            self.0.remove(&(from, name.clone()));
        }
        if to != Moment::NEVER {
            self.0.insert((to, name.clone()));
        }
    }
}
