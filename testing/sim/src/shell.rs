//! The shell around a table: does what the table says, as the asynchronous client does.

use leasehold_core::options::Term;
use leasehold_core::port::{About, Release, ReleaseScope, Released};
use leasehold_core::table::{
    Grant, HoldId, How, Input, Loss, Output, Outputs, Request, Settings, Table, TaskEffect, TicketId,
};
use leasehold_core::{ClientId, Error, ErrorKind, Moment, RequestId, StoreClock};
use std::sync::Arc;
use std::time::Duration;

use crate::beliefs::Belief;
use crate::chance::{MS, SECOND};
use crate::clock::Clock;
use crate::invariants::extending::Extension;
use crate::invariants::releasing::Giving;
use crate::invariants::{
    broken, closing, exclusion, extending, keeping, lost_before, own_end, patience, releasing, tries,
};
use crate::process::{Guard, Process, Task, Wanting};
use crate::store::Ask;
use crate::story::Who;
use crate::world::{Event, World, error};

/// A timer fires at most this late.
const TIMER_LATE: u64 = MS;
/// A keeper that has much to do comes at most this late: answers may be there before it has noticed that a lease is over.
pub(crate) const KEEPER_LATE: u64 = 12 * MS;
/// So many steps may follow from one another at the same time.
const DEPTH_MAX: u32 = 40;

impl World {
    /// Adds a process with its tasks.
    pub(crate) fn add_process(&mut self, latency: u64) -> usize {
        let index = self.processes.len();
        let clock = Clock::new(self.chance.within(0..1_000 * SECOND), error(&mut self.chance), 1);
        let id = ClientId([self.chance.draw(), index as u64]);
        let at = self.store.clock.store_time(self.at - latency);
        let seen = StoreClock::new(clock.moment(self.at - 2 * latency), clock.moment(self.at), at);
        let patience = self.chance.pick(&[0, 500, 5_000]);
        let table = Table::new(Settings {
            client: id,
            hints: self.plan.hints,
            unlayered: true,
            call_limit: Duration::from_nanos(self.plan.call_limit),
            patience: Duration::from_millis(patience),
            clock: seen,
            seed: self.chance.draw(),
        });
        let tasks = self.chance.within(1..self.plan.tasks + 1);
        self.processes.push(Process {
            id,
            table,
            clock,
            closed: false,
            alive: true,
            asleep_until: 0,
            awake_since: 0,
            cut_until: 0,
            latency,
            tasks: Vec::new(),
            calls: Vec::new(),
            tick_at: 0,
            leased_since: [0; 3],
            answering_since: 0,
            answering_sent: Moment::default(),
            misled: false,
            skipped: Duration::ZERO,
            patience: Duration::from_millis(patience),
            giving: Vec::new(),
        });
        for task in 0..tasks {
            let rounds = self.chance.within(1..self.plan.rounds + 1);
            self.processes[index].tasks.push(Task { rounds, ..Task::default() });
            let after = self.chance.within(0..(20 * MS).min(20 * self.plan.hold));
            self.agenda.add(self.at + after, Event::Act { client: index, task: task as usize, turn: 0 });
        }
        if self.chance.permille(self.plan.habits.close) {
            let after = self.chance.within(0..2 * SECOND);
            self.agenda.add(self.at + after, Event::Close { client: index });
        }
        index
    }

    pub(crate) fn now(&self, client: usize) -> Moment {
        self.processes[client].clock.moment(self.at)
    }

