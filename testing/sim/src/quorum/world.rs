//! One world of a quorum: a plan drawn from a seed, disasters, and what must hold all the while.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use leasehold_core::port::{Answered, Release, ReleaseScope, Renewed};
use leasehold_core::quorum::{Ballot, Voted};
use leasehold_core::{Moment, RequestId};

use super::Drift;
use super::client::{Client, Deed, is_of};
use super::invariants::{
    availability, exclusion, fences, grants, left_over, not_after, quarantine, releases, repeats, revival,
};
use super::machine::lock;
use super::member::{Answer, Ask, Outgoing};
use super::plan::{Plan, Setting};
use super::server::Node;
use super::truth::{Executed, Execution, Facts, Truth};
use crate::agenda::Agenda;
use crate::chance::{Chance, MS, SECOND};
use crate::invariants::{Verdict, Violation};
use crate::world::History;

/// A call has ended by then, one way or another.
const CALL_LIMIT: u64 = 250 * MS;
/// Whatever is still to be given back is given back so long after the network is well.
const TIDY: u64 = 2_300 * MS;

enum Event {
    Tick(usize),
    AtServer { client: usize, call: u64, server: usize, ask: Ask },
    AtClient { client: usize, call: u64, answer: Option<Answer> },
    Reached { client: usize, server: usize },
    Disaster,
    Start(usize),
    Save,
    Calm,
    Finished(RequestId),
    Probe,
}

