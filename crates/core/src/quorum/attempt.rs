//! One asking of all servers at once: counted as the votes come, answered as soon as it is certain.

use std::time::Duration;

use super::clocks::{Clocks, is_near};
use super::epoch::VotingStatus;
use super::member::{Ballot, Vote, Voted};
use super::{PerServer, ReplicaReply, Rules, Said};
use crate::backoff::Rng;
use crate::error::{Error, Outcome};
use crate::fence::{Block, Fence};
use crate::port::{Acquire, Answered, Busy, Granted, Release, Reply};
use crate::time::{Moment, StoreTime};

/// How many rounds of proposed fences one attempt has.
const ROUNDS: u32 = 4;
/// Clients that asked at the same time pause for at least this long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The result of an attempt.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// A majority voted for it: the same grant for each name.
    Granted(Granted),
    /// Others have too many of the servers.
    Busy {
        /// As a store tells it.
        busy: Box<Busy>,
        /// Nobody has a majority: several asked at the same time, and the same again after a pause may succeed.
        split: bool,
    },
    /// Too few servers answer and vote.
    Failed {
        /// What each of them said. For a repeat its outcome is unknown while the grant may still stand, and *not applied* once it
        /// certainly does not.
        error: Error,
        /// None of them was heard of in time, not even with an error, or heard of us.
        silent: bool,
    },
}

/// One asking, from its sending to its verdict.
#[derive(Clone, Debug)]
pub struct Attempt {
    rules: Rules,
    request: Acquire,
    began: Moment,
    round: u32,
    block: Block,
    ends: Moment,
    replicas: PerServer<ReplicaState>,
    /// The caller is answered then at the latest.
    answer_by: Moment,
    /// A majority granted this before: it is asked whether it still does.
    repeats: bool,
    decided: bool,
    granted: bool,
}

/// Where one server stands.
#[derive(Clone, Debug, Default)]
struct ReplicaState {
    /// Ballots that were sent and not answered.
    open: u32,
    /// The last moment at which one of them can be executed.
    not_after: StoreTime,
    /// It was asked, and may hold the names for this attempt.
    touched: bool,
    /// It held them at some time.
    had: bool,
    said: Option<ReplicaReply<Vote>>,
}

impl ReplicaState {
    fn votes_for(&self) -> Option<Moment> {
        match &self.said {
            Some(ReplicaReply::Answered {
                sent,
                answer: Vote { standing: VotingStatus::Votes, voted: Voted::Took { left } },
            }) => Some(*sent + *left),
            _ => None,
        }
    }

    /// The names are ours there, and it votes, but for no fence that was proposed.
    fn holds(&self) -> bool {
        let Some(ReplicaReply::Answered { answer: vote, .. }) = &self.said else { return false };
        vote.standing.votes() && matches!(vote.voted, Voted::Took { .. } | Voted::Held { .. })
    }

    fn busy(&self) -> Option<&Busy> {
        match &self.said {
            Some(ReplicaReply::Answered { answer: Vote { voted: Voted::Busy(busy), .. }, .. }) => Some(busy),
            _ => None,
        }
    }

    /// It does not have the names, as far as is known, and may vote for them yet.
    fn is_vacant(&self) -> bool {
        match &self.said {
            Some(ReplicaReply::Answered { answer: vote, .. }) => {
                vote.standing.votes() && matches!(vote.voted, Voted::Busy(_) | Voted::TooLate)
            }
            Some(ReplicaReply::Failed(error)) => error.is_retryable(),
            Some(ReplicaReply::Silent) | None => true,
        }
    }

    /// It answered, and its vote does not count for this attempt.
    fn is_without(&self) -> bool {
        matches!(self.said, Some(ReplicaReply::Answered { .. })) && self.votes_for().is_none()
    }

    /// Why it cannot be asked for a vote, now or later.
    fn unfit(&self) -> Option<&Error> {
        match &self.said {
            Some(ReplicaReply::Failed(error)) if !error.is_retryable() => Some(error),
            _ => None,
        }
    }

    /// Nothing was heard of it in time, or it heard of us too late.
    fn is_silent(&self) -> bool {
        match &self.said {
            Some(ReplicaReply::Silent) | None => true,
            Some(ReplicaReply::Answered { answer: vote, .. }) => matches!(vote.voted, Voted::TooLate),
            Some(ReplicaReply::Failed(_)) => false,
        }
    }

