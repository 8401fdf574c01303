//! What kind of world a seed makes: drawn swarm style, so that each kind of fault appears alone, together with others, and not at all.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Name, Options, Owner, Term, WaitMode};

use crate::chance::{Chance, MS, SECOND};

/// The settings of one world.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many processes there are at first.
    pub clients: usize,
    /// How many tasks each has at most.
    pub tasks: u64,
    /// How many locks each task takes at most.
    pub rounds: u64,
    /// How many names there are.
    pub names: usize,
    /// The shortest lease asked for.
    pub lease: u64,
    /// The longest time a task holds a lock between two acts.
    pub hold: u64,
    /// How long a call may take before it is given up.
    pub call_limit: u64,
    /// For how long a lock is passed on.
    pub budget: u64,
    /// Whether the store has hints.
    pub hints: bool,
    /// The store's clock goes in steps of this many nanoseconds.
    pub clock_step: u64,
    /// For how long the store remembers fences of free names.
    pub fences_kept_for: Duration,
    /// The usual way to the store and back takes twice this, each client for itself.
    pub latency: Vec<u64>,
    /// How long the faults go on.
    pub faulty_for: u64,
    /// What goes wrong in the network and the machines.
    pub faults: Faults,
    /// After a sleep the keeper may come later than the tasks.
    pub keeper_late: bool,
    /// What tasks do.
    pub habits: Habits,
}

/// Rates of faults, in thousandths; zero where this world does not know the fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// Messages lost.
    pub loss: u64,
    /// Messages that take up to seconds.
    pub slow: u64,
    /// Requests delivered twice.
    pub repeat: u64,
    /// Calls whose connection breaks before the answer comes.
    pub reset: u64,
    /// Calls refused at the door.
    pub refuse: u64,
    /// Hints lost, also after everything else has healed.
    pub hint_loss: u64,
    /// How many times a client is cut off from the store.
    pub cuts: u64,
    /// How many times a process is paused.
    pub pauses: u64,
    /// How many times a machine is suspended.
    pub suspends: u64,
    /// How many processes die.
    pub deaths: u64,
    /// How many times the store stands still and goes on.
    pub stops: u64,
    /// How many times the store forgets everything.
    pub forgets: u64,
    /// It takes no time to forget: it is emptied, and goes on.
    pub emptied: bool,
    /// How many times the store's clock is set.
    pub clock_sets: u64,
    /// Back, and not forward.
    pub set_back: bool,
    /// The store goes back to an old copy.
    pub old_copy: bool,
    /// How many times somebody takes a lock away from its holder, at the end of its lease.
    pub breaks: u64,
    /// How many times somebody takes a lock away at once.
    pub takes: u64,
    /// The wall clock jumps.
    pub jumps: u64,
    /// How many times a machine stands still with its clock.
    pub standstills: u64,
}

/// What tasks do, in thousandths; zero where nobody in this world does it.
#[derive(Debug, Clone, Default)]
pub struct Habits {
    /// Ask once.
    pub once: u64,
    /// Give up waiting.
    pub give_up: u64,
    /// Take the lock again.
    pub reenter: u64,
    /// Lengthen the lease.
    pub extend: u64,
    /// Take it for a fixed time.
    pub fixed: u64,
    /// Take it under an owner that others use too.
    pub explicit: u64,
    /// Take several names.
    pub group: u64,
    /// Limit the time of holding.
    pub max_hold: u64,
    /// Keep others out for a while.
    pub at_least: u64,
    /// Wait by asking again and again.
    pub spinning: u64,
    /// Are gone before they send what they were told to send.
    pub unsent: u64,
    /// Close the client before its tasks are done.
    pub close: u64,
    /// Leave a lease to its owner.
    pub leave: u64,
}

impl Plan {
    /// Draws a world.
    pub fn draw(chance: &mut Chance) -> Self {
        match chance.within(0..100) {
            0..6 => Self::contended(chance),
            6..9 => Self::forgetful(chance),
            9..24 => Self::mixed(chance, true),
            24..44 => Self::tight(chance),
            _ => Self::mixed(chance, false),
        }
    }

