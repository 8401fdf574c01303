//! What befalls processes and the store: pauses, suspends, deaths, cuts, restarts.

use std::time::Duration;

use leasehold_core::port::Break;
use leasehold_core::table::Input;

use crate::chance::{MS, SECOND};
use crate::story::Who;
use crate::world::{Event, World, reference};

/// No store is started again, with what it had kept, in less than this.
const STARTS_IN: u64 = 5 * MS;

/// Something bad, or the end of all that is bad.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disaster {
    /// A process stands still.
    Pause,
    /// A machine sleeps.
    Suspend,
    /// A process dies; perhaps another is started.
    Death,
    /// A client cannot reach the store.
    Cut,
    /// The store stands still.
    Stop,
    /// The store is started without its memory.
    Forget,
    /// The store's clock is set.
    SetClock,
    /// A copy of the store is made.
    Copy,
    /// The store goes back to the copy.
    Restore,
    /// A lock is taken away at the end of its lease.
    Break,
    /// A lock is taken away at once.
    Take,
    /// A wall clock jumps ahead.
    Jump,
    /// A machine and its clock stand still; its wall clock is set right a while later.
    Standstill,
    /// From now on nothing bad happens.
    Quiet,
}

impl World {
    pub(crate) fn plan_disasters(&mut self) {
        let faults = self.plan.faults.clone();
        let lasts = self.plan.faulty_for;
        self.quiet_from = self.at + lasts;
        let kinds = [
            (faults.pauses, Disaster::Pause),
            (faults.suspends, Disaster::Suspend),
            (faults.deaths, Disaster::Death),
            (faults.cuts, Disaster::Cut),
            (faults.stops, Disaster::Stop),
            (faults.forgets, Disaster::Forget),
            (faults.clock_sets, Disaster::SetClock),
            (faults.breaks, Disaster::Break),
            (faults.takes, Disaster::Take),
            (faults.jumps, Disaster::Jump),
            (faults.standstills, Disaster::Standstill),
        ];
        for (times, disaster) in kinds {
            for _ in 0..times {
                let at = self.at + self.chance.within(0..lasts);
                self.agenda.add(at, Event::Disaster(disaster));
            }
        }
        if faults.old_copy {
            let copied = self.chance.within(0..lasts / 2);
            let restored = self.chance.within(lasts / 2..lasts);
            self.agenda.add(self.at + copied, Event::Disaster(Disaster::Copy));
            self.agenda.add(self.at + restored, Event::Disaster(Disaster::Restore));
        }
        self.agenda.add(self.at + lasts, Event::Disaster(Disaster::Quiet));
    }

    pub(crate) fn strike(&mut self, disaster: Disaster) {
        let living: Vec<usize> = (0..self.processes.len()).filter(|at| self.processes[*at].alive).collect();
        if let Disaster::Quiet = disaster {
            return self.quieten();
        }
        if living.is_empty() {
            return;
        }
        let client = self.chance.pick(&living);
        match disaster {
            Disaster::Pause => self.pause(client, false),
            Disaster::Suspend => self.pause(client, true),
            Disaster::Death => self.die(client),
            Disaster::Cut => {
                let until = self.at + self.spell();
                self.processes[client].cut_until = until;
                self.tell_client(client, "is cut off");
            }
            Disaster::Stop => self.stop_store("stands still", 0),
            Disaster::Copy => self.old_copy = Some(Box::new(self.store.reference.clone())),
            Disaster::Forget | Disaster::Restore => self.lose_memory(disaster),
            Disaster::SetClock => self.set_clock(),
            Disaster::Break => self.break_lock(Break::AtLeaseEnd),
            Disaster::Take => self.break_lock(Break::Now),
            Disaster::Standstill => self.stand_still(client),
            Disaster::Jump => {
                let ahead = self.random_within(SECOND);
                self.tell_client(client, "sees the wall clock jump");
                // What it gives back is over for it sooner than for the store.
                for name in self.names_in_use(client) {
                    self.strays[name] = true;
                }
                self.jump(client, ahead);
            }
            Disaster::Quiet => {}
        }
    }

    fn break_lock(&mut self, how: Break) {
        let number = self.chance.within(0..self.names.len() as u64) as usize;
        self.story.tell(self.at, Who::Store, Some(number), || format!("is told to break the lock ({how:?})"));
        let (before, hints) = self.store.break_lock(self.at, &self.names[number], how);
        let left = before.holders.iter().filter_map(|holder| holder.left).max().unwrap_or_default();
        let ends = self.at + left.as_nanos() as u64 * 101 / 100 + 2 * self.plan.clock_step;
        match how {
            Break::AtLeaseEnd => {
                // It stays until the end of its lease, whatever its holder does.
                self.strays[number] = true;
                self.breaking.broke(number, before.holders.first().and_then(|holder| holder.fence));
            }
            Break::Now => {
                self.taken_until[number] = self.taken_until[number].max(ends);
                self.fences.forgot(number, self.at);
                self.wake_up.free(number, self.at);
                self.hint(hints);
            }
        }
        if self.chance.permille(500) {
            self.hint_holders(number);
        }
    }

