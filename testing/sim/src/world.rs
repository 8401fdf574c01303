//! One world: everything in it drawn from a seed, run event by event on virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::reference::Reference;
use leasehold_core::table::Answer;
use leasehold_core::{ClientId, Name, RequestId};

use crate::agenda::Agenda;
use crate::beliefs::Belief;
use crate::chance::{Chance, MS, SECOND};
use crate::clock::Clock;
use crate::invariants::at_least::AtLeast;
use crate::invariants::blocks::Blocks;
use crate::invariants::breaking::Breaking;
use crate::invariants::fences::Fences;
use crate::invariants::line::Line;
use crate::invariants::passing::Passing;
use crate::invariants::starvation::Starvation;
use crate::invariants::term::Terms;
use crate::invariants::validity::Validity;
use crate::invariants::wake_up::WakeUp;
use crate::invariants::{Scene, Verdict, Violation, backing, exclusion, left_over, own_end, wake_up};
use crate::plan::{self, Plan};
use crate::process::Process;
use crate::store::{Ask, StoreNode};
use crate::story::{Story, Who};

/// A world under way.
#[derive(Debug)]
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) chance: Chance,
    pub(crate) at: u64,
    pub(crate) quiet_since: u64,
    /// When it is going to be quiet.
    pub(crate) quiet_from: u64,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) names: Arc<[Name]>,
    pub(crate) processes: Vec<Process>,
    pub(crate) store: StoreNode,
    pub(crate) old_copy: Option<Box<Reference>>,
    pub(crate) remembers: bool,
    pub(crate) beliefs: Vec<Belief>,
    pub(crate) fences: Fences,
    pub(crate) starvation: Starvation,
    pub(crate) wake_up: WakeUp,
    pub(crate) at_least: AtLeast,
    pub(crate) passing: Passing,
    pub(crate) blocks: Blocks,
    pub(crate) breaking: Breaking,
    pub(crate) validity: Validity,
    pub(crate) terms: Terms,
    pub(crate) line: Line,
    /// Locks were taken away at once: until then their old holders may not know.
    pub(crate) taken_until: [u64; 3],
    pub(crate) verdict: Verdict,
    pub(crate) story: Story,
    pub(crate) calls: u64,
    pub(crate) depth: u32,
    /// Messages on their way to the store.
    pub(crate) in_flight: u32,
    /// Calls that were executed, where requests may be repeated.
    pub(crate) executed: BTreeSet<u64>,
    /// Holds that the store took back, of each name.
    pub(crate) taken_back: BTreeSet<(RequestId, usize)>,
    /// Calls that took what was free.
    pub(crate) fresh: BTreeSet<u64>,
    /// Names that the second copy of a request took, for nobody: until their lease ends.
    pub(crate) strays: [bool; 3],
    /// Names that were in use in a process that died: what it held of them stays until its lease ends.
    pub(crate) orphans: [bool; 3],
    history: History,
}

/// What happened in a world, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// How many events there were.
    pub events: u64,
    /// How many grants were told.
    pub grants: u64,
    /// A digest of all of them in order: equal for equal histories.
    pub digest: u64,
}

/// Something that is going to happen.
#[derive(Debug)]
pub(crate) enum Event {
    AtStore {
        client: usize,
        call: u64,
        ask: Ask,
    },
    Reply {
        client: usize,
        call: u64,
        answer: Box<Answer>,
    },
    GivenUp {
        client: usize,
        call: u64,
    },
    Hint {
        client: usize,
        name: Option<usize>,
    },
    Tick {
        client: usize,
    },
    Act {
        client: usize,
        task: usize,
        turn: u32,
    },
    Send {
        client: usize,
        task: usize,
        turn: u32,
    },
    Woke {
        client: usize,
        task: usize,
        sleep: u32,
    },
    Cancel {
        client: usize,
        task: usize,
        turn: u32,
    },
    Close {
        client: usize,
    },
    /// A clock that stood still is found out.
    Jumped {
        client: usize,
        ahead: u64,
    },
    Disaster(crate::disasters::Disaster),
}