    fn is_up(&self) -> bool {
        matches!(&self.said, Some(ReplicaReply::Answered { answer: vote, .. }) if vote.standing.votes())
    }

    /// It said last that it does not have the names for us.
    fn refused(&self) -> bool {
        matches!(&self.said, Some(ReplicaReply::Answered { answer: vote, .. }) if matches!(vote.voted, Voted::Busy(_) | Voted::TooLate))
    }

    /// Until when ballots can still be executed there, if so.
    fn open_until(&self) -> Option<StoreTime> {
        (self.open > 0).then_some(self.not_after)
    }
}

/// A ballot to be sent.
#[derive(Clone, Debug)]
pub struct Send {
    /// To whom.
    pub server: usize,
    /// In which round; the answer must name it again.
    pub round: u32,
    /// What.
    pub ballot: Ballot,
}

impl Attempt {
    /// Begins to ask. `request` has an id that no other attempt has. Servers that are known not to answer are left out, with the reason.
    pub fn begin(
        rules: &Rules,
        request: Acquire,
        now: Moment,
        clocks: &Clocks,
        left_out: PerServer<Option<Option<Error>>>,
    ) -> (Self, Vec<Send>) {
        let silent = |error: Option<Error>| Some(error.map_or(ReplicaReply::Silent, ReplicaReply::Failed));
        let replica = |left_out: Option<Option<Error>>| ReplicaState {
            said: left_out.and_then(silent),
            ..ReplicaState::default()
        };
        let mut attempt = Self {
            rules: rules.clone(),
            began: now,
            round: 0,
            block: Block { first: Fence::NONE, len: request.block.max(1) },
            ends: now,
            answer_by: now,
            replicas: left_out.into_iter().map(replica).collect(),
            request,
            repeats: false,
            decided: false,
            granted: false,
        };
        let seen = attempt.request.seen;
        let sends = attempt.propose(now, clocks, seen);
        (attempt, sends)
    }

    /// The same ballots once more: servers that granted them say so again, and no other fences are proposed.
    ///
    /// Silence says nothing against a grant. So the verdict is that it stands, that too many servers do not have it, or that nothing
    /// is known.
    pub fn repeat(&self, now: Moment, clocks: &Clocks) -> (Self, Vec<Send>) {
        let round = ROUNDS - 1;
        let mut again = Self { began: now, repeats: true, decided: false, granted: false, round, ..self.clone() };
        again.replicas.iter_mut().for_each(|replica| replica.said = None);
        let sends = again.ask(now, clocks);
        (again, sends)
    }

    /// Waits for servers until then, though their ballots end before: one that has the names says so however late it is asked.
    pub fn wait_until(&mut self, until: Moment) {
        self.answer_by = self.answer_by.max(until);
    }

    /// A ballot of another sending may be executed at a server until then, and is not heard of.
    pub(super) fn is_open_until(&mut self, server: usize, until: StoreTime) {
        let replica = &mut self.replicas[server];
        (replica.touched, replica.open, replica.not_after) = (true, replica.open + 1, replica.not_after.max(until));
    }

    /// Asks every server that is not known to refuse for higher fences than these.
    fn propose(&mut self, now: Moment, clocks: &Clocks, above: Fence) -> Vec<Send> {
        self.block.first = clocks.propose(now, above);
        self.ask(now, clocks)
    }

    fn ask(&mut self, now: Moment, clocks: &Clocks) -> Vec<Send> {
        let limit = self.rules.limit(self.request.lease);
        self.round += 1;
        self.ends = now + limit;
        self.answer_by = self.ends;
        let (round, block) = (self.round, self.block);
        let mut sends = Vec::with_capacity(self.replicas.len());
        for (server, replica) in self.replicas.iter_mut().enumerate() {
            if matches!(replica.said, Some(ReplicaReply::Failed(_) | ReplicaReply::Silent)) || replica.busy().is_some()
            {
                continue;
            }
            let Some(latest) = clocks.latest(server, now) else {
                replica.said = Some(ReplicaReply::Silent);
                continue;
            };
            let not_after = latest + limit;
            replica.said = None;
            replica.open += 1;
            replica.touched = true;
            replica.not_after = replica.not_after.max(not_after);
            let acquire = Acquire { not_after, seen: Fence::NONE, ..self.request.clone() };
            sends.push(Send { server, round, ballot: Ballot { acquire, block, again: false } });
        }
        sends
    }