    /// A store may tell those who hold a lock that it was broken: they look at once.
    fn hint_holders(&mut self, name: usize) {
        for client in 0..self.processes.len() {
            let after = self.processes[client].latency + self.chance.within(0..MS);
            self.agenda.add(self.at + after, Event::Hint { client, name: Some(name) });
        }
    }

    /// The clock of a machine stands still, as if no time passed; the wall clock tells it a while after.
    fn stand_still(&mut self, client: usize) {
        let left = self.quiet_from - self.at;
        let span = self.spell().min(left);
        let most = self.chance.pick(&[1, 1, 150]);
        let unaware = self.chance.within(0..most * MS).min(left - span);
        let process = &mut self.processes[client];
        if process.asleep_until > self.at || process.misled {
            return;
        }
        let ahead = process.clock.moment(self.at + span).since(process.clock.moment(self.at));
        process.asleep_until = self.at + span;
        process.awake_since = self.at + span + unaware;
        process.misled = true;
        process.clock.sleep_through(span);
        self.story.tell(self.at, Who::Client(client), None, || {
            format!("stands still for {} ms, and hears of it {} ms later", span / MS, unaware / MS)
        });
        self.agenda.add(self.at + span + unaware, Event::Jumped { client, ahead: ahead.as_nanos() as u64 });
    }

    fn jump(&mut self, client: usize, ahead: Duration) {
        self.processes[client].skipped += ahead;
        self.step(client, Input::Jumped(ahead));
    }

    /// A client is told that its clock stood still.
    pub(crate) fn found_out(&mut self, client: usize, ahead: u64) {
        self.tell_client(client, "hears that its clock stood still");
        self.processes[client].awake_since = self.at;
        self.jump(client, Duration::from_nanos(ahead));
        self.processes[client].misled = false;
        self.check_holds();
    }

    fn spell(&mut self) -> u64 {
        let most = self.chance.pick(&[30, 300, 1_500, 4_000]);
        self.chance.within(MS..most * MS)
    }

    fn tell_client(&mut self, client: usize, what: &str) {
        self.story.tell(self.at, Who::Client(client), None, || what.into());
    }

    fn pause(&mut self, client: usize, suspended: bool) {
        let span = self.spell().min(self.quiet_from - self.at);
        let process = &mut self.processes[client];
        if process.asleep_until > self.at || process.misled {
            return;
        }
        process.asleep_until = self.at + span;
        process.awake_since = self.at + span;
        self.story.tell(self.at, Who::Client(client), None, || {
            format!("{} for {} ms", if suspended { "is suspended" } else { "is paused" }, span / MS)
        });
    }

    fn die(&mut self, client: usize) {
        self.tell_client(client, "dies");
        for name in self.names_in_use(client) {
            self.orphans[name] = true;
        }
        self.processes[client].alive = false;
        self.beliefs.retain(|belief| belief.client != client);
        if self.chance.permille(500) {
            let latency = self.processes[client].latency;
            let born = self.add_process(latency);
            self.tell_client(born, "is started");
        }
    }

    fn stop_store(&mut self, what: &str, at_least: u64) {
        let span = self.spell().max(at_least);
        self.store.down_until = self.at + span;
        self.story.tell(self.at, Who::Store, None, || format!("{what}, back after {} ms", span / MS));
        for client in 0..self.processes.len() {
            let after = span + self.chance.within(0..20 * MS);
            self.agenda.add(self.at + after, Event::Hint { client, name: None });
        }
    }

    fn lose_memory(&mut self, how: Disaster) {
        let copy = if let Disaster::Restore = how { self.old_copy.take() } else { None };
        let seed = self.chance.draw();
        self.store.reference = copy.map_or_else(|| reference(seed, &self.plan), |copy| *copy);
        self.remembers = false;
        self.fences.forgot_all(self.at);
        self.look_at_store();
        if self.plan.faults.emptied {
            // Not even that is done within one tick of its clock.
            self.store.down_until = self.at + 2 * self.plan.clock_step;
            self.story.tell(self.at, Who::Store, None, || "is emptied".into());
        } else {
            self.stop_store("is started without its memory", STARTS_IN);
        }
    }

    /// Leases that end early for it are lost to their holders, as if it had forgotten them.
    fn set_clock(&mut self) {
        let most = self.chance.pick(&[SECOND / 100, 10 * SECOND, 36_000 * SECOND]);
        let back = self.plan.faults.set_back;
        // A small step back cannot be told from a clock that goes in coarse steps.
        let span = self.chance.within(if back { 4 * MS } else { 1 }..most);
        self.store.clock.set(if back { -(span as i64) } else { span as i64 });
        self.remembers = false;
        self.fences.forgot_all(self.at);
        self.story.tell(self.at, Who::Store, None, || {
            format!("has its clock set {} by {} ms", if back { "back" } else { "forward" }, span / MS)
        });
    }

    /// The network heals, everybody is awake: what is left must end well.
    fn quieten(&mut self) {
        self.story.tell(self.at, Who::World, None, || "is quiet from now on".into());
        self.quiet_since = self.at;
        self.store.down_until = self.at;
        for process in &mut self.processes {
            process.cut_until = self.at;
        }
    }
}