    /// One step of a table, and all that it asks for.
    pub(crate) fn step(&mut self, client: usize, input: Input) {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.must(broken("an end", None, format!("client {client} goes round in circles")));
        }
        let now = self.now(client);
        self.check_validity(client);
        let mut out = Outputs::new();
        self.processes[client].table.step(now, input, &mut out);
        self.carry_out_all(client, out);
        self.check_backing();
        self.check_holds();
        self.check_validity(client);
        self.depth -= 1;
    }

    /// Does what a table says.
    pub(crate) fn carry_out_all(&mut self, client: usize, out: Outputs) {
        for output in out {
            self.carry_out(client, output);
        }
        self.set_timer(client);
    }

    fn carry_out(&mut self, client: usize, output: Output) {
        match output {
            Output::To(ticket, told) => self.told(client, ticket, told),
            Output::Released(hold, result) => {
                self.story.tell(self.at, Who::Client(client), None, || format!("{hold:?} given back: {result:?}"));
                self.given(client, hold, &result);
            }
            Output::Lost(hold, _, report) => self.lost(client, hold, report.loss),
            Output::RenewalFailed(..) | Output::RenewalLate(..) => {}
            Output::ForHold(hold, sending) => {
                let number = match &sending.request {
                    Request::Release(Release { scope: ReleaseScope::Hold(id), .. }) => Some(id.number),
                    _ => None,
                };
                if let Some(giving) = self.processes[client].giving.iter_mut().find(|giving| giving.hold == hold) {
                    giving.request = number;
                }
                self.carry_out(client, Output::Background(sending));
            }
            Output::Background(sending) => {
                if self.is_faulty() && self.chance.permille(self.plan.habits.unsent / 4) {
                    return self.step(client, Input::Unsent(sending.context));
                }
                self.call(client, *sending);
            }
            Output::Unwatch(name) => self.unwatch(client, Ask::Unwatch(name)),
        }
    }

    fn given(&mut self, client: usize, hold: HoldId, result: &Result<Released, Error>) {
        let process = &mut self.processes[client];
        let Some(at) = process.giving.iter().position(|giving| giving.hold == hold) else { return };
        let giving = process.giving.swap_remove(at);
        let id = giving.request.map(|number| RequestId { client: process.id, number });
        let taken_back = id.is_some_and(|id| self.taken_back.contains(&(id, giving.name)));
        let verdict = releasing::told(&self.scene(), giving, result, taken_back);
        self.must(verdict);
    }

    fn told(&mut self, client: usize, ticket: TicketId, told: TaskEffect) {
        let Some(task) = self.processes[client].task_of(ticket) else {
            return self.told_nobody(client, told);
        };
        self.check_told(client, task, &told);
        match told {
            TaskEffect::Granted(grants) => self.granted(client, task, &grants),
            TaskEffect::Busy(busy) => {
                self.story
                    .tell(self.at, Who::Task(client, task), None, || format!("is told that {} is busy", busy.name));
                self.end_wanting(client, task);
            }
            TaskEffect::Failed(error) => {
                self.story.tell(self.at, Who::Task(client, task), None, || format!("is told: {error}"));
                self.end_wanting(client, task);
            }
            TaskEffect::Extended => self.end_wanting(client, task),
            TaskEffect::Call(sending) => {
                let after = self.chance.within(0..(2 * self.processes[client].latency + 1).min(MS / 10));
                let now = (self.now(client), self.processes[client].skipped);
                let task_state = &mut self.processes[client].tasks[task];
                task_state.sleep += 1;
                let turn = task_state.turn;
                let before = task_state.want.as_mut().and_then(|want| {
                    if !matches!(sending.request, Request::Watch(_)) {
                        want.asks_since.get_or_insert(now);
                    }
                    want.sending.replace(sending)
                });
                self.agenda.add(self.at + after, Event::Send { client, task, turn });
                if let Some(sending) = before {
                    self.step(client, Input::Unsent(sending.context));
                }
            }
            TaskEffect::Sleep(until) => self.sleep(client, task, until),
        }
    }

    /// Whether a task may be told this now.
    fn check_told(&mut self, client: usize, task: usize, told: &TaskEffect) {
        let Some(want) = &self.processes[client].tasks[task].want else { return };
        let scene = self.scene();
        let verdict = match (told, want.extends) {
            (TaskEffect::Extended, Some(extension)) => extending::extended(&scene, client, extension),
            (TaskEffect::Failed(error), Some(extension)) if error.kind() == ErrorKind::Lost => {
                extending::refused(&scene, client, extension)
            }
            (TaskEffect::Failed(error), None) if error.kind() == ErrorKind::Closed => {
                closing::failed(&scene, client, error)
            }
            (TaskEffect::Failed(error), None) if error.is_retryable() && !want.again => {
                patience::failed(&scene, client, want)
            }
            (TaskEffect::Granted(_) | TaskEffect::Busy(_), _) => tries::answered(&scene, client, want),
            _ => Ok(()),
        };
        let lengthened = want.extends.filter(|_| matches!(told, TaskEffect::Extended));
        self.must(verdict);
        if let Some(extension) = lengthened {
            self.may_last(client, extension);
        }
    }

    /// A fixed hold may have been lengthened.
    pub(crate) fn may_last(&mut self, client: usize, extension: Extension) {
        let asked = |held: &&mut Belief| held.client == client && held.hold == extension.hold && held.fixed;
        if let Some(held) = self.beliefs.iter_mut().find(asked) {
            held.ends = held.ends.max(extension.asked + extension.term);
        }
    }

    /// The task behind a ticket has gone: a grant is given back at once, a call is not sent.
    fn told_nobody(&mut self, client: usize, told: TaskEffect) {
        match told {
            TaskEffect::Granted(_) => self.must(Err(crate::invariants::Violation {
                invariant: "nothing left over",
                name: None,
                what: format!("client {client} grants to a task that has cancelled"),
            })),
            TaskEffect::Call(sending) => self.step(client, Input::Unsent(sending.context)),
            _ => {}
        }
    }

    fn sleep(&mut self, client: usize, task: usize, until: Moment) {
        let late = self.chance.within(0..TIMER_LATE);
        let process = &mut self.processes[client];
        process.tasks[task].sleep += 1;
        let sleep = process.tasks[task].sleep;
        if until != Moment::NEVER {
            let at = process.clock.true_time(until).max(self.at);
            self.agenda.add(at + late, Event::Woke { client, task, sleep });
        }
    }

    pub(crate) fn woke(&mut self, client: usize, task: usize, sleep: u32) {
        let state = &self.processes[client].tasks[task];
        if state.sleep != sleep {
            return;
        }
        if let Some(want) = &state.want {
            let input = Input::Woke(want.ticket, want.names.first().clone());
            self.step(client, input);
        }
    }

    fn granted(&mut self, client: usize, task: usize, grants: &[Grant]) {
        let Some(mut want) = self.processes[client].tasks[task].want.take() else { return };
        if let Some(sending) = want.sending.take() {
            self.step(client, Input::Unsent(sending.context));
        }
        for (name, grant) in want.names.as_slice().iter().zip(grants) {
            let name = self.name_number(name);
            self.believe(client, task, name, &want, *grant);
            let guard = Guard { name, hold: grant.hold, owner: want.owner.clone(), options: want.options.clone() };
            self.processes[client].tasks[task].guards.push(guard);
        }
        self.next_act(client, task);
    }

    fn believe(&mut self, client: usize, task: usize, name: usize, want: &Wanting, grant: Grant) {
        if grant.how == How::Asked {
            self.processes[client].leased_since[name] = self.processes[client].answering_since;
        }
        let left = self.processes[client].table.time_left(self.now(client), &self.names[name], grant.hold);
        // A grant that was made by an earlier sending may be all but over when it is found.
        let whole = left.is_some_and(|left| left >= want.options.term.lease() / 2);
        let kept = matches!(want.options.term, Term::Kept(_)) && want.options.max_hold.is_none() && whole;
        let belief = Belief {
            client,
            name,
            hold: grant.hold,
            owner: want.owner.clone(),
            fence: grant.fence,
            since: self.at,
            sent: self.processes[client].answering_since,
            how: grant.how,
            leased_since: self.processes[client].leased_since[name],
            kept,
            fixed: matches!(want.options.term, Term::Fixed(_)),
            ends: own_end::of(self.now(client), &want.options),
        };
        self.story.tell(self.at, Who::Task(client, task), Some(name), || {
            format!(
                "holds {:?} ({:?}, {:?}) {:?}, left {left:?}",
                grant.fence, grant.how, grant.hold, want.options.term
            )
        });
        self.note_grant(&belief);
        self.terms.began(self.processes[client].id, name);
        let mut fences = std::mem::take(&mut self.fences);
        let verdict = fences.granted(&self.scene(), &belief);
        self.fences = fences;
        self.must(verdict);
        if grant.how == How::Asked {
            let mut starvation = std::mem::take(&mut self.starvation);
            let verdict = starvation.turn(&self.scene(), client, name);
            self.starvation = starvation;
            self.must(verdict);
        }
        let mut at_least = std::mem::take(&mut self.at_least);
        let verdict = at_least.granted(&self.scene(), &belief, &want.options);
        self.at_least = at_least;
        self.must(verdict);
        let mut passing = std::mem::take(&mut self.passing);
        let verdict = passing.granted(&self.scene(), &belief, &want.options);
        self.passing = passing;
        self.must(verdict);
        self.beliefs.push(belief.clone());
        let verdict = exclusion::granted(&self.scene(), &belief);
        self.must(verdict);
        let verdict = closing::granted(&self.scene(), &belief);
        self.must(verdict);
        self.check_holds();
        let verdict = lost_before::granted(&self.scene(), &belief);
        self.must(verdict);
    }

    fn lost(&mut self, client: usize, hold: HoldId, loss: Loss) {
        self.validity.lost(client, hold);
        let Some(at) = self.beliefs.iter().position(|belief| belief.client == client && belief.hold == hold) else {
            return;
        };
        let belief = self.beliefs.swap_remove(at);
        self.story.tell(self.at, Who::Client(client), Some(belief.name), || format!("{hold:?} is lost: {loss:?}"));
        let ours = |held: &Belief| held.client == client && held.name == belief.name;
        if loss == Loss::TimeEnded && !self.beliefs.iter().any(ours) {
            self.terms.ended(self.at, self.processes[client].id, belief.name);
        }
        let verdict = keeping::lost(&self.scene(), &belief, loss);
        self.must(verdict);
    }

    pub(crate) fn tick(&mut self, client: usize) {
        let now = self.now(client);
        let process = &mut self.processes[client];
        process.tick_at = u64::MAX;
        if process.table.next_timer().is_some_and(|due| due <= now) {
            self.step(client, Input::Tick);
        } else {
            self.set_timer(client);
        }
    }

    fn set_timer(&mut self, client: usize) {
        let process = &mut self.processes[client];
        let Some(due) = process.table.next_timer() else { return };
        let at = process.clock.true_time(due).max(self.at);
        if process.tick_at == 0 || at < process.tick_at || process.tick_at < self.at {
            process.tick_at = at;
            let most = if self.plan.keeper_late { KEEPER_LATE } else { TIMER_LATE };
            let late = self.chance.within(0..most);
            self.agenda.add(at + late, Event::Tick { client });
        }
    }

    pub(crate) fn close(&mut self, client: usize) {
        self.story.tell(self.at, Who::Client(client), None, || "closes".into());
        self.processes[client].closed = true;
        self.step(client, Input::Close);
        let verdict = closing::closed(&self.scene(), client);
        self.must(verdict);
    }

    /// Gives a guard back: it is released, or dropped.
    pub(crate) fn give_back(&mut self, client: usize, guard: &Guard, dropped: bool) {
        let hold = guard.hold;
        self.validity.given_back(client, hold);
        let held = self.beliefs.iter().position(|belief| belief.client == client && belief.hold == hold);
        let held = held.map(|at| self.beliefs.swap_remove(at));
        let valid = held.as_ref().is_some_and(|held| held.is_valid(self.at, &self.processes, &self.names));
        self.story.tell(self.at, Who::Client(client), Some(guard.name), || {
            format!("{} {hold:?}", if dropped { "drops" } else { "releases" })
        });
        if held.is_some() {
            self.terms.began(self.processes[client].id, guard.name);
        }
        self.processes[client].giving.push(Giving { hold, name: guard.name, valid, request: None });
        let name = self.names[guard.name].clone();
        self.step(client, Input::Release(guard.hold, name));
    }
}

pub(crate) fn about() -> Arc<About> {
    Arc::default()
}