    /// Short leases that are used to their end, by few on one name, with slow messages and sleeping processes.
    fn tight(chance: &mut Chance) -> Self {
        let mixed = Self::mixed(chance, false);
        Self {
            clients: mixed.clients.max(2),
            latency: vec![mixed.latency[0]; mixed.clients.max(2)],
            tasks: chance.pick(&[1, 3, 4]),
            names: 1,
            lease: chance.pick(&[200, 250]) * MS,
            hold: chance.pick(&[150, 300]) * MS,
            call_limit: chance.pick(&[150, 400, 1_000]) * MS,
            budget: chance.pick(&[0, 5_000, 5_000, 5_000]) * MS,
            faults: Faults {
                slow: mixed.faults.slow.max(chance.pick(&[0, 100, 300])),
                suspends: mixed.faults.suspends.max(chance.pick(&[0, 4])),
                standstills: mixed.faults.standstills.max(chance.pick(&[0, 0, 4])),
                cuts: mixed.faults.cuts.max(chance.pick(&[0, 0, 2])),
                ..mixed.faults
            },
            keeper_late: chance.permille(700),
            habits: Habits { fixed: chance.pick(&[0, 0, 500]), at_least: 0, group: 0, ..mixed.habits },
            ..mixed
        }
    }

    fn mixed(chance: &mut Chance, calm: bool) -> Self {
        let clients = chance.within(1..5) as usize;
        let habits =
            if chance.permille(if calm { 500 } else { 150 }) { Habits::default() } else { Habits::draw(chance) };
        let near = chance.pick(&[MS / 20, MS / 5, MS, 2 * MS]);
        Self {
            clients,
            tasks: chance.pick(&[1, 2, 3, 6]),
            rounds: chance.pick(&[1, 2, 3, 6]),
            names: chance.pick(&[1, 1, 2, 3]),
            lease: chance.pick(&[200, 200, 300, 500, 1_000, 3_000, 10_000]) * MS,
            hold: chance.pick(&[100, 1_000, 5_000, 50_000, 300_000, 1_000_000]) * MS / 1_000,
            call_limit: chance.pick(&[60, 150, 400, 1_000]) * MS,
            budget: chance.pick(&[0, 2, 10, 50, 50, 1_000]) * MS,
            hints: chance.permille(850),
            clock_step: chance.pick(&[1, 1, 1_000, MS]),
            fences_kept_for: Duration::from_millis(chance.pick(&[0, 300, 600_000])),
            latency: (0..clients).map(|_| near + chance.within(0..near * 2)).collect(),
            faulty_for: chance.within(200 * MS..3 * SECOND),
            faults: if calm { Faults::default() } else { Faults::draw(chance) },
            keeper_late: chance.permille(300),
            habits,
        }
    }

    /// Processes with many tasks that all want one name, some nearer to the store than others.
    fn contended(chance: &mut Chance) -> Self {
        let clients = chance.within(2..5) as usize;
        let near = chance.pick(&[0, MS / 20, MS / 5, MS]);
        let names = chance.pick(&[1, 1, 1, 2]);
        let far = if chance.permille(500) { 2 } else { chance.within(2..20) };
        Self {
            clients,
            tasks: 6,
            rounds: 12,
            names,
            lease: chance.pick(&[1_000, 3_000, 30_000]) * MS,
            hold: if near == 0 { MS / 1_000 } else { chance.pick(&[100, 1_000, 2_000]) * MS / 1_000 },
            call_limit: SECOND,
            budget: chance.pick(&[1, 5, 10]) * MS,
            hints: true,
            clock_step: chance.pick(&[1, MS]),
            fences_kept_for: Duration::ZERO,
            latency: (0..clients).map(|_| chance.within(near..near * far + 1)).collect(),
            faulty_for: MS,
            faults: Faults::default(),
            keeper_late: false,
            habits: Habits { group: if names > 1 { 300 } else { 0 }, ..Habits::default() },
        }
    }

    /// Processes with many tasks that hand one name on in large blocks, over a store that is emptied and whose clock is set meanwhile.
    fn forgetful(chance: &mut Chance) -> Self {
        let contended = Self::contended(chance);
        let near = chance.pick(&[MS / 50, MS / 10]);
        let faulty_for = chance.within(2 * MS..30 * MS);
        let clock_sets = chance.pick(&[0, 0, 1, 3]);
        let set_back = clock_sets > 0 && chance.permille(500);
        Self {
            clients: 3,
            tasks: chance.pick(&[10, 30]),
            rounds: 20,
            names: 1,
            hold: chance.pick(&[2, 20, 200]) * MS / 1_000,
            budget: chance.pick(&[2, 10, 50]) * MS,
            clock_step: 1_000,
            fences_kept_for: Duration::from_secs(600),
            latency: (0..3).map(|_| near + chance.within(0..near)).collect(),
            faulty_for,
            faults: Faults {
                // Clients do not agree to the microsecond where a clock had been that was set back: it may forget once.
                forgets: chance.pick(&[0, 1, 3, 10]).min(if set_back { 1 } else { 10 }),
                emptied: true,
                clock_sets,
                set_back,
                ..Faults::default()
            },
            habits: Habits::default(),
            ..contended
        }
    }

