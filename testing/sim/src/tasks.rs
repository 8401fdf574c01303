//! What tasks do: take locks, hold them, take them again, lengthen them, let them go, and change their minds.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::table::{AcquireRequest, Input, TicketId};
use leasehold_core::{Moment, Names, Options, Owner, Term};

use crate::beliefs::Belief;
use crate::chance::MS;
use crate::invariants::already_held;
use crate::invariants::extending::Extension;
use crate::process::{Guard, Wanting};
use crate::story::Who;
use crate::world::{Event, World};

impl World {
    /// A task does the next thing.
    pub(crate) fn act(&mut self, client: usize, task: usize, turn: u32) {
        let state = &self.processes[client].tasks[task];
        if state.turn != turn || state.want.is_some() || state.done {
            return;
        }
        if state.guards.is_empty() { self.begin_round(client, task) } else { self.go_on_holding(client, task) }
    }

    fn begin_round(&mut self, client: usize, task: usize) {
        let state = &mut self.processes[client].tasks[task];
        if state.rounds == 0 {
            state.done = true;
            return;
        }
        state.rounds -= 1;
        let owner = self.plan.owner(&mut self.chance);
        let names = self.draw_names();
        self.want(client, task, names, owner);
    }

    fn draw_names(&mut self) -> Names {
        let count = self.names.len() as u64;
        let several = count > 1 && self.chance.permille(self.plan.habits.group);
        let first = self.chance.within(0..count) as usize;
        let mut wanted = vec![self.names[first].clone()];
        if several {
            let other = (first + 1 + self.chance.within(0..count - 1) as usize) % self.names.len();
            wanted.push(self.names[other].clone());
            if self.chance.permille(200) {
                wanted.extend(self.names.iter().cloned());
            }
        }
        Names::new(wanted).expect("there is a name")
    }

    fn want(&mut self, client: usize, task: usize, names: Names, owner: Owner) {
        let options = Arc::new(self.plan.options(&mut self.chance));
        let once = self.chance.permille(self.plan.habits.once);
        let ticket = self.processes[client].table.ticket();
        self.story.tell(self.at, Who::Task(client, task), None, || {
            let who = owner.as_explicit().map_or("", |id| &**id);
            format!("wants {names:?} {who} {:?} as {ticket:?}{}", options.term, if once { " once" } else { "" })
        });
        let want = AcquireRequest {
            names: names.clone(),
            owner: owner.clone(),
            options: options.clone(),
            about: crate::shell::about(),
            once,
            until: None,
        };
        let ours = |held: &Belief| held.client == client && held.owner == owner;
        let again = self.beliefs.iter().any(ours);
        let wanting = Wanting { once, again, ..self.wanting(ticket, names, owner, options) };
        let holds_one = already_held::holds_one(&self.scene(), client, &wanting);
        self.begin_wanting(client, task, wanting);
        self.step(client, Input::Acquire(ticket, want));
        if holds_one {
            let waits = self.processes[client].task_of(ticket).is_some();
            self.must(already_held::asked(client, waits));
        }
    }

    fn wanting(&self, ticket: TicketId, names: Names, owner: Owner, options: Arc<Options>) -> Wanting {
        Wanting {
            ticket,
            names,
            owner,
            options,
            once: false,
            extends: None,
            sending: None,
            since: self.at,
            asks_since: None,
            call: 0,
            heard: false,
            again: false,
        }
    }

    fn begin_wanting(&mut self, client: usize, task: usize, wanting: Wanting) {
        let state = &mut self.processes[client].tasks[task];
        state.turn += 1;
        state.want = Some(wanting);
        let turn = state.turn;
        if self.chance.permille(self.plan.habits.give_up) {
            let most = self.chance.pick(&[1, 10, 100, 1_000]);
            let after = self.chance.within(0..most * MS);
            self.agenda.add(self.at + after, Event::Cancel { client, task, turn });
        }
    }

    /// A task that holds something: takes it again, lengthens it, holds it longer, or lets go.
    fn go_on_holding(&mut self, client: usize, task: usize) {
        let guards = &self.processes[client].tasks[task].guards;
        let few = guards.len() < 4;
        let guard = guards[guards.len() - 1].clone();
        if few && self.chance.permille(self.plan.habits.reenter) {
            let names = self.names_again(client, &guard);
            return self.want(client, task, names, guard.owner);
        }
        if self.chance.permille(self.plan.habits.extend) {
            return self.extend(client, task, &guard);
        }
        if self.chance.permille(self.plan.habits.leave) && self.leave_to_owner(client, task, &guard) {
            return self.next_act(client, task);
        }
        if self.chance.permille(100) {
            return self.next_act(client, task);
        }
        self.let_go(client, task);
        self.next_act(client, task);
    }

