//! A guard that was invalid once, because its time was over or because it was told so, is never valid again.

use leasehold_core::Name;
use leasehold_core::table::HoldId;

use super::{Verdict, broken};
use crate::process::Process;

/// The guards of each process that were seen invalid.
#[derive(Debug, Default)]
pub struct Validity {
    ended: Vec<(usize, HoldId, End)>,
}

/// How a guard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By the clock, which its owner could have read.
    Time,
    /// Its owner was told that it is lost.
    TaskEffect,
}

impl Validity {
    /// A guard is told that its lock is lost.
    pub fn lost(&mut self, client: usize, hold: HoldId) {
        match self.ended.iter_mut().find(|(whose, ended, _)| *whose == client && *ended == hold) {
            Some((_, _, end)) => *end = End::TaskEffect,
            None => self.ended.push((client, hold, End::TaskEffect)),
        }
    }

    /// A guard was given back: nobody asks whether it is valid.
    pub fn given_back(&mut self, client: usize, hold: HoldId) {
        self.ended.retain(|(whose, ended, _)| *whose != client || *ended != hold);
    }

    /// Looks at every guard that a process has, before a step and after it. Between two steps only the clock goes on, and a guard
    /// can only end by that.
    pub fn check(&mut self, at: u64, client: usize, process: &Process, names: &[Name]) -> Verdict {
        let now = process.clock.moment(at);
        for guard in process.tasks.iter().flat_map(|task| &task.guards) {
            let name = &names[guard.name];
            let left = process.table.time_left(now, name, guard.hold);
            let ended = self.ended.iter().find(|(whose, ended, _)| *whose == client && *ended == guard.hold);
            match (ended, left) {
                (None, None) => self.ended.push((client, guard.hold, End::Time)),
                (None, Some(_)) => {}
                (Some(_), Some(left)) => {
                    let what = format!("{:?} of client {client} was invalid, and is valid for {left:?}", guard.hold);
                    return broken("invalid stays invalid", Some(guard.name), what);
                }
                (Some((_, _, end)), None) if *end == End::TaskEffect && process.table.is_held(name, guard.hold) => {
                    let what = format!("{:?} of client {client} was told that it is lost, and is held", guard.hold);
                    return broken("invalid stays invalid", Some(guard.name), what);
                }
                (Some(_), None) => {}
            }
        }
        Ok(())
    }
}
