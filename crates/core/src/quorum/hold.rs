//! A grant of a majority, for as long as it is held: what each server may have of it.

use std::time::Duration;

use super::attempt::{Attempt, Send};
use super::clocks::Clocks;
use super::member::{Ballot, Vote};
use super::{PerServer, Rules};
use crate::error::Outcome;
use crate::fence::{Block, Fence};
use crate::name::{Name, Names};
use crate::port::{Acquire, Release, ReleaseScope, Reply};
use crate::time::{Moment, StoreTime};

/// What a majority granted.
#[derive(Clone, Debug)]
pub struct Hold {
    attempt: Attempt,
    rejoins: PerServer<Rejoin>,
    released: bool,
}

/// A server that was asked again for its vote.
#[derive(Clone, Copy, Debug, Default)]
struct Rejoin {
    /// The `not_after` of the ballot that is not answered.
    open: Option<StoreTime>,
    /// When none of its ballots can be executed any more.
    until: StoreTime,
}

impl Hold {
    /// What an attempt was granted.
    pub fn of(attempt: Attempt) -> Self {
        let rejoins = attempt.traces().iter().map(|_| Rejoin::default()).collect();
        Self { attempt, rejoins, released: false }
    }

    /// The fences.
    pub fn block(&self) -> Block {
        self.attempt.block()
    }

    /// The lease that was asked for.
    pub fn lease(&self) -> Duration {
        self.attempt.request().lease
    }