impl Event {
    fn client(&self) -> Option<usize> {
        match self {
            Self::AtStore { .. } | Self::Disaster(_) => None,
            Self::Reply { client, .. }
            | Self::GivenUp { client, .. }
            | Self::Hint { client, .. }
            | Self::Tick { client }
            | Self::Act { client, .. }
            | Self::Send { client, .. }
            | Self::Woke { client, .. }
            | Self::Cancel { client, .. }
            | Self::Close { client }
            | Self::Jumped { client, .. } => Some(*client),
        }
    }
}

/// Where store time stands when a world begins: some years after its epoch.
const STORE_BEGINS: u64 = 6 * 365 * 86_400 * SECOND;
/// No world goes on for more events than this.
const EVENTS_MAX: u64 = 300_000;

impl World {
    /// Draws a world from a seed.
    pub fn new(seed: u64, told: bool) -> Self {
        let mut chance = Chance::new(seed);
        let plan = Plan::draw(&mut chance);
        let reference = reference(seed, &plan);
        let clock = Clock::new(STORE_BEGINS, error(&mut chance), plan.clock_step);
        let mut world = Self {
            chance,
            at: 0,
            quiet_since: u64::MAX,
            quiet_from: u64::MAX,
            agenda: Agenda::default(),
            names: plan::names(plan.names),
            processes: Vec::new(),
            store: StoreNode::new(reference, clock),
            old_copy: None,
            remembers: true,
            beliefs: Vec::new(),
            fences: Fences::default(),
            starvation: Starvation::default(),
            wake_up: WakeUp::default(),
            at_least: AtLeast::default(),
            passing: Passing::default(),
            blocks: Blocks::default(),
            breaking: Breaking::default(),
            validity: Validity::default(),
            terms: Terms::default(),
            line: Line::default(),
            taken_until: [0; 3],
            verdict: Ok(()),
            story: Story::new(told),
            calls: 0,
            depth: 0,
            in_flight: 0,
            executed: BTreeSet::new(),
            taken_back: BTreeSet::new(),
            fresh: BTreeSet::new(),
            strays: [false; 3],
            orphans: [false; 3],
            history: History::default(),
            plan,
        };
        world.at = SECOND;
        world.populate();
        world
    }

    fn populate(&mut self) {
        let plan = format_args!("{:?}", self.plan).to_string();
        self.story.tell(self.at, Who::World, None, || plan);
        for client in 0..self.plan.clients {
            let latency = self.plan.latency[client];
            self.add_process(latency);
        }
        self.plan_disasters();
    }

    /// Runs it to its end.
    pub fn run(&mut self) -> Result<History, Violation> {
        let mut end = u64::MAX;
        while let Some((at, event)) = self.agenda.take_next() {
            if self.quiet_since != u64::MAX && end == u64::MAX {
                end = self.quiet_since + wake_up::time_to_finish(&self.plan);
            }
            if at > end || self.history.events > EVENTS_MAX {
                break;
            }
            self.at = at;
            self.happen(event);
            let verdict = self.terms.check(&self.scene(), &self.store);
            self.must(verdict);
            self.verdict.clone()?;
            if self.in_flight == 0 && !self.is_faulty() && self.is_settled() {
                break;
            }
        }
        wake_up::finished(&self.scene())?;
        left_over::check(&self.scene(), &self.store, self.strays, self.orphans)?;
        Ok(self.history)
    }

    /// Nothing more is going to happen but timers that find nothing to do.
    fn is_settled(&self) -> bool {
        let mut alive = self.processes.iter().filter(|process| process.alive);
        alive.all(|process| process.calls.is_empty() && process.is_done() && process.table.is_empty())
    }

    /// The tables as they are, for finding out why nothing happens.
    pub fn tables(&self) -> String {
        let tables = self.processes.iter().filter(|process| process.alive).map(|process| &process.table);
        tables.filter(|table| !table.is_empty()).map(|table| format!("{table:#?}\n")).collect()
    }

    /// What happened, for people, about one name or all.
    pub fn timeline(&self, name: Option<usize>) -> String {
        self.story.timeline(name)
    }

