//! One simulated client: a small shell around the decisions that ship.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::planted::{Bug, Planted};
use leasehold_core::port::{Acquire, Answered, Give, Granted, Mode, Release, Released, Renew, Renewed, Reply};
use leasehold_core::quorum::attempt::Send;
use leasehold_core::quorum::hold::Hold;
use leasehold_core::quorum::{
    Attempt, Ballot, Clocks, Health, PerServer, Rules, Sweep, Upheld, Upholding, Verdict, Vote, Voted,
};
use leasehold_core::waiting::Rng;
use leasehold_core::{ClientId, Error, ErrorKind, Fence, Lease, Moment, Name, Names, Outcome, RequestId, StoreOwner};
use leasehold_core::{StoreTime, lease};

use crate::chance::Chance;
use crate::clock::Clock;

/// A call has ended by then, one way or another.
const CALL_LIMIT: Duration = Duration::from_millis(250);

/// What is sent to a server.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Clock,
    Vote(Box<Ballot>),
    Uphold(Vec<Renew>),
    Release(Box<Release>),
}

/// What it answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Clock(Reply<()>),
    Vote(Reply<Vote>),
    Uphold(Reply<Upheld>),
    Release(Reply<Released>),
}

/// Why a call was sent.
#[derive(Clone, Copy, Debug)]
enum What {
    Clock,
    Vote { attempt: u64, round: u32 },
    Anew { attempt: u64 },
    Uphold(u64),
    Sweep(u64),
}

struct Calling {
    what: What,
    server: usize,
    sent: Moment,
}

/// What a client does to the world.
pub(super) enum Deed {
    Send {
        call: u64,
        server: usize,
        ask: Ask,
    },
    Granted {
        fence: Fence,
        last: Fence,
    },
    /// It has given back all of this request, for certain.
    Swept {
        request: RequestId,
    },
}

enum State {
    Idle { until: Moment },
    Attempting { number: u64, attempt: Box<Attempt>, until: Moment },
    Holding(Box<Holding>),
}

pub(super) struct Holding {
    number: u64,
    hold: Hold,
    request: RequestId,
    block: leasehold_core::Block,
    pub(super) deadline: Moment,
    ends: Moment,
    renew_due: Moment,
    /// When those are asked once more who did not vote for it in time.
    join_due: Moment,
    kept: bool,
    upholding: Option<(u64, Upholding)>,
    used: Fence,
}

struct Sweeping {
    number: u64,
    /// What is given back, and the number of its attempt.
    attempt: u64,
    hold: Hold,
    sweep: Sweep,
    release: Release,
    request: RequestId,
    give_up: Moment,
}

impl Sweeping {
    /// A ballot was answered that was open as this began, or was not.
    fn executed(&mut self, server: usize, reply: &Reply<Vote>) {
        let at = reply.as_ref().ok().map(|answered| answered.at);
        if at.is_some() || self.hold.is_answered(server) {
            self.sweep.executed(server, at, self.hold.is_answered(server));
        }
    }
}

pub(super) struct Client {
    id: ClientId,
    rules: Rules,
    planted: Planted,
    clock: Clock,
    pub(super) still_until: u64,
    pub(super) dead: bool,
    clocks: Clocks,
    health: Health,
    rng: Rng,
    chance: Chance,
    name: Name,
    lease: Duration,
    calls: HashMap<u64, Calling, std::hash::BuildHasherDefault<std::hash::DefaultHasher>>,
    numbers: u64,
    state: State,
    sweeps: Vec<Sweeping>,
    seen: Fence,
    wishes: u32,
    pub(super) tick_at: u64,
}

impl Client {
    pub(super) fn new(who: u64, rules: &Rules, clock: Clock, mut chance: Chance, name: &Name) -> Self {
        let longest = u64::try_from(rules.quarantine.as_millis()).unwrap_or(u64::MAX);
        let lease = Duration::from_millis(chance.within(300..longest + 1));
        let seed = chance.draw();
        Self {
            id: ClientId([who, 7]),
            rules: rules.clone(),
            planted: rules.planted,
            clock,
            still_until: 0,
            dead: false,
            clocks: Clocks::new(rules.servers()),
            health: Health::new(rules.servers(), Rng::new(seed)),
            rng: Rng::new(seed ^ 1),
            name: name.clone(),
            lease,
            calls: HashMap::default(),
            numbers: 0,
            state: State::Idle { until: Moment::default() },
            sweeps: Vec::new(),
            seen: Fence::NONE,
            wishes: u32::try_from(chance.within(3..9)).unwrap_or(3),
            chance,
            tick_at: u64::MAX,
        }
    }