    /// A vote, or why there is none.
    pub fn voted(
        &mut self,
        now: Moment,
        clocks: &Clocks,
        server: usize,
        round: u32,
        sent: Moment,
        reply: Reply<Vote>,
    ) -> Vec<Send> {
        let replica = &mut self.replicas[server];
        let heard = match reply {
            Ok(Answered { result: vote, .. }) => {
                replica.open = replica.open.saturating_sub(1);
                replica.had |= matches!(vote.voted, Voted::Took { .. } | Voted::Held { .. });
                ReplicaReply::Answered { sent, answer: vote }
            }
            // It was not sent, or may be executed until its `not_after`.
            Err(error) => {
                if error.outcome() == Outcome::NotApplied {
                    replica.open = replica.open.saturating_sub(1);
                }
                ReplicaReply::Failed(error)
            }
        };
        if round != self.round {
            return Vec::new();
        }
        replica.said = Some(heard);
        if self.decided { Vec::new() } else { self.count(now, clocks) }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment, clocks: &Clocks) -> Vec<Send> {
        if self.decided || now < self.answer_by {
            return Vec::new();
        }
        for replica in self.replicas.iter_mut().filter(|replica| replica.said.is_none()) {
            replica.said = Some(ReplicaReply::Silent);
        }
        self.count(now, clocks)
    }

    /// When the next tick is due.
    pub fn wakes(&self) -> Moment {
        if self.decided { Moment::NEVER } else { self.answer_by }
    }

    /// How many more servers must answer, at least, before the result can be certain.
    pub fn awaits(&self) -> usize {
        // It may wait for long: no server's step is to be missed meanwhile.
        if self.repeats {
            return 1;
        }
        let (servers, majority) = (self.replicas.len(), self.rules.majority());
        let took = self.replicas.iter().filter(|replica| replica.votes_for().is_some()).count();
        let open = self.replicas.iter().filter(|replica| replica.said.is_none()).count();
        let unfit = self.replicas.iter().filter_map(ReplicaState::unfit).count();
        let granted = majority.saturating_sub(took);
        let lost = (took + open + 1).saturating_sub(majority);
        // Where servers are left out one more decides that it is lost; what is said then needs others.
        let known = majority.saturating_sub(self.up().max(self.may_be_busy()));
        let told = open.min(known).min((servers - majority + 1).saturating_sub(unfit));
        granted.min(lost.max(told)).max(1)
    }

    /// Whether a round is lost only because its fences were not taken: then higher ones are proposed.
    fn count(&mut self, now: Moment, clocks: &Clocks) -> Vec<Send> {
        let majority = self.rules.majority();
        let took = self.replicas.iter().filter(|replica| replica.votes_for().is_some()).count();
        let open = self.replicas.iter().filter(|replica| replica.said.is_none()).count();
        let holding = self.replicas.iter().filter(|replica| replica.holds()).count();
        if took >= majority || took + open >= majority || holding < majority || self.round == ROUNDS {
            return Vec::new();
        }
        let known = self.replicas.iter().filter_map(|replica| match &replica.said {
            Some(ReplicaReply::Answered { answer: Vote { voted: Voted::Held { last, .. }, .. }, .. }) => Some(*last),
            _ => None,
        });
        // No higher than needed: a fence that is far from the clocks is taken by nobody, and one server's must not spoil the others'.
        let middle = clocks.middle(now).unwrap_or_default();
        let above = known
            .filter(|last| is_near((*last).max(Fence::at(middle)), middle))
            .max()
            .unwrap_or_default()
            .max(self.block.last())
            .max(self.request.seen);
        self.propose(now, clocks, above)
    }

    /// The result, once, as soon as it is certain.
    pub fn verdict(&mut self, now: Moment, rng: &mut Rng) -> Option<Verdict> {
        if self.decided {
            return None;
        }
        let majority = self.rules.majority();
        let mut ends: PerServer<Moment> = self.replicas.iter().filter_map(ReplicaState::votes_for).collect();
        let open = self.replicas.iter().filter(|replica| replica.said.is_none()).count();
        if ends.len() >= majority {
            (self.decided, self.granted) = (true, true);
            ends.sort_unstable_by(|a, b| b.cmp(a));
            let left = ends[majority - 1].since(self.began);
            return Some(Verdict::Granted(Granted { block: self.block, holds: 1, left }));
        }
        if self.repeats {
            return self.repeated(now, open, rng);
        }
        if ends.len() + open >= majority {
            return None;
        }
        // The others may say that it is held, and if not, how they are.
        if open > 0 && self.too_few() && !self.is_hopeless() {
            return None;
        }
        self.decided = true;
        Some(self.refusal(now, rng))
    }

