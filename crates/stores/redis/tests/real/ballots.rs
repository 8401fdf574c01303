//! One server of a quorum and the reference side by side: the same random ballots, and the same votes to the last fence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::backoff::Rng;
use leasehold_core::port::{Acquire, Answered, Break, Inspected, Mode, Release, ReleaseScope, Renew, Renewed, Store};
use leasehold_core::quorum::{Ballot, Member, Voted};
use leasehold_core::reference::{FENCES_KEPT_FOR, Reference};
use leasehold_core::{Block, ClientId, Fence, Lease, Name, Names, RequestId, StoreOwner, StoreTime};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis as Server;
use leasehold_redis::{Config, Redis};
use tokio::task::JoinSet;

use crate::scene::{Case, Checked, MS, S, block_on};

pub(crate) const CASES: &[Case] = &[("ballots::the_votes_of_the_reference", || block_on(the_votes_of_the_reference()))];

/// Rounds that run side by side, on names of their own.
const LANES: u64 = 12;
/// Steps of a round.
const STEPS: u64 = 60;
/// A lane ends when this many of its steps were compared, ...
const COMPARED: u64 = 120;
/// ... or after this, on a machine that is too slow for the ends.
const LANE_LIMIT: Duration = Duration::from_secs(40);
/// But not before this many: with none, nothing would be shown.
const COMPARED_MIN: u64 = 4;
/// A server keeps an end in whole milliseconds, and may be interrupted between reading its clock for the key and for the script, but for
/// no longer than the call took: that is added.
const SLACK: Duration = Duration::from_millis(2);
/// If calls take longer than this, short leases cannot be distinguished.
const SLACK_MAX: Duration = Duration::from_millis(100);
/// An end that is nearer than this is waited for before anything is asked.
const AHEAD: Duration = Duration::from_millis(10);
const SEED: &str = "LEASEHOLD_SEED";

async fn the_votes_of_the_reference() -> Checked {
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| leasehold_clock::now().as_nanos());
    let server = Server::start()?;
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let place = format!("//{}", server.address());
        // The effect of a call that timed out could not be compared.
        let options = [("layout", "plain"), ("timeout", "30s")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let config = Config::new("redis", &place, &options, None)?;
        let store = Redis::new(&config.with_quarantine(Duration::ZERO))?;
        lanes.spawn(rounds(store, lane, seed));
    }
    while let Some(finished) = lanes.join_next().await {
        finished?.map_err(|error| format!("{error}\nonce more with {SEED}={seed}"))?;
    }
    Ok(())
}

/// Rounds, one after the other, until enough steps of them were compared.
async fn rounds(store: Redis, lane: u64, seed: u64) -> Checked {
    let (began, mut compared, mut round) = (Instant::now(), 0, 0);
    while compared < COMPARED && (compared < COMPARED_MIN || began.elapsed() < LANE_LIMIT) {
        let rng = Rng::new(seed.wrapping_add(lane * 1_000 + round));
        let mut pair = Pair::new(store.clone(), lane, round, rng);
        for step in 0..STEPS {
            let said = |error| -> Failure { format!("lane {lane}, round {round}, step {step}: {error}").into() };
            if !pair.step().await.map_err(said)? {
                break;
            }
            compared += 1;
        }
        round += 1;
    }
    Ok(())
}

/// A server and the reference, and the ballots that were sent to both.
struct Pair {
    store: Redis,
    reference: Reference,
    names: Vec<Name>,
    sent: Vec<Ballot>,
    ends: Vec<StoreTime>,
    client: ClientId,
    number: u64,
    slack: Duration,
    rng: Rng,
}

impl Pair {
    fn new(store: Redis, lane: u64, round: u64, rng: Rng) -> Self {
        let names = (0..2).map(|at| Name::new(format!("{lane}-{round}-{at}")).expect("a name")).collect();
        let reference = Reference::new(round, FENCES_KEPT_FOR);
        Self {
            store,
            reference,
            names,
            sent: Vec::new(),
            ends: Vec::new(),
            client: ClientId([lane, round]),
            number: 0,
            slack: SLACK,
            rng,
        }
    }

    /// Whether both could be compared: not where the server answered at the moment of an end.
    async fn step(&mut self) -> Result<bool, Failure> {
        if self.one_in(8) {
            tokio::time::sleep(MS * self.rng.below(600) as u32).await;
        }
        let now = self.settle().await?;
        match (self.rng.below(12), self.sent.is_empty()) {
            (0..=1, false) => self.vote_again(now).await,
            (2..=3, false) => self.uphold().await,
            (4..=6, false) => self.withdraw().await,
            (7, _) => self.look().await,
            _ => self.vote_new(now).await,
        }
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.rng.below(many) == 0
    }

