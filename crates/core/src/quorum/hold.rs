//! A grant of a majority, for as long as it is held: what each server may have of it.

use std::time::Duration;

use super::attempt::{Attempt, Send};
use super::clocks::Clocks;
use super::member::{Ballot, Vote};
use super::{PerServer, Rules};
use crate::error::Outcome;
use crate::fence::{Block, Fence};
use crate::name::{Name, Names};
use crate::planted::Bug;
use crate::port::{Acquire, Give, Release, Reply};
use crate::time::{Moment, StoreTime};

/// What a majority granted.
#[derive(Clone, Debug)]
pub struct Hold {
    attempt: Attempt,
    /// Servers that were asked anew: how many such ballots are not answered, and when none of them can be executed any more.
    anew: PerServer<(u32, StoreTime)>,
    released: bool,
}

impl Hold {
    /// What an attempt was granted.
    pub fn of(attempt: Attempt) -> Self {
        let anew = attempt.traces().iter().map(|_| (0, StoreTime::default())).collect();
        Self { attempt, anew, released: false }
    }

    /// The fences.
    pub fn block(&self) -> Block {
        self.attempt.block()
    }

    /// The lease that was asked for.
    pub fn lease(&self) -> Duration {
        self.attempt.request().lease
    }

    /// The same ballots once more. Those that asked anew and are not answered are the attempt's own from then on.
    pub fn repeat(&self, now: Moment, clocks: &Clocks) -> (Attempt, Vec<Send>) {
        let (mut again, sends) = self.attempt.repeat(now, clocks);
        for (server, (open, until)) in self.anew.iter().enumerate() {
            if *open > 0 {
                again.is_open_until(server, *until);
            }
        }
        (again, sends)
    }

    /// A ballot of the attempt was answered after its verdict.
    pub fn voted(&mut self, now: Moment, clocks: &Clocks, server: usize, round: u32, sent: Moment, reply: Reply<Vote>) {
        self.attempt.voted(now, clocks, server, round, sent, reply);
    }

    /// When [`Hold::vacant`] is certain enough to be asked: what was sent with the grant is answered by then, or too late.
    pub fn joined_from(&self) -> Moment {
        self.attempt.ends()
    }

    /// Servers that do not have what was granted, as far as is known: others had them, or they did not answer in time. They may be asked
    /// for their vote anew, so that the lock does not rest on a bare majority until it is renewed. Never those that are known to recover.
    pub fn vacant(&self) -> impl Iterator<Item = usize> {
        self.attempt.vacant()
    }

    /// Asks a server for its vote anew that does not have a lease which a majority has.
    pub fn ask_anew(
        &mut self,
        rules: &Rules,
        server: usize,
        names: &[Name],
        term: Duration,
        now: Moment,
        clocks: &Clocks,
    ) -> Option<Ballot> {
        let latest = clocks.latest(server, now)?;
        // One that is not answered may be executed after a release; so there is never a second one beside it, and none after a release.
        let (open, until) = self.anew[server];
        let released = self.released && !rules.planted.is(Bug::AnewAfterRelease);
        if released || open > 0 && latest <= until {
            return None;
        }
        let not_after = latest + rules.limit(term);
        self.anew[server] = (1, not_after.max(until));
        let request = self.attempt.request();
        let acquire = Acquire {
            names: Names::new(names.iter().cloned()).ok()?,
            lease: term,
            not_after,
            enlist: false,
            seen: Fence::NONE,
            ..request.clone()
        };
        Some(Ballot { acquire, block: self.block(), again: true })
    }

    /// A server that was asked anew answered, or did not.
    pub fn asked_anew(&mut self, server: usize, now: StoreTime, reply: &Reply<Vote>) {
        let surely = match reply {
            Ok(_) => true,
            Err(error) => error.outcome() == Outcome::NotApplied || now > self.anew[server].1,
        };
        if surely {
            self.anew[server].0 = 0;
        }
    }

    /// Whether every ballot that was sent to a server is answered: none can be executed any more.
    pub fn is_answered(&self, server: usize) -> bool {
        self.attempt.is_answered(server) && self.anew[server].0 == 0
    }

    /// What may be left behind once it is given back: for each server, none where it was never asked, else until when ballots can still
    /// be executed there, if so.
    pub fn release(&mut self) -> PerServer<Option<Option<StoreTime>>> {
        self.released = true;
        let reckoned = !self.attempt.rules().planted.is(Bug::AnewOvertaken);
        let of = |(server, (open, until)): (usize, &(u32, StoreTime))| {
            let anew = (reckoned && *open > 0).then_some(*until);
            let was_asked = self.attempt.was_asked(server) || *until > StoreTime::default();
            was_asked.then(|| self.attempt.open_until(server).max(anew))
        };
        self.anew.iter().enumerate().map(of).collect()
    }

    /// The request under which every server has it.
    pub fn giving(&self, release: Release) -> Release {
        Release { fence: None, give: Give::Hold(self.attempt.request().request), ..release }
    }
}