    /// The same name again; or by mistake several, of which it holds one.
    fn names_again(&mut self, client: usize, guard: &Guard) -> Names {
        let name = self.names[guard.name].clone();
        let left = self.processes[client].table.time_left(self.now(client), &name, guard.hold);
        if self.names.len() == 1 || left.is_none() || !self.chance.permille(self.plan.habits.group / 4) {
            return Names::One(name);
        }
        let other = self.names[(guard.name + 1) % self.names.len()].clone();
        Names::new(vec![name, other]).expect("there is a name")
    }

    fn extend(&mut self, client: usize, task: usize, guard: &Guard) {
        let ticket = self.processes[client].table.ticket();
        let term = guard.options.term.lease() * self.chance.within(1..4) as u32;
        let name = self.names[guard.name].clone();
        let names = Names::One(name.clone());
        let asked = self.now(client);
        let left = self.processes[client].table.time_left(asked, &name, guard.hold);
        let own_end = matches!(guard.options.term, Term::Fixed(_));
        let ended = left.filter(|_| own_end).map_or(Moment::NEVER, |left| asked + left);
        let extension = Extension { hold: guard.hold, name: guard.name, term, asked, ended };
        let wanting = self.wanting(ticket, names, guard.owner.clone(), guard.options.clone());
        let wanting = Wanting { extends: Some(extension), ..wanting };
        self.story.tell(self.at, Who::Task(client, task), Some(guard.name), || {
            format!("lengthens {:?} by {term:?}", guard.hold)
        });
        self.begin_wanting(client, task, wanting);
        self.step(client, Input::Extend(ticket, guard.hold, name, term));
    }

    /// Gives back one guard, or all of a group.
    fn let_go(&mut self, client: usize, task: usize) {
        let all = self.chance.permille(300);
        let dropped = self.chance.permille(400);
        let guards = &mut self.processes[client].tasks[task].guards;
        let first = self.chance.within(0..guards.len() as u64) as usize;
        let given = if all { std::mem::take(guards) } else { vec![guards.swap_remove(first)] };
        for guard in &given {
            self.give_back(client, guard, dropped);
        }
    }

    pub(crate) fn next_act(&mut self, client: usize, task: usize) {
        let hold = self.plan.hold;
        let after = self.chance.within(0..hold);
        let state = &mut self.processes[client].tasks[task];
        state.turn += 1;
        let turn = state.turn;
        self.agenda.add(self.at + after, Event::Act { client, task, turn });
    }

    pub(crate) fn end_wanting(&mut self, client: usize, task: usize) {
        let want = self.processes[client].tasks[task].want.take();
        self.next_act(client, task);
        if let Some(sending) = want.and_then(|want| want.sending) {
            self.step(client, Input::Unsent(sending.context));
        }
    }

    /// A task sends what it was told to send, unless it is dropped just before.
    pub(crate) fn send(&mut self, client: usize, task: usize, turn: u32) {
        let state = &mut self.processes[client].tasks[task];
        if state.turn != turn {
            return;
        }
        let Some(sending) = state.want.as_mut().and_then(|want| want.sending.take()) else { return };
        if self.chance.permille(self.plan.habits.unsent) {
            if let Some(want) = &mut self.processes[client].tasks[task].want {
                want.sending = Some(sending);
            }
            return self.cancel(client, task, turn);
        }
        let call = self.call(client, *sending);
        if let Some(want) = &mut self.processes[client].tasks[task].want {
            want.call = call;
        }
    }

    /// A task no longer wants what it waits for.
    pub(crate) fn cancel(&mut self, client: usize, task: usize, turn: u32) {
        let state = &mut self.processes[client].tasks[task];
        if state.turn != turn {
            return;
        }
        let Some(want) = state.want.take() else { return };
        self.story.tell(self.at, Who::Task(client, task), None, || format!("cancels {:?}", want.ticket));
        if let Some(extension) = want.extends {
            self.may_last(client, extension);
        }
        self.step(client, Input::Cancel(want.ticket, want.names.first().clone()));
        if let Some(sending) = want.sending {
            self.step(client, Input::Unsent(sending.context));
        }
        self.next_act(client, task);
    }

    /// For how long a task holds, at most.
    pub(crate) fn random_within(&mut self, most: u64) -> Duration {
        Duration::from_nanos(self.chance.within(0..most))
    }
}