/// Servers, clients and a network.
pub struct World {
    plan: Arc<Plan>,
    agenda: Agenda<Event>,
    at: u64,
    chance: Chance,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    cut: Vec<Vec<bool>>,
    /// Requests of which the network made copies: one that is executed after the release leaves a lease to nobody, until it ends.
    copied: HashSet<RequestId, BuildHasherDefault<DefaultHasher>>,
    truth: Truth,
    used: Vec<fences::Used>,
    /// When a server last forgot something, was down or had its clock set, or a client stood still.
    disturbed: u64,
    history: History,
    /// How often two held the lock at a time, where that is expected.
    pub overlaps: u64,
    story: Option<String>,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64, drift: Drift, tell: bool) -> Self {
        let mut chance = Chance::new(seed ^ 0x71_75_6f_72);
        let plan = Arc::new(Plan::draw(&mut chance, drift));
        let mut world = Self {
            agenda: Agenda::default(),
            at: 0,
            nodes: (0..plan.rules.servers()).map(|_| Node::new(&mut chance, &plan)).collect(),
            clients: Vec::new(),
            cut: Vec::new(),
            copied: HashSet::default(),
            truth: Truth::default(),
            used: vec![fences::Used::default(); plan.names.len()],
            disturbed: 0,
            history: History::default(),
            overlaps: 0,
            story: tell.then(String::new),
            chance,
            plan,
        };
        world.tell(|world| format!("{:?}", world.plan));
        for _ in 0..world.plan.clients {
            world.come(false);
        }
        world.arrange();
        world
    }

    fn arrange(&mut self) {
        if self.plan.wild {
            for _ in 0..self.chance.within(3..25) {
                let at = self.chance.within(0..self.plan.calm);
                self.agenda.add(at, Event::Disaster);
            }
            for _ in 0..self.chance.within(0..8) {
                let at = self.chance.within(0..self.plan.calm);
                self.agenda.add(at, Event::Save);
            }
        }
        if self.plan.changes_sync {
            self.agenda.add(0, Event::Save);
        }
        self.agenda.add(self.plan.calm, Event::Calm);
        self.agenda.add(self.plan.probe, Event::Probe);
    }

    /// A client begins.
    fn come(&mut self, prober: bool) {
        let who = self.clients.len();
        let client = Client::new(who as u64, &self.plan, &mut self.chance, prober);
        let servers = self.nodes.len();
        let mut cut = vec![false; servers];
        if !prober && self.at < self.plan.calm {
            for (server, cut) in cut.iter_mut().enumerate() {
                if self.chance.permille(self.plan.unreached) {
                    *cut = true;
                    let at = self.at + self.chance.within(0..3 * SECOND);
                    self.agenda.add(at, Event::Reached { client: who, server });
                }
            }
        }
        let refused: Vec<bool> = self.nodes.iter().map(|node| self.plan.refuses && !node.up).collect();
        lock(&client.link).refused = refused;
        self.cut.push(cut);
        self.clients.push(client);
        self.agenda.add(self.at, Event::Tick(who));
        self.clients[who].tick_at = self.at;
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// The first invariant that did not hold.
    pub fn run(&mut self) -> Result<History, Violation> {
        while let Some((at, event)) = self.agenda.take_next() {
            if at > self.plan.end {
                break;
            }
            self.at = at;
            self.history.events += 1;
            self.happens(event)?;
        }
        Ok(self.history)
    }

    /// What happened, for people.
    pub fn timeline(&self) -> String {
        self.story.clone().unwrap_or_default()
    }

    fn tell(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.story.is_none() {
            return;
        }
        let line = what(self);
        if let Some(story) = &mut self.story {
            let _ = writeln!(story, "{:>10.6}  {line}", self.at as f64 / 1e9);
        }
    }

    fn digest(&mut self, number: u64) {
        self.history.digest = (self.history.digest ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }

    fn happens(&mut self, event: Event) -> Verdict {
        match event {
            // Another one was put down for an earlier time.
            Event::Tick(client) if self.at != self.clients[client].tick_at => Ok(()),
            Event::Tick(client) => {
                let still = self.clients[client].still_until;
                if self.at < still {
                    self.agenda.add(still, Event::Tick(client));
                    self.clients[client].tick_at = still;
                    return Ok(());
                }
                self.clients[client].tick_at = u64::MAX;
                self.step(client, |client, at| client.run(at))
            }
            Event::AtClient { client, call, answer } => self.hears(client, call, answer),
            Event::AtServer { client, call, server, ask } => self.arrives(client, call, server, ask),
            Event::Reached { client, server } => {
                self.cut[client][server] = false;
                Ok(())
            }
            Event::Disaster => {
                self.disaster();
                Ok(())
            }
            Event::Start(server) => {
                self.start(server);
                Ok(())
            }
            Event::Save => {
                let logs = self.plan.changes_sync;
                self.nodes.iter_mut().filter(|node| node.up && (!logs || node.keeps_log())).for_each(Node::save);
                if logs {
                    let every = self.plan.rules.quarantine.as_nanos() as u64 / 3;
                    self.agenda.add(self.at + every, Event::Save);
                }
                Ok(())
            }
            Event::Calm => {
                self.calm();
                Ok(())
            }
            Event::Finished(request) => {
                // One that died had no time to give it back where a server was away.
                let is_dead = self.clients.get(request.client.0[0] as usize).is_some_and(|client| client.dead);
                if is_dead || self.copied.contains(&request) {
                    return Ok(());
                }
                left_over::check(self.at, &mut self.nodes, &self.plan.names, request)
            }
            Event::Probe => {
                if self.plan.is_steady() && self.plan.drift == Drift::Assumed {
                    self.come(true);
                }
                Ok(())
            }
        }
    }

    /// Disasters are over.
    fn calm(&mut self) {
        self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
        for (who, client) in self.clients.iter_mut().enumerate() {
            client.tick_at = self.at;
            self.agenda.add(self.at, Event::Tick(who));
        }
        for server in 0..self.nodes.len() {
            self.start(server);
        }
        self.disturbed = self.at;
    }

    fn start(&mut self, server: usize) {
        if self.nodes[server].up {
            return;
        }
        let synced = (self.plan.changes_sync && self.chance.permille(600)).then(|| self.chance.permille(500));
        self.nodes[server].start(self.at, synced);
        self.tell(|_| format!("server {server} is back"));
        for client in &self.clients {
            lock(&client.link).refused[server] = false;
        }
    }

    fn hears(&mut self, client: usize, call: u64, answer: Option<Answer>) -> Verdict {
        if !lock(&self.clients[client].link).is_open(call) {
            return Ok(());
        }
        let still = self.clients[client].still_until;
        if self.at < still {
            self.agenda.add(still, Event::AtClient { client, call, answer });
            return Ok(());
        }
        self.tell(|_| format!("client {client} hears, of call {call}: {answer:?}"));
        self.step(client, |client, at| client.hears(at, call, answer))
    }

    fn step(&mut self, who: usize, step: impl FnOnce(&mut Client, u64)) -> Verdict {
        if self.clients[who].dead {
            return Ok(());
        }
        step(&mut self.clients[who], self.at);
        let sends = std::mem::take(&mut lock(&self.clients[who].link).outbox);
        for Outgoing { call, server, ask } in sends {
            self.send(who, call, server, &ask);
        }
        let deeds = std::mem::take(&mut lock(&self.clients[who].book).deeds);
        for deed in deeds {
            self.tell(|_| format!("client {who}: {deed:?}"));
            self.done(who, &deed)?;
        }
        let overlap = exclusion::overlap(self.at, who, &self.clients);
        if self.plan.is_exclusive() {
            exclusion::check(who, overlap)?;
        } else {
            self.overlaps += u64::from(overlap.is_some());
        }
        if let Some(wakes) = self.clients[who].wakes() {
            let at = self.clients[who].true_time(self.at, wakes).max(self.at) + 1_000;
            if at < self.clients[who].tick_at {
                self.clients[who].tick_at = at;
                self.agenda.add(at, Event::Tick(who));
            }
        }
        Ok(())
    }

    fn delay(&mut self) -> u64 {
        if self.plan.is_wild(self.at) && self.chance.permille(self.plan.slow) {
            self.chance.within(MS..self.plan.slowest)
        } else {
            self.chance.within(50_000..2 * MS)
        }
    }

    fn is_lost(&mut self, client: usize, server: usize) -> bool {
        self.cut[client][server] || self.plan.is_wild(self.at) && self.chance.permille(self.plan.loss)
    }

    fn send(&mut self, client: usize, call: u64, server: usize, ask: &Ask) {
        self.tell(|_| format!("client {client} asks server {server}, call {call}: {ask:?}"));
        self.agenda.add(self.at + CALL_LIMIT, Event::AtClient { client, call, answer: None });
        let copies = 1 + usize::from(self.plan.is_wild(self.at) && self.chance.permille(self.plan.twice));
        if copies > 1 {
            match ask {
                Ask::Vote(ballot) => drop(self.copied.insert(whole(ballot.acquire.request))),
                Ask::Release(release) => self.copied.extend(given(release).map(whole)),
                Ask::Clock | Ask::Uphold(_) => {}
            }
        }
        for _ in 0..copies {
            if !self.is_lost(client, server) {
                let at = self.at + self.delay();
                self.agenda.add(at, Event::AtServer { client, call, server, ask: ask.clone() });
            }
        }
    }

    fn arrives(&mut self, client: usize, call: u64, server: usize, ask: Ask) -> Verdict {
        let node = &mut self.nodes[server];
        if node.up && self.at < node.still_until {
            let at = node.still_until;
            self.agenda.add(at, Event::AtServer { client, call, server, ask });
            return Ok(());
        }
        if !node.up {
            return Ok(());
        }
        let answer = match &ask {
            Ask::Clock => Answer::Clock(Ok(Answered { at: node.now(self.at), result: () })),
            Ask::Vote(ballot) => self.vote(server, ballot)?,
            Ask::Uphold(leases) => self.uphold(server, leases)?,
            Ask::Release(release) => self.release(server, release)?,
        };
        self.tell(|_| format!("server {server} answers client {client}, call {call}: {answer:?}"));
        if self.is_lost(client, server) {
            return Ok(());
        }
        let at = self.at + self.delay();
        self.agenda.add(at, Event::AtClient { client, call, answer: Some(answer) });
        Ok(())
    }

    fn executed(&mut self, server: usize, what: Executed, votes: bool, left: std::time::Duration) {
        let until = self.at.saturating_add(self.nodes[server].true_span(left));
        self.truth.add(Execution { at: self.at, server, what, votes, until });
    }

    /// Whether a server counts though it should not.
    fn votes(&self, server: usize, votes: bool) -> Verdict {
        let node = &self.nodes[server];
        if !self.plan.is_steady() {
            return Ok(());
        }
        let facts = Facts { server, now: node.now(self.at), forgot: node.forgot };
        quarantine::check(facts, votes, self.plan.rules.quarantine)
    }

    fn vote(&mut self, server: usize, ballot: &Ballot) -> Result<Answer, Violation> {
        let (at, node) = (self.at, &mut self.nodes[server]);
        let now = node.now(at);
        let (attempt, names) = (ballot.acquire.request, ballot.acquire.names.as_slice());
        let had = names.iter().all(|name| {
            node.holds_for(at, name, |known| known == attempt)
                || ballot.again && node.holds(at, name, &ballot.acquire.owner, ballot.block.first)
        });
        let before: Vec<_> = names.iter().map(|name| node.last(name)).collect();
        let reply = node.vote(at, ballot);
        if let Ok(vote) = &reply {
            not_after::check(server, now, had, ballot, &vote.voted)?;
            for (name, before) in names.iter().zip(before) {
                fences::remembered(server, before, node.last(name), None)?;
                let is_new = before < ballot.block.last();
                if let Voted::Took { .. } = vote.voted {
                    fences::near(server, now, ballot, is_new)?;
                }
            }
            self.votes(server, vote.standing.votes())?;
            if let Voted::Took { left } = vote.voted {
                self.executed(server, Executed::Took { attempt, block: ballot.block }, vote.standing.votes(), left);
            }
        }
        Ok(Answer::Vote(reply.map(|result| Answered { at: now, result })))
    }

    fn uphold(&mut self, server: usize, leases: &[leasehold_core::port::Renew]) -> Result<Answer, Violation> {
        let (at, node) = (self.at, &mut self.nodes[server]);
        let now = node.now(at);
        let held: Vec<bool> = leases
            .iter()
            .map(|renew| node.holds(at, &renew.lease.name, &renew.lease.owner, renew.lease.fence))
            .collect();
        let reply = node.uphold(at, leases);
        if let Ok(upheld) = &reply {
            let votes = upheld.standing.votes();
            for ((renew, renewed), held) in leases.iter().zip(&upheld.renewed).zip(held) {
                let Renewed::Kept { left } = *renewed else { continue };
                revival::check(server, held, true)?;
                let name = self.plan.names.iter().position(|name| *name == renew.lease.name).expect("a known name");
                let (owner, fence) = (renew.lease.owner.clone(), renew.lease.fence);
                self.executed(server, Executed::Renewed { name, owner, fence }, votes, left);
            }
            self.votes(server, votes)?;
        }
        Ok(Answer::Uphold(reply.map(|result| Answered { at: now, result })))
    }

    fn release(&mut self, server: usize, release: &Release) -> Result<Answer, Violation> {
        let (at, node) = (self.at, &mut self.nodes[server]);
        let now = node.now(at);
        let before = node.last(&release.name);
        let result = node.release(at, release);
        let after = node.last(&release.name);
        if let Some(attempt) = given(release) {
            let name = self.plan.names.iter().position(|name| *name == release.name).expect("a known name");
            let block = self.truth.since(0).find_map(|known| match &known.what {
                Executed::Took { attempt: of, block } if *of == attempt && known.server == server => Some(*block),
                _ => None,
            });
            let reserved = block.zip(release.last_used).map(|(block, used)| (block.last(), used));
            fences::remembered(server, before, after, reserved)?;
            self.executed(server, Executed::Released { attempt, name }, true, std::time::Duration::ZERO);
        }
        Ok(Answer::Release(Ok(Answered { at: now, result })))
    }

    /// What a client did or heard.
    fn done(&mut self, who: usize, deed: &Deed) -> Verdict {
        let majority = self.plan.rules.majority();
        let (at, client) = (self.at, &self.clients[who]);
        let when = |moment: Moment| client.true_time(at, moment);
        // Where clocks drift further than allowed for, or are set, nobody knows how long servers have something.
        let is_timed = self.plan.is_steady() && self.plan.drift == Drift::Assumed;
        match deed {
            Deed::Granted { request, names, block, sent, deadline } => {
                let until = is_timed.then(|| when(*deadline));
                // A grant that is found by sending a request again was made before that.
                let since = when(*sent).saturating_sub(10 * SECOND);
                grants::granted(&self.truth, majority, *request, *block, since, until)?;
                self.history.grants += 1;
                self.digest(block.first.get() ^ names.len() as u64);
                Ok(())
            }
            Deed::Used { request, name, fence, first } => {
                self.digest(fence.get());
                self.used[*name].add(*request, *fence, !*first && !self.plan.is_exclusive())
            }
            Deed::Kept { name, owner, fence, sent, deadline } => {
                let until = is_timed.then(|| when(*deadline));
                // Clocks are read in steps.
                let since = when(*sent).saturating_sub(MS);
                grants::kept(&self.truth, majority, (*name, owner, *fence), since, until)
            }
            Deed::Released { request, name, said, sent, held } => {
                let sent = when(*sent);
                // Where clocks run too far apart, a server's lease may be over while the client believes in it.
                let assumed = self.plan.drift == Drift::Assumed;
                let held = *held && assumed && self.is_undisturbed(*request) && !self.copied.contains(request);
                let sent = sent.saturating_sub(MS);
                let without = self.without(*request, *name);
                let release = releases::Release { request: *request, name: *name, said, sent, without, held };
                releases::check(&self.truth, majority, &release)
            }
            Deed::Finished { request } => {
                // On a clock that was set back a lease outlasts everybody's patience.
                if is_timed {
                    let at = self.at.max(self.plan.calm) + TIDY;
                    self.agenda.add(at, Event::Finished(*request));
                }
                Ok(())
            }
            Deed::Refused { busy, sent, what } => {
                let is_good = is_timed && when(*sent) >= self.plan.good;
                availability::answered(is_good, *busy, what)
            }
            Deed::Repeated { request, block, said, sent, held } => {
                let is_calm = is_timed && when(*sent) > self.plan.calm && self.is_undisturbed(*request);
                repeats::check(*request, *block, said, *held, is_calm)
            }
            Deed::Probed { granted, what } => availability::granted(*granted, what),
        }
    }

    /// Servers that do not have a lock for this request, one bit each.
    fn without(&mut self, request: RequestId, name: usize) -> u64 {
        let (at, name) = (self.at, &self.plan.names[name]);
        // Attempts that came to nothing are given back each by itself.
        let granted = self.truth.since(0).find_map(|known| match &known.what {
            Executed::Took { attempt, .. } if is_of(request, *attempt) => Some(*attempt),
            _ => None,
        });
        let has = |node: &mut Node| node.holds_for(at, name, |attempt| Some(attempt) == granted);
        self.nodes.iter_mut().enumerate().filter_map(|(server, node)| (!has(node)).then_some(1 << server)).sum()
    }

    /// Whether nothing happened to any server or client since a request was granted.
    fn is_undisturbed(&self, request: RequestId) -> bool {
        let took =
            |known: &&Execution| matches!(&known.what, Executed::Took { attempt, .. } if is_of(request, *attempt));
        let granted = self.truth.since(0).filter(took).last().map(|known| known.at);
        self.plan.is_steady() && granted.is_some_and(|granted| granted > self.disturbed)
    }

    fn disaster(&mut self) {
        self.disturbed = self.at;
        let server = self.chance.within(0..self.nodes.len() as u64) as usize;
        let client = self.chance.within(0..self.clients.len() as u64) as usize;
        let what = match self.chance.within(0..12) {
            0..4 => {
                self.nodes[server].crash();
                if self.plan.refuses {
                    self.clients.iter().for_each(|client| lock(&client.link).refused[server] = true);
                }
                let down = self.chance.within(5 * MS..700 * MS);
                self.agenda.add(self.at + down, Event::Start(server));
                format!("server {server} crashes")
            }
            4..6 => match self.plan.setting {
                Setting::Never => {
                    self.nodes[server].empty(self.at);
                    format!("server {server} is emptied")
                }
                Setting::Back(by) => {
                    let by = self.chance.within(0..by);
                    self.nodes[server].set_clock(true, by);
                    format!("server {server}'s clock is set back by {} ms", by / MS)
                }
                Setting::BothWays(by) => {
                    let (by, back) = (self.chance.within(0..by), self.chance.permille(500));
                    self.nodes[server].set_clock(back, by);
                    format!("server {server}'s clock is set by {} ms, back: {back}", by / MS)
                }
            },
            6 => {
                self.nodes[server].still_until = (self.at + self.chance.within(MS..SECOND)).min(self.plan.calm);
                format!("server {server} stands still")
            }
            7..9 => {
                // What waits for it to go on comes then: nothing may be put off beyond the end of all disasters.
                let span = self.chance.within(MS..4 * SECOND);
                self.clients[client].still_until = (self.at + span).min(self.plan.calm);
                format!("client {client} stands still")
            }
            9 => {
                self.cut[client][server] = !self.cut[client][server];
                format!("between client {client} and server {server}: cut {}", self.cut[client][server])
            }
            10 => {
                self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
                "the network heals".to_owned()
            }
            _ if self.chance.permille(300) => {
                self.clients[client].dead = true;
                self.come(false);
                format!("client {client} dies, and another comes")
            }
            _ => return,
        };
        self.tell(|_| what);
    }
}

/// The request that an attempt is of.
fn whole(attempt: RequestId) -> RequestId {
    RequestId { number: attempt.number & ((1 << super::client::ATTEMPT_BITS) - 1), ..attempt }
}

/// Which attempt a release gives back.
fn given(release: &Release) -> Option<RequestId> {
    match release.scope {
        ReleaseScope::Hold(attempt) => Some(attempt),
        ReleaseScope::One(_) | ReleaseScope::All => None,
    }
}
