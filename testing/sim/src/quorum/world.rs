//! One world of a quorum: a plan drawn from a seed, disasters, and what must hold all the while.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::planted::{Bug, Planted};
use leasehold_core::port::{Answered, Renewed};
use leasehold_core::quorum::Rules;
use leasehold_core::{Fence, Moment, Name, RequestId};

use super::Drift;
use super::client::{Answer, Ask, Client, Deed};
use super::server::Node;
use crate::agenda::Agenda;
use crate::chance::{Chance, MS, SECOND};
use crate::clock::Clock;
use crate::invariants::Violation;
use crate::world::History;

/// Disasters end then.
const CALM: u64 = 6 * SECOND;
/// And the world.
const END: u64 = 10 * SECOND;

enum Event {
    Tick(usize),
    AtServer { client: usize, call: u64, server: usize, ask: Ask },
    AtClient { client: usize, call: u64, answer: Answer },
    Disaster,
    Start(usize),
    Save,
    Calm,
}

/// Servers, clients and a network.
pub struct World {
    agenda: Agenda<Event>,
    at: u64,
    chance: Chance,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    cut: Vec<Vec<bool>>,
    name: Name,
    drift: Drift,
    loss: u64,
    twice: u64,
    slow: u64,
    /// Requests of which the network made copies: one that is executed after the release leaves a lease to nobody, until it ends.
    copied: HashSet<RequestId, BuildHasherDefault<DefaultHasher>>,
    largest: Fence,
    history: History,
    /// How often two held the lock at a time, where that is expected.
    pub overlaps: u64,
    story: Option<String>,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64, bug: Option<Bug>, drift: Drift, tell: bool) -> Self {
        let mut chance = Chance::new(seed ^ 0x71_75_6f_72);
        let planted = bug.map_or(Planted::default(), Planted::with);
        let servers = chance.pick(&[3, 3, 5]);
        let quarantine = Duration::from_millis(chance.within(800..3_000));
        let rules = Rules {
            servers: (0..servers).map(|server| Arc::from(format!("server {server}"))).collect(),
            limit: None,
            quarantine,
            planted,
        };
        // Between any two clocks a hundredth at most.
        let ppm = match drift {
            Drift::Assumed => 4_900,
            Drift::Beyond => 100_000,
        };
        let name = Name::new("lock").expect("a name");
        let nodes: Vec<Node> = (0..servers).map(|_| Node::new(&mut chance, ppm, quarantine, planted)).collect();
        let many = chance.pick(&[2, 2, 3, 4]);
        let clients: Vec<Client> = (0..many)
            .map(|who| {
                let error = chance.within(0..2 * ppm + 1) as i64 - ppm as i64;
                let clock = Clock::new(chance.within(0..SECOND), error, 1);
                Client::new(who, &rules, clock, Chance::new(chance.draw()), &name)
            })
            .collect();
        let wild = chance.permille(750);
        let mut world = Self {
            agenda: Agenda::default(),
            at: 0,
            nodes,
            cut: vec![vec![false; servers]; clients.len()],
            clients,
            name,
            drift,
            loss: if wild { chance.within(0..80) } else { 0 },
            twice: if wild { chance.within(0..50) } else { 0 },
            slow: if wild { chance.within(0..150) } else { 0 },
            copied: HashSet::default(),
            largest: Fence::NONE,
            history: History::default(),
            overlaps: 0,
            story: tell.then(String::new),
            chance,
        };
        // Servers were started long ago, or just now.
        for server in 0..world.nodes.len() {
            world.nodes[server].start(0);
        }
        for client in 0..world.clients.len() {
            let at = quarantine.as_nanos() as u64 + world.chance.within(0..200 * MS);
            world.agenda.add(at, Event::Tick(client));
            world.clients[client].tick_at = at;
        }
        if wild {
            for _ in 0..world.chance.within(3..25) {
                let at = world.chance.within(0..CALM);
                world.agenda.add(at, Event::Disaster);
            }
            for _ in 0..world.chance.within(0..8) {
                let at = world.chance.within(0..CALM);
                world.agenda.add(at, Event::Save);
            }
        }
        world.agenda.add(CALM, Event::Calm);
        world
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// The first invariant that did not hold.
    pub fn run(&mut self) -> Result<History, Violation> {
        while let Some((at, event)) = self.agenda.take_next() {
            if at > END {
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

    fn happens(&mut self, event: Event) -> Result<(), Violation> {
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
                self.step(client, |client, at, out| client.tick(at, out))
            }
            Event::AtClient { client, call, answer } => {
                let still = self.clients[client].still_until;
                if self.at < still {
                    self.agenda.add(still, Event::AtClient { client, call, answer });
                    return Ok(());
                }
                self.tell(|_| format!("client {client} hears {answer:?}"));
                self.step(client, |client, at, out| client.answered(at, call, Some(answer), out))
            }
            Event::AtServer { client, call, server, ask } => self.arrives(client, call, server, ask),
            Event::Disaster => {
                self.disaster();
                Ok(())
            }
            Event::Start(server) => {
                if !self.nodes[server].up {
                    self.nodes[server].start(self.at);
                    self.tell(|_| format!("server {server} is back"));
                }
                Ok(())
            }
            Event::Save => {
                self.nodes.iter_mut().for_each(Node::save);
                Ok(())
            }
            Event::Calm => {
                self.loss = 0;
                self.twice = 0;
                self.slow = 0;
                self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
                Ok(())
            }
        }
    }

    fn step(&mut self, who: usize, step: impl FnOnce(&mut Client, u64, &mut Vec<Deed>)) -> Result<(), Violation> {
        if self.clients[who].dead {
            return Ok(());
        }
        let mut deeds = Vec::new();
        step(&mut self.clients[who], self.at, &mut deeds);
        for deed in deeds {
            match deed {
                Deed::Send { call, server, ask } => self.send(who, call, server, &ask),
                Deed::Granted { fence, last } => self.granted(who, fence, last)?,
                Deed::Swept { request } => self.swept(who, request)?,
            }
        }
        self.exclusion(who)?;
        let wakes = self.clients[who].wakes();
        if wakes < Moment::NEVER {
            let wait = wakes.since(self.clients[who].now(self.at));
            // Its clock may be slow or fast: it looks again.
            let at = self.at + (wait.as_nanos() as u64).max(1_000);
            if at < self.clients[who].tick_at {
                self.clients[who].tick_at = at;
                self.agenda.add(at, Event::Tick(who));
            }
        }
        Ok(())
    }

    fn delay(&mut self) -> u64 {
        if self.chance.permille(self.slow) {
            self.chance.within(MS..600 * MS)
        } else {
            self.chance.within(50_000..2 * MS)
        }
    }

    fn send(&mut self, client: usize, call: u64, server: usize, ask: &Ask) {
        self.tell(|_| format!("client {client} asks server {server}: {ask:?}"));
        let copies = 1 + usize::from(self.chance.permille(self.twice));
        for _ in 0..copies {
            if self.cut[client][server] || self.chance.permille(self.loss) {
                continue;
            }
            if let (Ask::Vote(ballot), 2) = (ask, copies) {
                self.copied.insert(ballot.acquire.request);
            }
            let at = self.at + self.delay();
            self.agenda.add(at, Event::AtServer { client, call, server, ask: ask.clone() });
        }
    }

    fn arrives(&mut self, client: usize, call: u64, server: usize, ask: Ask) -> Result<(), Violation> {
        let node = &mut self.nodes[server];
        if node.up && self.at < node.still_until {
            let at = node.still_until;
            self.agenda.add(at, Event::AtServer { client, call, server, ask });
            return Ok(());
        }
        if !node.up {
            return Ok(());
        }
        let at = node.now(self.at);
        let answer = match &ask {
            Ask::Clock => Answer::Clock(Ok(Answered { at, result: () })),
            Ask::Vote(ballot) => Answer::Vote(node.vote(self.at, ballot).map(|result| Answered { at, result })),
            Ask::Uphold(leases) => {
                let held = node.holds(self.at, &self.name, &leases[0].lease.owner);
                let upheld = node.uphold(self.at, leases);
                if let Ok(upheld) = &upheld
                    && matches!(upheld.renewed[0], Renewed::Kept { .. })
                    && !held
                {
                    return broken("no revival", format!("server {server} made a lock again by renewing it"));
                }
                Answer::Uphold(upheld.map(|result| Answered { at, result }))
            }
            Ask::Release(release) => {
                let result = node.release(self.at, release);
                Answer::Release(Ok(Answered { at, result }))
            }
        };
        self.tell(|_| format!("server {server} answers client {client}: {answer:?}"));
        if self.cut[client][server] || self.chance.permille(self.loss) {
            return Ok(());
        }
        let at = self.at + self.delay();
        self.agenda.add(at, Event::AtClient { client, call, answer });
        Ok(())
    }

    fn disaster(&mut self) {
        let server = self.chance.within(0..self.nodes.len() as u64) as usize;
        let client = self.chance.within(0..self.clients.len() as u64) as usize;
        let what = match self.chance.within(0..12) {
            0..4 => {
                self.nodes[server].crash();
                let down = self.chance.within(5 * MS..700 * MS);
                self.agenda.add(self.at + down, Event::Start(server));
                format!("server {server} crashes")
            }
            4..6 => {
                self.nodes[server].empty();
                format!("server {server} is emptied")
            }
            6 => {
                self.nodes[server].still_until = self.at + self.chance.within(MS..SECOND);
                format!("server {server} stands still")
            }
            7..9 => {
                self.clients[client].still_until = self.at + self.chance.within(MS..4 * SECOND);
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
                format!("client {client} dies")
            }
            _ => return,
        };
        self.tell(|_| what);
    }

    fn granted(&mut self, who: usize, fence: Fence, last: Fence) -> Result<(), Violation> {
        self.history.grants += 1;
        self.tell(|_| format!("client {who} is granted, with {fence:?} to {last:?}"));
        if fence <= self.largest {
            return broken("fence order", format!("client {who} is granted with {fence:?} after {:?}", self.largest));
        }
        self.largest = last;
        Ok(())
    }

    /// Whoever believes to hold the lock is the only one.
    fn exclusion(&mut self, who: usize) -> Result<(), Violation> {
        if !self.clients[who].believes(self.at) {
            return Ok(());
        }
        let other = (0..self.clients.len()).find(|other| *other != who && self.clients[*other].believes(self.at));
        match (other, self.drift) {
            (None, _) => Ok(()),
            (Some(_), Drift::Beyond) => {
                self.overlaps += 1;
                Ok(())
            }
            (Some(other), Drift::Assumed) => {
                broken("exclusion", format!("client {who} and client {other} hold the lock at the same time"))
            }
        }
    }

    /// What was given back for certain is nowhere any more.
    fn swept(&mut self, who: usize, request: RequestId) -> Result<(), Violation> {
        if self.copied.contains(&request) {
            return Ok(());
        }
        for server in 0..self.nodes.len() {
            // An old state may come back with it.
            if self.nodes[server].up
                && self.nodes[server].holds_for(self.at, &self.name, request)
                && !self.came_back(server)
            {
                let what =
                    format!("client {who} gave request {} back, and server {server} still has it", request.number);
                return broken("nothing left over", what);
            }
        }
        Ok(())
    }

    fn came_back(&self, server: usize) -> bool {
        self.nodes[server].is_old()
    }
}

fn broken(invariant: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { invariant, name: None, what })
}