    /// Waits for a call, and sees how long it takes.
    async fn timed<T>(&mut self, call: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let answer = call.await;
        self.slack = self.slack.max(SLACK + began.elapsed());
        answer
    }

    fn near(&self, theirs: Duration, ours: Duration) -> bool {
        theirs.abs_diff(ours) <= self.slack
    }

    async fn settle(&mut self) -> Result<StoreTime, Failure> {
        loop {
            let now = self.store.clock().await?.at;
            self.find_ends();
            let near = |end: &&StoreTime| **end + self.slack > now && **end < now + AHEAD;
            let Some(last) = self.ends.iter().filter(near).max() else { return Ok(now) };
            tokio::time::sleep((*last + self.slack).since(now) + MS).await;
        }
    }

    fn find_ends(&mut self) {
        self.ends.clear();
        for name in &self.names {
            let Some(record) = self.reference.take(name) else { continue };
            self.ends.extend(record.rows.iter().map(|row| row.expires));
            self.ends.extend(record.waiters.iter().map(|waiter| waiter.until));
            self.ends.push(record.cooldown_until);
            self.reference.put(name.clone(), record);
        }
    }

    fn is_clear(&self, at: StoreTime) -> bool {
        self.slack <= SLACK_MAX && !self.ends.iter().any(|end| at < *end + self.slack && *end <= at + self.slack)
    }

    fn request(&mut self) -> RequestId {
        self.number += 1;
        RequestId { client: self.client, number: self.number }
    }

    fn any_sent(&mut self) -> Ballot {
        let from = self.sent.len().saturating_sub(5);
        let at = from + self.rng.below((self.sent.len() - from) as u64) as usize;
        self.sent[at].clone()
    }

    async fn vote_new(&mut self, now: StoreTime) -> Result<bool, Failure> {
        let request = self.request();
        let names = self.names.clone();
        let which = self.rng.below(5) as usize;
        let names = if which == 0 { Names::new(names)? } else { Names::One(names[which % 2].clone()) };
        // Every attempt is a request of its own, for the same owner.
        let again = !self.sent.is_empty() && self.one_in(4);
        let owner = if again { self.any_sent().acquire.owner } else { StoreOwner::Private(request) };
        let acquire = Acquire {
            names,
            owner,
            request,
            mode: Mode::Exclusive,
            lease: MS * 300,
            block: 1,
            seen: Fence::NONE,
            clock: Default::default(),
            not_after: StoreTime::NEVER,
            enlist: false,
            kept: false,
            about: Arc::default(),
        };
        let block = Block { first: Fence::at(now), len: 1 };
        let mut ballot = Ballot { acquire, block, again: false };
        self.change(&mut ballot, now);
        self.sent.push(ballot.clone());
        self.vote(ballot).await
    }

    /// What may be another with every sending.
    fn change(&mut self, ballot: &mut Ballot, now: StoreTime) {
        let clock = Fence::at(now);
        let first = match self.rng.below(8) {
            0 => clock.plus(30_000_000),
            1 => Fence::new(clock.get() - 30_000_000),
            2 if !self.sent.is_empty() => self.any_sent().block.first.plus(self.rng.below(3)),
            _ => clock.plus(self.rng.below(1_000)),
        };
        ballot.block = Block { first, len: 1 + self.rng.below(3) as u32 };
        ballot.acquire.lease = [MS * 300, MS * 600, S * 60][self.rng.below(3) as usize];
        ballot.acquire.enlist = self.one_in(2);
        ballot.acquire.not_after = match self.rng.below(8) {
            0 => now - MS,
            1 => now + MS * 150,
            _ => StoreTime::NEVER,
        };
    }

    /// The same request again, another attempt of it, or one that joins what others hold: never late, as the reference
    /// then considers only the request, and a server the grant.
    async fn vote_again(&mut self, now: StoreTime) -> Result<bool, Failure> {
        let mut ballot = self.any_sent();
        match self.rng.below(4) {
            0 => self.change(&mut ballot, now),
            1 => {
                ballot.again = true;
                ballot.acquire.not_after = StoreTime::NEVER;
            }
            2 => {
                ballot.again = true;
                ballot.acquire.request = self.request();
                ballot.acquire.not_after = StoreTime::NEVER;
            }
            _ => {}
        }
        self.vote(ballot).await
    }