    /// The same ballots once more. Ballots that asked a server to join and are not answered are the attempt's own from then on.
    pub fn repeat(&self, now: Moment, clocks: &Clocks) -> (Attempt, Vec<Send>) {
        let (mut again, sends) = self.attempt.repeat(now, clocks);
        for (server, Rejoin { open, until }) in self.rejoins.iter().enumerate() {
            if open.is_some() {
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
    /// to join it, so that the lock does not rest on a bare majority until it is renewed. Never servers that are known to recover, and
    /// none while it is not known that a majority has it.
    pub fn vacant(&self) -> impl Iterator<Item = usize> {
        self.attempt.vacant().filter(|_| self.attempt.is_granted())
    }

    /// Asks a server that does not have a lease of a majority to join it.
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
        let Rejoin { open, until } = self.rejoins[server];
        // A server that joins takes the fences even if it gave out larger ones since: so only a lease of a majority may be joined.
        if !self.attempt.is_granted() || self.released || open.is_some() && latest <= until {
            return None;
        }
        let not_after = latest + rules.limit(term);
        self.rejoins[server] = Rejoin { open: Some(not_after), until: not_after.max(until) };
        let request = self.attempt.request();
        let acquire = Acquire {
            names: Names::new(names.iter().cloned()).ok()?,
            lease: term,
            not_after,
            enlist: false,
            seen: Fence::NONE,
            clock: Default::default(),
            ..request.clone()
        };
        Some(Ballot { acquire, block: self.block(), again: true })
    }

    /// A server that was asked to join answered the ballot of this `not_after`, or failed.
    ///
    /// It may be one from before a repeat: that says nothing of the ballot that is open now.
    pub fn asked_anew(&mut self, server: usize, not_after: StoreTime, now: StoreTime, reply: &Reply<Vote>) {
        let Rejoin { open, until } = &mut self.rejoins[server];
        let surely = match reply {
            Ok(_) => true,
            Err(error) => error.outcome() == Outcome::NotApplied || now > *until,
        };
        if surely && *open == Some(not_after) {
            *open = None;
        }
    }

    /// Whether every ballot that was sent to a server is answered: none can be executed any more.
    pub fn is_answered(&self, server: usize) -> bool {
        self.attempt.is_answered(server) && self.rejoins[server].open.is_none()
    }

    /// What may be left behind once it is given back: for each server, none where it was never asked, else until when ballots can still
    /// be executed there, if so.
    pub fn release(&mut self) -> PerServer<Option<Option<StoreTime>>> {
        self.released = true;
        let of = |(server, Rejoin { open, until }): (usize, &Rejoin)| {
            let rejoin_until = open.is_some().then_some(*until);
            let was_asked = self.attempt.was_asked(server) || *until > StoreTime::default();
            was_asked.then(|| self.attempt.open_until(server).max(rejoin_until))
        };
        self.rejoins.iter().enumerate().map(of).collect()
    }

    /// The request under which every server has it.
    pub fn giving(&self, release: Release) -> Release {
        Release { fence: None, scope: ReleaseScope::Hold(self.attempt.request().request), ..release }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, Voted, VotingStatus};
    use super::*;
    use crate::backoff::Rng;
    use crate::error::Outcome;
    use crate::owner::{ClientId, RequestId, StoreOwner};
    use crate::port::Answered;

    const SERVERS: usize = 3;
    const LEASE: Duration = Duration::from_secs(30);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn says(voted: Voted) -> Reply<Vote> {
        Ok(Answered { at: StoreTime::from_nanos(1), result: Vote { standing: VotingStatus::Votes, voted } })
    }

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    /// Granted by two servers of three; the third was silent.
    fn granted() -> (Rules, Clocks, Hold) {
        let rules = Rules {
            servers: (0..SERVERS).map(|server| server.to_string().into()).collect(),
            limit: None,
            quarantine: LEASE,
        };
        let mut clocks = Clocks::new(SERVERS);
        (0..SERVERS).for_each(|server| clocks.observe(server, at(0), at(0), StoreTime::from_nanos(1)));
        let id = RequestId { client: ClientId([1, 2]), number: 1 };
        let request = Acquire { kept: true, ..Acquire::new(Names::One(name()), StoreOwner::Private(id), id, LEASE) };
        let everybody = (0..SERVERS).map(|_| None).collect();
        let (mut attempt, sends) = Attempt::begin(&rules, request, at(0), &clocks, everybody);
        for send in &sends[..2] {
            attempt.voted(at(1), &clocks, send.server, send.round, at(0), says(Voted::Took { left: LEASE }));
        }
        let verdict = attempt.verdict(at(1), &mut Rng::new(1));
        assert!(matches!(verdict, Some(Verdict::Granted(_))), "{verdict:?}");
        (rules, clocks, Hold::of(attempt))
    }

    fn outcome_of(verdict: Option<Verdict>) -> Outcome {
        match verdict {
            Some(Verdict::Failed { error, .. }) => error.outcome(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repeat_waits_as_long_as_it_may_and_says_then_that_nothing_is_known() {
        let (_, clocks, hold) = granted();
        let (mut again, sends) = hold.repeat(at(10), &clocks);
        again.wait_until(at(2_000));
        assert_eq!(again.wakes(), at(2_000));
        again.voted(at(11), &clocks, 0, sends[0].round, at(10), says(Voted::Took { left: LEASE }));
        again.tick(at(500), &clocks);
        assert!(again.verdict(at(500), &mut Rng::new(1)).is_none(), "the ballots have ended, and two may have it");
        again.tick(at(2_000), &clocks);
        assert_eq!(outcome_of(again.verdict(at(2_000), &mut Rng::new(1))), Outcome::Unknown);
        assert_eq!(again.wakes(), Moment::NEVER, "it was decided");
    }

    #[test]
    fn a_repeat_is_gone_once_no_majority_can_have_it() {
        let (_, clocks, hold) = granted();
        let lost = || says(Voted::Held { left: LEASE, last: Fence::new(9) });
        let (mut again, sends) = hold.repeat(at(10), &clocks);
        again.wait_until(at(2_000));
        again.voted(at(11), &clocks, 2, sends[2].round, at(10), says(Voted::TooLate));
        assert!(again.verdict(at(11), &mut Rng::new(1)).is_none(), "the two that granted it were not heard of");
        again.voted(at(12), &clocks, 1, sends[1].round, at(10), lost());
        assert_eq!(outcome_of(again.verdict(at(12), &mut Rng::new(1))), Outcome::NotApplied);
    }

    #[test]
    fn only_what_a_majority_is_known_to_have_is_asked_for_anew() {
        let (rules, clocks, mut hold) = granted();
        assert_eq!(hold.vacant().collect::<Vec<_>>(), [2]);
        assert!(hold.ask_anew(&rules, 2, &[name()], LEASE, at(5), &clocks).is_some());
        let (mut again, _) = hold.repeat(at(100), &clocks);
        again.tick(at(200), &clocks);
        assert_eq!(outcome_of(again.verdict(at(200), &mut Rng::new(1))), Outcome::Unknown);
        let mut in_doubt = Hold::of(again);
        assert_eq!(in_doubt.vacant().count(), 0);
        assert!(in_doubt.ask_anew(&rules, 2, &[name()], LEASE, at(300), &clocks).is_none());
    }

    /// A ballot that asked a server to join before a repeat is answered after the next one was sent.
    #[test]
    fn an_answer_from_before_a_repeat_leaves_the_next_ballot_open() {
        let (rules, clocks, mut hold) = granted();
        let first = hold.ask_anew(&rules, 2, &[name()], LEASE, at(5), &clocks).unwrap().acquire.not_after;
        let (mut again, sends) = hold.repeat(at(10), &clocks);
        for send in &sends[..2] {
            again.voted(at(11), &clocks, send.server, send.round, at(10), says(Voted::Took { left: LEASE }));
        }
        assert!(matches!(again.verdict(at(11), &mut Rng::new(1)), Some(Verdict::Granted(_))));
        let mut hold = Hold::of(again);
        let second = hold.ask_anew(&rules, 2, &[name()], LEASE, at(20), &clocks).unwrap().acquire.not_after;
        let took = says(Voted::Took { left: LEASE });
        hold.asked_anew(2, first, StoreTime::from_nanos(1), &took);
        assert_eq!(hold.clone().release()[2], Some(Some(second)), "it may be executed after a release");
        hold.asked_anew(2, second, StoreTime::from_nanos(1), &took);
        assert!(hold.release()[2].unwrap() < Some(second));
    }
}