    pub(super) fn now(&self, at: u64) -> Moment {
        self.clock.moment(at)
    }

    /// Whether it believes to hold the lock.
    pub(super) fn believes(&self, at: u64) -> bool {
        match &self.state {
            State::Holding(holding) => !self.dead && self.now(at) < holding.deadline.min(holding.ends),
            _ => false,
        }
    }

    pub(super) fn owner(&self) -> StoreOwner {
        StoreOwner::Shared(format!("{}", self.id).into())
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// When it must be told the time again, on its own clock.
    pub(super) fn wakes(&self) -> Moment {
        let state = match &self.state {
            State::Idle { until } if self.wishes > 0 => *until,
            State::Idle { .. } => Moment::NEVER,
            State::Attempting { attempt, .. } => attempt.wakes(),
            State::Holding(holding) => {
                let renew = match &holding.upholding {
                    Some((_, upholding)) => upholding.wakes(),
                    None if holding.kept => holding.renew_due,
                    None => Moment::NEVER,
                };
                holding.deadline.min(holding.ends).min(renew).min(holding.join_due)
            }
        };
        let sweeps = self.sweeps.iter().map(|sweeping| sweeping.sweep.wakes()).min().unwrap_or(Moment::NEVER);
        let calls = self.calls.values().map(|calling| calling.sent + CALL_LIMIT).min().unwrap_or(Moment::NEVER);
        state.min(sweeps).min(calls)
    }

    fn send(&mut self, now: Moment, what: What, server: usize, ask: Ask, out: &mut Vec<Deed>) {
        let call = self.number();
        self.calls.insert(call, Calling { what, server, sent: now });
        out.push(Deed::Send { call, server, ask });
    }

    pub(super) fn tick(&mut self, at: u64, out: &mut Vec<Deed>) {
        let now = self.now(at);
        let mut late: Vec<u64> =
            self.calls.iter().filter(|(_, calling)| now >= calling.sent + CALL_LIMIT).map(|(call, _)| *call).collect();
        late.sort_unstable();
        for call in late {
            self.answered(at, call, None, out);
        }
        self.go_on(now, out);
    }

    /// An answer came, or none in time.
    pub(super) fn answered(&mut self, at: u64, call: u64, answer: Option<Answer>, out: &mut Vec<Deed>) {
        let now = self.now(at);
        let Some(Calling { what, server, sent }) = self.calls.remove(&call) else { return };
        fn or<T>(reply: Option<Reply<T>>) -> Reply<T> {
            let lost = || Error::new(ErrorKind::Unreachable, "call", "no answer").with_outcome(Outcome::Unknown);
            reply.unwrap_or_else(|| Err(lost()))
        }
        let clock = match &answer {
            Some(Answer::Clock(Ok(Answered { at, .. }))) => Some(*at),
            Some(Answer::Vote(Ok(Answered { at, .. }))) => Some(*at),
            Some(Answer::Uphold(Ok(Answered { at, .. }))) => Some(*at),
            Some(Answer::Release(Ok(Answered { at, .. }))) => Some(*at),
            _ => None,
        };
        if let Some(clock) = clock {
            self.clocks.observe(server, sent, now, clock);
            self.health.answered(server);
        }
        match (what, answer) {
            (What::Clock, _) => {}
            (What::Vote { attempt: number, round }, answer) => {
                let reply =
                    or(answer.map(|answer| if let Answer::Vote(reply) = answer { reply } else { unreachable!() }));
                self.voted(now, number, round, server, sent, reply, out);
            }
            (What::Anew { attempt: number }, answer) => {
                let reply =
                    or(answer.map(|answer| if let Answer::Vote(reply) = answer { reply } else { unreachable!() }));
                let shown = self.clocks.latest(server, now).unwrap_or_default();
                if let State::Holding(holding) = &mut self.state
                    && holding.number == number
                {
                    holding.hold.asked_anew(server, shown, &reply);
                    if let Ok(Answered { result: Vote { voted: Voted::Took { left }, .. }, .. }) = reply
                        && self.planted.is(Bug::AnewProlongs)
                    {
                        holding.deadline = holding.deadline.max(lease::deadline(sent, left));
                    }
                }
                for sweeping in self.sweeps.iter_mut().filter(|sweeping| sweeping.attempt == number) {
                    sweeping.hold.asked_anew(server, shown, &reply);
                    sweeping.executed(server, &reply);
                }
            }
            (What::Uphold(number), answer) => {
                let reply =
                    or(answer.map(|answer| if let Answer::Uphold(reply) = answer { reply } else { unreachable!() }));
                if let State::Holding(holding) = &mut self.state
                    && let Some((_, upholding)) = holding.upholding.as_mut().filter(|(known, _)| *known == number)
                {
                    upholding.answered(server, sent, now, reply);
                }
            }
            (What::Sweep(number), answer) => {
                let reply =
                    or(answer.map(|answer| if let Answer::Release(reply) = answer { reply } else { unreachable!() }));
                if let Some(sweeping) = self.sweeps.iter_mut().find(|sweeping| sweeping.number == number) {
                    sweeping.sweep.answered(now, server, reply, &mut self.rng);
                }
            }
        }
        self.go_on(now, out);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one vote")]
    fn voted(
        &mut self,
        now: Moment,
        number: u64,
        round: u32,
        server: usize,
        sent: Moment,
        reply: Reply<Vote>,
        out: &mut Vec<Deed>,
    ) {
        let sends = match &mut self.state {
            State::Attempting { number: known, attempt, .. } if *known == number => {
                attempt.voted(now, &self.clocks, server, round, sent, reply)
            }
            State::Holding(holding) if holding.number == number => {
                holding.hold.voted(now, &self.clocks, server, round, sent, reply);
                Vec::new()
            }
            _ => {
                for sweeping in self.sweeps.iter_mut().filter(|sweeping| sweeping.attempt == number) {
                    sweeping.hold.voted(now, &self.clocks, server, round, sent, reply.clone());
                    sweeping.executed(server, &reply);
                }
                Vec::new()
            }
        };
        self.send_all(now, number, sends, out);
    }

    fn send_all(&mut self, now: Moment, number: u64, sends: Vec<Send>, out: &mut Vec<Deed>) {
        for Send { server, round, ballot } in sends {
            self.send(now, What::Vote { attempt: number, round }, server, Ask::Vote(Box::new(ballot)), out);
        }
    }

    /// Whatever is due.
    fn go_on(&mut self, now: Moment, out: &mut Vec<Deed>) {
        match &mut self.state {
            State::Idle { until } if now >= *until && self.wishes > 0 => self.ask(now, out),
            State::Idle { .. } => {}
            State::Attempting { number, attempt, .. } => {
                let (number, sends) = (*number, attempt.tick(now, &self.clocks));
                let verdict = attempt.verdict(now, &mut self.rng);
                self.send_all(now, number, sends, out);
                if let Some(verdict) = verdict {
                    self.decided(now, verdict, out);
                }
            }
            State::Holding(_) => self.hold(now, out),
        }
        self.sweep(now, out);
    }

    fn ask(&mut self, now: Moment, out: &mut Vec<Deed>) {
        let unknown: Vec<usize> = self.clocks.unknown().collect();
        if unknown.len() > self.rules.servers() - self.rules.majority() {
            for server in unknown {
                self.send(now, What::Clock, server, Ask::Clock, out);
            }
            self.state = State::Idle { until: now + Duration::from_millis(60) };
            return;
        }
        let number = self.number();
        let request = Acquire {
            names: Names::One(self.name.clone()),
            owner: self.owner(),
            request: RequestId { client: self.id, number },
            mode: Mode::Exclusive,
            lease: self.lease,
            block: u32::try_from(self.chance.within(1..4)).unwrap_or(1),
            seen: self.seen,
            not_after: StoreTime::NEVER,
            enlist: false,
            kept: true,
            about: Default::default(),
        };
        let left_out = self.health.ailing(now);
        let (attempt, sends) = Attempt::begin(&self.rules, request, now, &self.clocks, left_out);
        self.state = State::Attempting { number, attempt: Box::new(attempt), until: now };
        self.send_all(now, number, sends, out);
    }

    fn decided(&mut self, now: Moment, verdict: Verdict, out: &mut Vec<Deed>) {
        let idle = State::Idle { until: now };
        let State::Attempting { number, attempt, until: began } = std::mem::replace(&mut self.state, idle) else {
            return;
        };
        for (server, error) in attempt.silent() {
            self.health.failed(server, now, error.cloned());
        }
        let pause = match verdict {
            Verdict::Granted(granted) => return self.granted(now, began, number, *attempt, granted, out),
            Verdict::Busy { busy, .. } => {
                busy.free_in.unwrap_or(Duration::from_millis(50)).min(Duration::from_millis(80))
            }
            Verdict::Failed { .. } => Duration::from_millis(100),
        };
        let spread = Duration::from_micros(self.chance.within(0..3_000));
        self.state = State::Idle { until: now + pause + spread };
        self.give_back(now, number, *attempt);
    }

    fn give_back(&mut self, now: Moment, number: u64, attempt: Attempt) {
        let give_up = lease::surely_over(now + self.rules.limit(self.lease) * 4, self.lease);
        let sweep = Sweep::begin(&self.rules, attempt.traces(), now, now, give_up);
        let release = attempt.giving_back(&self.name);
        let request = attempt.request().request;
        let sweeping = Sweeping {
            number: self.number(),
            attempt: number,
            hold: Hold::of(attempt),
            sweep,
            release,
            request,
            give_up,
        };
        self.sweeps.push(sweeping);
    }

    fn end_of(&self, sent: Moment, left: Duration) -> Moment {
        if self.planted.is(Bug::NoDrift) { sent + left } else { lease::deadline(sent, left) }
    }

    fn granted(
        &mut self,
        now: Moment,
        began: Moment,
        number: u64,
        attempt: Attempt,
        granted: Granted,
        out: &mut Vec<Deed>,
    ) {
        let deadline = if self.planted.is(Bug::ValidityFromReply) {
            self.end_of(now, granted.left.min(self.lease))
        } else {
            self.end_of(began, granted.left)
        };
        if now >= deadline {
            return self.give_back(now, number, attempt);
        }
        let kept = self.chance.permille(700);
        let span = self.chance.within(1..2_500);
        let request = attempt.request().request;
        let used = granted.block.first.plus(self.chance.within(0..u64::from(granted.block.len)));
        self.seen = self.seen.max(used);
        out.push(Deed::Granted { fence: granted.block.first, last: used });
        self.wishes -= 1;
        let hold = Hold::of(attempt);
        self.state = State::Holding(Box::new(Holding {
            number,
            join_due: hold.joined_from(),
            hold,
            request,
            block: granted.block,
            deadline,
            ends: now + Duration::from_millis(span),
            renew_due: lease::renew_due(began, granted.left),
            kept,
            upholding: None,
            used,
        }));
    }

    fn hold(&mut self, now: Moment, out: &mut Vec<Deed>) {
        let State::Holding(holding) = &mut self.state else { return };
        if let Some((_, upholding)) = &mut holding.upholding
            && let Some(verdict) = upholding.verdict(now)
        {
            let (_, upholding) = holding.upholding.take().expect("it is under way");
            holding.renew_due = lease::renew_again(now, self.lease);
            let verdict = verdict.map(|renewed| renewed[0]);
            self.upheld(now, &upholding, verdict.unwrap_or(Renewed::Unknown), out);
        }
        let State::Holding(holding) = &mut self.state else { return };
        if now >= holding.deadline.min(holding.ends) {
            return self.let_go(now, out);
        }
        if now >= holding.join_due {
            holding.join_due = Moment::NEVER;
            let vacant: Vec<usize> = holding.hold.vacant().collect();
            let whole = self.planted.is(Bug::AnewProlongs);
            let term = if whole { self.lease } else { holding.deadline.since(now) };
            self.ask_anew(now, &vacant, term, out);
        }
        let State::Holding(holding) = &mut self.state else { return };
        if holding.kept && holding.upholding.is_none() && now >= holding.renew_due {
            let (owner, fence) = (StoreOwner::Shared(format!("{}", self.id).into()), holding.block.first);
            let lease = Lease { name: self.name.clone(), owner, fence };
            let hold = self.planted.is(Bug::ExtensionRecreates).then_some(holding.request);
            let renew = Renew { lease, hold, term: self.lease, kept: true };
            let ends = now + self.rules.limit(self.lease);
            let upholding = Upholding::begin(&self.rules, 1, now, ends);
            self.numbers += 1;
            let number = self.numbers;
            holding.upholding = Some((number, upholding));
            for server in 0..self.rules.servers() {
                self.send(now, What::Uphold(number), server, Ask::Uphold(vec![renew.clone()]), out);
            }
        }
    }

    fn upheld(&mut self, now: Moment, upholding: &Upholding, renewed: Renewed, out: &mut Vec<Deed>) {
        let State::Holding(holding) = &mut self.state else { return };
        if now >= holding.deadline {
            return;
        }
        match renewed {
            Renewed::Kept { left } => {
                let began = upholding.began();
                let deadline = if self.planted.is(Bug::NoDrift) { began + left } else { lease::deadline(began, left) };
                holding.deadline = holding.deadline.max(deadline);
                holding.renew_due = lease::renew_due(began, left);
                let vacant: Vec<usize> = upholding.vacant(0).collect();
                self.ask_anew(now, &vacant, self.lease, out);
            }
            Renewed::Lost => holding.deadline = now,
            Renewed::Unknown => {}
        }
    }

    /// Asks servers for their vote anew that do not have what is held.
    fn ask_anew(&mut self, now: Moment, vacant: &[usize], term: Duration, out: &mut Vec<Deed>) {
        let State::Holding(holding) = &mut self.state else { return };
        let (attempt, names) = (holding.number, std::slice::from_ref(&self.name));
        let mut ballots: Vec<(usize, Ballot)> = Vec::new();
        for server in vacant.iter().copied() {
            let ballot = holding.hold.ask_anew(&self.rules, server, names, term, now, &self.clocks);
            ballots.extend(ballot.map(|ballot| (server, ballot)));
        }
        for (server, ballot) in ballots {
            self.send(now, What::Anew { attempt }, server, Ask::Vote(Box::new(ballot)), out);
        }
    }

    fn let_go(&mut self, now: Moment, out: &mut Vec<Deed>) {
        let think = Duration::from_micros(self.chance.within(0..200_000));
        let idle = State::Idle { until: now + think };
        let State::Holding(holding) = &mut self.state else { return };
        let traces: PerServer<_> = holding.hold.release();
        if self.planted.is(Bug::AnewAfterRelease) {
            let vacant: Vec<usize> = holding.hold.vacant().collect();
            self.ask_anew(now, &vacant, self.lease, out);
        }
        let State::Holding(holding) = std::mem::replace(&mut self.state, idle) else { return };
        let give_up = lease::surely_over(now + self.rules.limit(self.lease), self.lease);
        let sweep = Sweep::begin(&self.rules, traces, now, now + CALL_LIMIT, give_up);
        let release = holding.hold.giving(Release {
            client: self.id,
            name: self.name.clone(),
            owner: self.owner(),
            fence: Some(holding.block.first),
            give: Give::All,
            last_used: Some(holding.used),
            linger: Duration::ZERO,
            rejoin: false,
        });
        let (number, attempt, request) = (self.number(), holding.number, holding.request);
        self.sweeps.push(Sweeping { number, attempt, hold: holding.hold, sweep, release, request, give_up });
    }

    fn sweep(&mut self, now: Moment, out: &mut Vec<Deed>) {
        let mut due: Vec<(u64, usize, Release)> = Vec::new();
        for sweeping in &mut self.sweeps {
            let _ = sweeping.sweep.verdict(now);
            let servers = sweeping.sweep.due(now);
            due.extend(servers.into_iter().map(|server| (sweeping.number, server, sweeping.release.clone())));
        }
        for (number, server, release) in due {
            self.send(now, What::Sweep(number), server, Ask::Release(Box::new(release)), out);
        }
        self.sweeps.retain(|sweeping| {
            let done = sweeping.sweep.is_done();
            if done && now < sweeping.give_up {
                out.push(Deed::Swept { request: sweeping.request });
            }
            !done
        });
    }
}