    /// Whether nothing goes wrong here but hints.
    pub fn is_calm(&self) -> bool {
        Faults { hint_loss: 0, ..self.faults.clone() } == Faults::default()
    }

    /// Whether nothing goes wrong and nobody does anything out of the way: a released lock is taken up at once.
    pub fn is_plain(&self) -> bool {
        self.is_fair() && self.habits.group == 0
    }

    /// Whether nothing goes wrong and nobody does anything out of the way but taking several names: everybody has its turn.
    pub fn is_fair(&self) -> bool {
        let Habits { once, give_up, fixed, explicit, max_hold, at_least, spinning, unsent, close, .. } = self.habits;
        let out_of_the_way = once + give_up + fixed + explicit + max_hold + at_least + spinning + unsent + close;
        self.faults == Faults::default() && out_of_the_way == 0 && self.hints
    }

    /// Options of one wish for a lock.
    pub fn options(&self, chance: &mut Chance) -> Options {
        let lease = Duration::from_nanos(self.lease * chance.pick(&[1, 1, 2, 3]));
        let fixed = chance.permille(self.habits.fixed);
        let max_hold = !fixed && chance.permille(self.habits.max_hold);
        let mut options = Options::default();
        options.term = if fixed { Term::Fixed(lease) } else { Term::Kept(lease) };
        options.max_hold = max_hold.then(|| Duration::from_nanos(chance.within(200 * MS..2 * SECOND)));
        let at_least = if chance.permille(self.habits.at_least) { chance.within(MS..300 * MS) } else { 0 };
        options.at_least = Duration::from_nanos(at_least);
        let spins = chance.permille(self.habits.spinning);
        options.wait_mode = if spins { WaitMode::Spinning } else { WaitMode::Notified };
        options.budget = Duration::from_nanos(self.budget);
        options
    }

    /// An owner: mostly fresh, sometimes one of two that everybody uses.
    pub fn owner(&self, chance: &mut Chance) -> Owner {
        if chance.permille(self.habits.explicit) {
            let id = chance.pick(&["shared-1", "shared-2"]);
            return Owner::explicit(id).expect("it is a good owner");
        }
        Owner::generated([chance.draw(), chance.draw()])
    }
}

impl Faults {
    fn draw(chance: &mut Chance) -> Self {
        let mut some = |rates: &[u64]| if chance.permille(300) { chance.pick(rates) } else { 0 };
        Self {
            loss: some(&[10, 50, 200, 500]),
            slow: some(&[10, 50, 200]),
            repeat: some(&[50, 200]),
            reset: some(&[50, 300]),
            refuse: some(&[50, 300]),
            hint_loss: some(&[100, 500, 1_000]),
            cuts: some(&[1, 3]),
            pauses: some(&[1, 3, 6]),
            suspends: some(&[1, 3, 6]),
            deaths: some(&[1, 2]),
            stops: some(&[1, 2]),
            forgets: some(&[0, 1]),
            emptied: false,
            clock_sets: 0,
            set_back: false,
            old_copy: some(&[0, 1]) > 0,
            breaks: some(&[1, 3]),
            takes: some(&[1, 3]),
            jumps: some(&[0, 1]),
            standstills: some(&[1, 3]),
        }
    }

    /// Whether the store may lose what it granted: then only the order of fences is promised.
    pub fn loses_memory(&self) -> bool {
        self.forgets > 0 || self.old_copy || self.clock_sets > 0
    }
}

impl Habits {
    fn draw(chance: &mut Chance) -> Self {
        let mut some = |rates: &[u64]| if chance.permille(350) { chance.pick(rates) } else { 0 };
        Self {
            once: some(&[100, 400]),
            give_up: some(&[100, 400, 800]),
            reenter: some(&[200, 500]),
            extend: some(&[200, 400]),
            fixed: some(&[200, 500, 1_000]),
            explicit: some(&[300, 1_000]),
            group: some(&[200, 500]),
            max_hold: some(&[300]),
            at_least: some(&[200, 500]),
            spinning: some(&[300, 1_000]),
            unsent: some(&[50, 200]),
            close: some(&[300]),
            leave: some(&[200, 500]),
        }
    }
}

/// The name with this number, as text.
pub fn name_text(number: usize) -> &'static str {
    ["a", "b", "c"][number]
}

/// All names of a world.
pub fn names(count: usize) -> Arc<[Name]> {
    (0..count).map(|number| Name::new(name_text(number)).expect("it is a good name")).collect()
}
