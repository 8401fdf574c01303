//! The store of a world: the reference store with a clock of its own, behind the network.

use leasehold_core::port::{Answered, Break, Inspected, Released};
use leasehold_core::reference::{Hints, Reference};
use leasehold_core::table::{Answer, Request};
use leasehold_core::{ClientId, Name};

use crate::clock::Clock;

/// The store and who subscribed to what.
#[derive(Debug)]
pub struct StoreNode {
    /// The state that ships.
    pub reference: Reference,
    /// Its clock.
    pub clock: Clock,
    /// It stands still until then.
    pub down_until: u64,
    watchers: Vec<(ClientId, Name)>,
}

/// What a message asks of the store.
#[derive(Debug, Clone)]
pub enum Ask {
    /// A call, to be answered.
    Call(Request),
    /// The end of a subscription.
    Unwatch(Name),
}

impl StoreNode {
    /// A store.
    pub fn new(reference: Reference, clock: Clock) -> Self {
        Self { reference, clock, down_until: 0, watchers: Vec::new() }
    }

    /// Does what is asked at true time `at`: the answer, if one is due, and hints for those who watch.
    pub fn execute(&mut self, at: u64, client: ClientId, ask: &Ask) -> (Option<Answer>, Hints) {
        let now = self.clock.store_time(at);
        let mut hints = Hints::new();
        let answer = match ask {
            Ask::Call(Request::Acquire(request)) => {
                let result = self.reference.acquire(now, request);
                Some(Answer::Acquire(result.map(|result| Answered { at: now, result })))
            }
            Ask::Call(Request::Renew(leases)) => {
                let result = self.reference.renew(now, leases);
                Some(Answer::Renew(Ok(Answered { at: now, result })))
            }
            Ask::Call(Request::Release(request)) => {
                let (result, told): (Released, Hints) = self.reference.release(now, request);
                hints = told;
                Some(Answer::Release(Ok(Answered { at: now, result })))
            }
            Ask::Call(Request::Watch(name)) => {
                self.watch(client, name);
                Some(Answer::Watch(Ok(())))
            }
            Ask::Unwatch(name) => {
                self.watchers.retain(|(who, what)| *who != client || what != name);
                hints = self.reference.leave(now, client, name);
                None
            }
        };
        hints.retain(|(who, name)| self.watchers.iter().any(|(client, watched)| client == who && watched == name));
        (answer, hints)
    }

    /// Takes a lock away: who held it, and hints for those who watch.
    pub fn break_lock(&mut self, at: u64, name: &Name, how: Break) -> (Inspected, Hints) {
        let (broken, mut hints) = self.reference.break_lock(self.clock.store_time(at), name, how.into());
        let before = broken.was;
        hints.retain(|(who, name)| self.watchers.iter().any(|(client, watched)| client == who && watched == name));
        (before, hints)
    }

    fn watch(&mut self, client: ClientId, name: &Name) {
        if !self.watchers.iter().any(|(who, what)| *who == client && what == name) {
            self.watchers.push((client, name.clone()));
        }
    }
}