    async fn vote(&mut self, ballot: Ballot) -> Result<bool, Failure> {
        let call = self.store.vote(ballot.clone());
        let theirs = self.timed(call).await?;
        if !self.is_clear(theirs.at) {
            return Ok(false);
        }
        let ours = self.reference.vote(theirs.at, &ballot, Fence::NONE);
        let is_same = match (&theirs.result.voted, &ours) {
            (Voted::Took { left: theirs }, Voted::Took { left: ours }) => self.near(*theirs, *ours),
            (Voted::Held { left: theirs, last: known }, Voted::Held { left: ours, last }) => {
                self.near(*theirs, *ours) && known == last
            }
            (Voted::Busy(theirs), Voted::Busy(ours)) => {
                let holder = |busy: &leasehold_core::port::Busy| {
                    busy.holder.as_ref().map(|holder| (holder.owner.clone(), holder.fence, holder.broken))
                };
                let free_in = theirs.free_in.zip(ours.free_in).is_some_and(|(theirs, ours)| self.near(theirs, ours));
                theirs.name == ours.name && free_in && holder(theirs) == holder(ours)
            }
            (Voted::TooLate, Voted::TooLate) => true,
            _ => false,
        };
        same(is_same && theirs.result.standing.votes(), &ballot, &theirs.result, &ours)
    }

    fn lease(&mut self, ballot: &Ballot) -> Lease {
        let names = ballot.acquire.names.as_slice();
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        let fence = if self.one_in(6) { self.any_sent().block.first } else { ballot.block.first };
        Lease { name, owner: ballot.acquire.owner.clone(), fence }
    }

    async fn uphold(&mut self) -> Result<bool, Failure> {
        let mut leases = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let ballot = self.any_sent();
            let hold = (!self.one_in(3)).then_some(ballot.acquire.request);
            let term = [MS * 300, MS * 600, S * 60][self.rng.below(3) as usize];
            leases.push(Renew { lease: self.lease(&ballot), hold, term, kept: false });
        }
        let call = self.store.uphold(leases.clone());
        let theirs = self.timed(call).await?;
        if !self.is_clear(theirs.at) {
            return Ok(false);
        }
        let ours = self.reference.renew(theirs.at, &leases);
        let is_same = |(theirs, ours): (&Renewed, &Renewed)| match (theirs, ours) {
            (Renewed::Kept { left: theirs }, Renewed::Kept { left: ours }) => self.near(*theirs, *ours),
            (theirs, ours) => theirs == ours,
        };
        let renewed = &theirs.result.renewed;
        let all = renewed.len() == ours.len() && renewed.iter().zip(&ours).all(is_same);
        same(all && theirs.result.standing.votes(), &leases, &theirs.result, &ours)
    }

    async fn withdraw(&mut self) -> Result<bool, Failure> {
        let ballot = self.any_sent();
        let lease = self.lease(&ballot);
        let is_known = self.one_in(2);
        let release = Release {
            client: self.client,
            name: lease.name,
            owner: lease.owner,
            fence: is_known.then_some(lease.fence),
            scope: ReleaseScope::Hold(ballot.acquire.request),
            last_used: is_known.then(|| lease.fence.plus(self.rng.below(3))),
            cooldown: if self.one_in(6) { MS * 200 } else { Duration::ZERO },
            rejoin: false,
        };
        let quietly = self.one_in(2);
        let call = if quietly { self.store.withdraw(release.clone()) } else { self.store.release(release.clone()) };
        let theirs = self.timed(call).await?;
        if !self.is_clear(theirs.at) {
            return Ok(false);
        }
        let (ours, _) = self.reference.release(theirs.at, &release);
        same(theirs.result == ours, &release, &theirs.result, &ours)
    }

    async fn look(&mut self) -> Result<bool, Failure> {
        let name = self.names[self.rng.below(2) as usize].clone();
        let how = [Some(Break::AtLeaseEnd), Some(Break::Now), None, None][self.rng.below(4) as usize];
        let store = self.store.clone();
        let looked = name.clone();
        let call = async move {
            match how {
                Some(how) => store
                    .break_lock(looked, how.into())
                    .await
                    .map(|broken| Answered { at: broken.at, result: broken.result.was }),
                None => store.inspect(looked).await,
            }
        };
        let theirs = self.timed(call).await?;
        if !self.is_clear(theirs.at) {
            return Ok(false);
        }
        let ours = match how {
            Some(how) => self.reference.break_lock(theirs.at, &name, how.into()).0.was,
            None => self.reference.inspect(theirs.at, &name),
        };
        let fences = |found: &Inspected| -> Vec<_> { found.holders.iter().map(|holder| holder.fence).collect() };
        let is_same = fences(&theirs.result) == fences(&ours) && theirs.result.waiters == ours.waiters;
        same(is_same, &name, &theirs.result, &ours)
    }
}

fn same(
    is_same: bool,
    asked: &dyn std::fmt::Debug,
    theirs: &dyn std::fmt::Debug,
    ours: &dyn std::fmt::Debug,
) -> Result<bool, Failure> {
    if is_same {
        return Ok(true);
    }
    Err(format!("to {asked:?} the server says {theirs:?}, the reference {ours:?}").into())
}