    fn happen(&mut self, event: Event) {
        if let Some(client) = event.client() {
            let process = &self.processes[client];
            if !process.alive {
                return;
            }
            if process.asleep_until > self.at {
                // The keeper may come late to what was due.
                let late = if matches!(event, Event::Tick { .. }) && self.plan.keeper_late { 10 * MS } else { MS / 3 };
                let later = process.asleep_until + self.chance.within(0..late);
                return self.agenda.add(later, event);
            }
        }
        self.note(&event);
        match event {
            Event::AtStore { client, call, ask } => self.at_store(client, call, &ask),
            Event::Reply { client, call, answer } => self.replied(client, call, *answer),
            Event::GivenUp { client, call } => self.given_up(client, call),
            Event::Hint { client, name } => self.hinted(client, name),
            Event::Tick { client } => self.tick(client),
            Event::Act { client, task, turn } => self.act(client, task, turn),
            Event::Send { client, task, turn } => self.send(client, task, turn),
            Event::Woke { client, task, sleep } => self.woke(client, task, sleep),
            Event::Cancel { client, task, turn } => self.cancel(client, task, turn),
            Event::Close { client } => self.close(client),
            Event::Jumped { client, ahead } => self.found_out(client, ahead),
            Event::Disaster(disaster) => self.strike(disaster),
        }
    }

    fn note(&mut self, event: &Event) {
        let kind = match event {
            Event::AtStore { .. } => 1,
            Event::Reply { .. } => 2,
            Event::GivenUp { .. } => 3,
            Event::Hint { .. } => 4,
            Event::Tick { .. } => 5,
            Event::Act { .. } => 6,
            Event::Send { .. } => 7,
            Event::Woke { .. } => 8,
            Event::Cancel { .. } => 9,
            Event::Close { .. } => 10,
            Event::Disaster(_) => 11,
            Event::Jumped { .. } => 12,
        };
        self.history.events += 1;
        self.digest(kind ^ self.at << 8);
    }

    fn digest(&mut self, number: u64) {
        self.history.digest = (self.history.digest ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }

    pub(crate) fn note_grant(&mut self, belief: &Belief) {
        self.history.grants += 1;
        self.digest(belief.fence.get());
    }

    pub(crate) fn scene(&self) -> Scene<'_> {
        Scene {
            at: self.at,
            quiet_since: self.quiet_since,
            plan: &self.plan,
            processes: &self.processes,
            names: &self.names,
            beliefs: &self.beliefs,
            remembers: self.remembers,
            taken_until: self.taken_until,
        }
    }

    pub(crate) fn must(&mut self, verdict: Verdict) {
        if self.verdict.is_ok() {
            self.verdict = verdict;
        }
    }

    pub(crate) fn check_holds(&mut self) {
        if !self.beliefs.is_empty() {
            let verdict = own_end::check(&self.scene());
            self.must(verdict);
        }
        if self.beliefs.len() > 1 {
            let verdict = exclusion::check(&self.scene());
            self.must(verdict);
        }
    }

    /// Looks whether a guard of a process is valid that was not.
    pub(crate) fn check_validity(&mut self, client: usize) {
        let verdict = self.validity.check(self.at, client, &self.processes[client], &self.names);
        self.must(verdict);
    }

    /// Looks whether the store has what guards believe to hold.
    pub(crate) fn check_backing(&mut self) {
        for name in 0..self.names.len() {
            let verdict = backing::check(&self.scene(), &self.store, name);
            self.must(verdict);
        }
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.at < self.quiet_since
    }

    pub(crate) fn name_number(&self, name: &Name) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or(0)
    }

    /// The names in use in a process, and those whose guards it has, though they may be lost.
    pub(crate) fn names_in_use(&self, client: usize) -> Vec<usize> {
        let process = &self.processes[client];
        let guards = process.tasks.iter().flat_map(|task| &task.guards).map(|guard| guard.name);
        process.table.names().map(|name| self.name_number(name)).chain(guards).collect()
    }

    pub(crate) fn client_of(&self, id: ClientId) -> Option<usize> {
        self.processes.iter().position(|process| process.id == id)
    }
}

/// An empty store.
pub(crate) fn reference(seed: u64, plan: &Plan) -> Reference {
    let reference = Reference::new(seed, plan.fences_kept_for);
    if plan.faults.loses_memory() { reference.fallible() } else { reference }
}

/// A clock's rate error: at most half of a percent, so that two clocks drift apart by no more than one.
pub(crate) fn error(chance: &mut Chance) -> i64 {
    let part = chance.pick(&[0, 100, 4_900]);
    chance.within(0..2 * part + 1) as i64 - part as i64
}