    /// The result of a repeat that no majority has confirmed.
    fn repeated(&mut self, now: Moment, open: usize, rng: &mut Rng) -> Option<Verdict> {
        let without = self.replicas.iter().filter(|replica| replica.is_without()).count();
        let is_gone = without > self.replicas.len() - self.rules.majority();
        if !is_gone && open > 0 && now < self.answer_by {
            return None;
        }
        self.decided = true;
        if !is_gone {
            return Some(Verdict::Failed { error: self.failure().with_outcome(Outcome::Unknown), silent: false });
        }
        Some(match self.refusal(now, rng) {
            Verdict::Failed { error, silent } => {
                Verdict::Failed { error: error.with_outcome(Outcome::NotApplied), silent }
            }
            refusal => refusal,
        })
    }

    /// Whether too few servers answer and vote, as far as is known.
    fn too_few(&self) -> bool {
        let majority = self.rules.majority();
        let any_busy = self.replicas.iter().any(|replica| replica.busy().is_some());
        self.up() < majority && self.may_be_busy() < majority || !any_busy
    }

    fn up(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.is_up()).count()
    }

    /// A server that does not answer in time is as likely to be busy as to be down.
    fn may_be_busy(&self) -> usize {
        let slow = |replica: &ReplicaState| replica.touched && matches!(replica.said, Some(ReplicaReply::Silent));
        self.replicas.iter().filter(|replica| replica.busy().is_some() || slow(replica)).count()
    }

    /// Whether nothing would be better later: no majority is without servers that are unfit.
    fn is_hopeless(&self) -> bool {
        self.replicas.iter().filter_map(ReplicaState::unfit).count() > self.replicas.len() - self.rules.majority()
    }

    fn refusal(&self, now: Moment, rng: &mut Rng) -> Verdict {
        let majority = self.rules.majority();
        let busy: PerServer<&Busy> = self.replicas.iter().filter_map(ReplicaState::busy).collect();
        if self.too_few() {
            let silent = self.replicas.iter().all(ReplicaState::is_silent);
            return Verdict::Failed { error: self.failure(), silent };
        }
        let same = |one: &&Busy| busy.iter().filter(|other| is_same(one, other)).count();
        // A server that recovers may have what was tried there since, and has forgotten who holds it.
        let voting: PerServer<&Busy> =
            self.replicas.iter().filter(|replica| replica.is_up()).filter_map(ReplicaState::busy).collect();
        let told = |one: &&Busy| voting.iter().filter(|other| is_same(one, other)).count();
        let most = busy.iter().copied().max_by_key(|one| (told(one), same(one))).expect("somebody is busy");
        let split = same(&most) < majority;
        let mut busy_of_most = most.clone();
        // What fewer servers have is proposed, and may never have been granted.
        let has_fence = |other: &&&Busy| is_same(most, other) && fence_of(most) == fence_of(other);
        if let Some(holder) = &mut busy_of_most.holder
            && voting.iter().filter(has_fence).count() < majority
        {
            holder.fence = None;
        }
        busy_of_most.free_in = if split {
            Some(self.pause(now, rng))
        } else {
            free_in(&busy, majority.saturating_sub(self.replicas.len() - busy.len()))
        };
        Verdict::Busy { busy: Box::new(busy_of_most), split }
    }

    /// Those who ask at the same time must not do so again and again: longer than an attempt takes, and not the same for all. A process
    /// that stood still in the middle of it was not kept from its answers by servers: that time does not count.
    fn pause(&self, now: Moment, rng: &mut Rng) -> Duration {
        let longest = self.rules.limit(self.request.lease).max(SHORTEST_PAUSE);
        let took = now.since(self.began).clamp(SHORTEST_PAUSE, longest);
        let spread = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).saturating_mul(4);
        took + Duration::from_nanos(rng.below(spread))
    }

    fn failure(&self) -> Error {
        let said = self.replicas.iter().enumerate().map(|(server, replica)| {
            let said = match &replica.said {
                Some(ReplicaReply::Answered {
                    answer: Vote { standing: VotingStatus::Recovering { left }, .. },
                    ..
                }) => Said::Recovering(*left),
                Some(ReplicaReply::Answered { answer: vote, .. }) => Said::Fine(match vote.voted {
                    Voted::Took { .. } => "votes for it",
                    // Another client's proposal was ahead of ours: a higher one is made where a majority could take it.
                    Voted::Held { last, .. } if last >= self.block.first => "votes for it with a higher fence",
                    Voted::Held { .. } => {
                        "takes no fence that the others take: are the clocks more than a second apart?"
                    }
                    Voted::Busy(_) => "is busy",
                    Voted::TooLate => "was asked too late",
                }),
                Some(ReplicaReply::Failed(error)) => Said::Failed(error),
                Some(ReplicaReply::Silent) | None => Said::Silent,
            };
            (server, said)
        });
        match self.replicas.iter().find_map(ReplicaState::unfit) {
            Some(error) if self.is_hopeless() => error.clone(),
            _ => self.rules.no_quorum("acquire", Outcome::NotApplied, said),
        }
    }

    /// Which servers did not answer in time, for [`Health`](super::Health).
    pub fn silent(&self) -> impl Iterator<Item = (usize, Option<&Error>)> {
        self.replicas.iter().enumerate().filter_map(|(server, replica)| match &replica.said {
            Some(ReplicaReply::Silent) if replica.touched => Some((server, None)),
            Some(ReplicaReply::Failed(error)) if replica.touched => Some((server, Some(error))),
            _ => None,
        })
    }

    /// Whether a majority voted for it.
    pub(super) fn is_granted(&self) -> bool {
        self.granted
    }

    /// Which servers do not have it, as far as is known, and may vote for it yet.
    pub(super) fn vacant(&self) -> impl Iterator<Item = usize> {
        self.replicas.iter().enumerate().filter(|(_, replica)| replica.is_vacant()).map(|(server, _)| server)
    }

    /// Whether a server was sent any ballot.
    pub(super) fn was_asked(&self, server: usize) -> bool {
        self.replicas[server].touched
    }

    /// Whether every ballot that was sent to a server is answered.
    pub(super) fn is_answered(&self, server: usize) -> bool {
        self.replicas[server].open == 0
    }

    /// Until when ballots can still be executed at a server, if so.
    pub(super) fn open_until(&self, server: usize) -> Option<StoreTime> {
        self.replicas[server].open_until()
    }

    /// When no ballot of its last round is executed any more.
    pub(super) fn ends(&self) -> Moment {
        self.ends
    }

    /// What may be left behind: for each server, none where nothing can be, else until when ballots can still be executed there, if so.
    pub fn traces(&self) -> PerServer<Option<Option<StoreTime>>> {
        let of = |replica: &ReplicaState| {
            let open = replica.open_until();
            let may_have = replica.had || !replica.refused() || open.is_some();
            (replica.touched && may_have).then_some(open)
        };
        self.replicas.iter().map(of).collect()
    }

    /// How one of its names is given back.
    pub fn giving_back(&self, name: &crate::name::Name) -> Release {
        Release::hold(name.clone(), self.request.owner.clone(), self.request.request)
    }

    /// The fences that were proposed last.
    pub fn block(&self) -> Block {
        self.block
    }

    /// What was asked for.
    pub fn request(&self) -> &Acquire {
        &self.request
    }
}

fn is_same(one: &Busy, other: &Busy) -> bool {
    let owner = |busy: &Busy| busy.holder.as_ref().map(|holder| holder.owner.clone());
    owner(one) == owner(other)
}

fn fence_of(busy: &Busy) -> Option<Fence> {
    busy.holder.as_ref().and_then(|holder| holder.fence)
}

/// When this many of these are free, if nobody renews.
fn free_in(busy: &[&Busy], needed: usize) -> Option<Duration> {
    let mut spans: PerServer<Duration> = busy.iter().map(|busy| busy.free_in.unwrap_or(Duration::MAX)).collect();
    spans.sort_unstable();
    spans.get(needed.saturating_sub(1)).copied().filter(|span| *span < Duration::MAX)
}
