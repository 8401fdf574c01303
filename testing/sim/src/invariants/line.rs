//! Only those are told that a name may be free who asked for it not long ago, and have not left since.

use leasehold_core::ClientId;
use leasehold_core::reference::Hints;
use leasehold_core::table::Request;

use super::{Verdict, broken};
use crate::chance::MS;
use crate::store::Ask;

/// A client is forgotten three seconds after it asked last. Clocks differ, and go in steps.
const FORGOTTEN: u64 = 3_000 * MS + 50 * MS;

/// When each client last asked to be told of a name.
#[derive(Debug, Default)]
pub struct Line {
    asked: Vec<(ClientId, usize, u64)>,
}

impl Line {
    /// A message comes to the store at `at`; `number` tells names apart.
    pub fn arrived(&mut self, at: u64, client: ClientId, ask: &Ask, number: impl Fn(&leasehold_core::Name) -> usize) {
        match ask {
            Ask::Call(Request::Acquire(request)) if request.enlist => {
                request.names.as_slice().iter().for_each(|name| self.joined(at, client, number(name)));
            }
            Ask::Call(Request::Release(request)) if request.rejoin => self.joined(at, client, number(&request.name)),
            Ask::Unwatch(name) => {
                let left = number(name);
                self.asked.retain(|(who, what, _)| *who != client || *what != left);
            }
            _ => {}
        }
    }

    fn joined(&mut self, at: u64, client: ClientId, name: usize) {
        self.asked.retain(|(who, what, _)| *who != client || *what != name);
        self.asked.push((client, name, at));
    }

    /// The store tells some that a name may be free.
    pub fn hinted(&self, at: u64, hints: &Hints, number: impl Fn(&leasehold_core::Name) -> usize) -> Verdict {
        for (client, name) in hints {
            let name = number(name);
            let waits = |(who, what, when): &(ClientId, usize, u64)| {
                who == client && *what == name && at.saturating_sub(*when) <= FORGOTTEN
            };
            if !self.asked.iter().any(waits) {
                return broken("line", Some(name), format!("{client:?} is told, and does not wait any more"));
            }
        }
        Ok(())
    }
}
