//! Calls, answers and hints on their way between processes and the store.

use leasehold_core::port::{Acquired, ReleaseScope, Released, Renewed};
use leasehold_core::reference::Hints;
use leasehold_core::table::{Answer, Context, Input, Request, Sending};
use leasehold_core::{Error, ErrorKind, Name, Outcome};

use crate::chance::MS;
use crate::invariants::{herd, only_holder, patience, revival};
use crate::network::{self, Fate};
use crate::process::{Call, Kind, Wanting};
use crate::store::Ask;
use crate::story::Who;
use crate::telling;
use crate::world::{Event, World};

impl World {
    /// Sends a call; it will be answered, or given up.
    pub(crate) fn call(&mut self, client: usize, sending: Sending) -> u64 {
        self.calls += 1;
        let call = self.calls;
        let Sending { context, request } = sending;
        let about = self.about(&request);
        let sent = (self.at, self.now(client));
        self.processes[client].calls.push(Call { id: call, context, kind: Kind::of(&request), sent });
        if self.is_faulty() && self.chance.permille(self.plan.faults.refuse) {
            self.story.tell(self.at, Who::Client(client), about, || {
                format!("call {call} is refused: {}", telling::request(&request))
            });
            let answer = Box::new(failed(Kind::of(&request), Outcome::NotApplied));
            let after = self.chance.within(0..2 * MS);
            self.agenda.add(self.at + after, Event::Reply { client, call, answer });
            return call;
        }
        let broken = self.is_faulty() && self.chance.permille(self.plan.faults.reset);
        let limit = if broken { self.chance.within(0..20 * MS) } else { self.plan.call_limit };
        self.agenda.add(self.at + limit, Event::GivenUp { client, call });
        let may_repeat = !matches!(request, Request::Watch(_));
        let mut fate = self.fate(client, may_repeat);
        if broken {
            // What a dead connection still holds may be read later.
            let held_up = self.chance.within(0..self.plan.call_limit);
            fate.arrives = fate.arrives.map(|arrives| arrives + held_up);
        }
        self.story.tell(self.at, Who::Client(client), about, || {
            format!("call {call} {}: {}", telling::fate(fate), telling::request(&request))
        });
        let ask = Ask::Call(request);
        if let Some(again) = fate.again {
            self.deliver(again, Event::AtStore { client, call, ask: ask.clone() });
        }
        if let Some(arrives) = fate.arrives {
            self.deliver(arrives, Event::AtStore { client, call, ask });
        }
        call
    }

    pub(crate) fn unwatch(&mut self, client: usize, ask: Ask) {
        let fate = self.fate(client, false);
        let about = if let Ask::Unwatch(name) = &ask { Some(self.name_number(name)) } else { None };
        self.story.tell(self.at, Who::Client(client), about, || format!("unwatches {}", telling::fate(fate)));
        if let Some(arrives) = fate.arrives {
            self.deliver(arrives, Event::AtStore { client, call: 0, ask });
        }
    }

    fn deliver(&mut self, after: u64, message: Event) {
        self.in_flight += 1;
        self.agenda.add(self.at + after, message);
    }

    fn fate(&mut self, client: usize, may_repeat: bool) -> Fate {
        let process = &self.processes[client];
        if process.cut_until > self.at {
            return Fate::default();
        }
        let faults = (self.at < self.quiet_since).then_some(&self.plan.faults);
        network::fate(&mut self.chance, faults, process.latency, may_repeat)
    }

    /// A message arrives at the store.
    pub(crate) fn at_store(&mut self, client: usize, call: u64, ask: &Ask) {
        self.in_flight -= 1;
        if self.store.down_until > self.at {
            return;
        }
        let id = self.processes[client].id;
        let held_before = self.taken_names();
        let (answer, hints) = self.store.execute(self.at, id, ask);
        self.observe_store(client, call, ask, answer.as_ref(), held_before);
        self.check_backing();
        self.must(herd::hinted(&hints));
        let names = self.names.clone();
        let number = |name: &Name| names.iter().position(|known| known == name).unwrap_or(0);
        // Who leaves is off the line before the next is told; who comes joins it after that.
        if let Ask::Unwatch(_) = ask {
            self.line.arrived(self.at, id, ask, number);
        }
        // An old copy of the store knows those who have left since.
        if self.remembers {
            let verdict = self.line.hinted(self.at, &hints, number);
            self.must(verdict);
        }
        self.line.arrived(self.at, id, ask, number);
        self.hint(hints);
        if let Some(answer) = answer {
            let about = if let Ask::Call(request) = ask { self.about(request) } else { None };
            let fate = self.fate(client, false);
            self.story.tell(self.at, Who::Store, about, || {
                format!("answers call {call} {}: {}", telling::fate(fate), telling::answer(&answer))
            });
            if let Some(arrives) = fate.arrives {
                let answer = Box::new(answer);
                self.agenda.add(self.at + arrives, Event::Reply { client, call, answer });
            }
        }
    }

    /// Hints on their way.
    pub(crate) fn hint(&mut self, hints: Hints) {
        for (who, name) in hints {
            let Some(to) = self.client_of(who) else { continue };
            let fate = self.fate(to, false);
            let number = self.name_number(&name);
            let lost = self.chance.permille(self.plan.faults.hint_loss);
            self.story.tell(self.at, Who::Store, Some(number), || {
                format!("hints client {to}{}", if lost { " (lost)" } else { "" })
            });
            if let (false, Some(arrives)) = (lost, fate.arrives) {
                self.agenda.add(self.at + arrives, Event::Hint { client: to, name: Some(number) });
            }
        }
    }

    /// Sees anew which names are free.
    pub(crate) fn look_at_store(&mut self) {
        (0..self.names.len()).for_each(|number| self.look_at_name(number));
    }

    fn look_at_name(&mut self, number: usize) {
        let now = self.store.clock.store_time(self.at);
        let inspected = self.store.reference.inspect(now, &self.names[number]);
        let left = inspected.holders.iter().filter_map(|holder| holder.left).max().unwrap_or_default();
        self.wake_up.free(number, self.at + left.as_nanos() as u64 * 101 / 100);
    }

    fn taken_names(&self) -> u8 {
        let now = self.store.clock.store_time(self.at);
        let taken = |(number, name)| u8::from(!self.store.reference.inspect(now, name).holders.is_empty()) << number;
        self.names.iter().enumerate().map(taken).sum()
    }

    /// Looks at what a message did to the store.
    fn observe_store(&mut self, client: usize, call: u64, ask: &Ask, answer: Option<&Answer>, before: u8) {
        let stray = self.plan.faults.repeat > 0 && !self.executed.insert(call);
        let now = self.store.clock.store_time(self.at);
        match (ask, answer) {
            (Ask::Call(Request::Acquire(request)), Some(Answer::Acquire(Ok(answered)))) => {
                if let Acquired::Granted(grants) = &answered.result {
                    for (name, grant) in request.names.as_slice().iter().zip(grants) {
                        let number = self.name_number(name);
                        self.strays[number] |= stray;
                        self.passing.reserved(number, grant.block);
                        if before >> number & 1 == 0 {
                            self.fresh.insert(call);
                            let mut blocks = std::mem::take(&mut self.blocks);
                            let now = now.max(request.clock.ceiling);
                            let verdict = blocks.granted(&self.scene(), number, grant.block, request.seen, now);
                            self.blocks = blocks;
                            self.must(verdict);
                            let verdict = self.wake_up.taken(&self.scene(), number);
                            self.must(verdict);
                        }
                        self.look_at_name(number);
                    }
                }
            }
            (Ask::Call(Request::Release(request)), Some(Answer::Release(Ok(answered)))) => {
                let number = self.name_number(&request.name);
                if let (ReleaseScope::Hold(id), true) = (request.scope, answered.result != Released::NotHeld) {
                    self.taken_back.insert((id, number));
                }
                if let Released::StillHeld(_) = answered.result {
                    self.look_at_name(number);
                }
                if let Released::Released { .. } = answered.result {
                    self.blocks.released(number, request.last_used);
                    self.wake_up.free(number, self.at + request.cooldown.as_nanos() as u64);
                    let verdict = only_holder::removed(&self.scene(), client, number);
                    self.must(verdict);
                }
            }
            (Ask::Call(Request::Renew(renews)), Some(Answer::Renew(Ok(answered)))) => {
                for (renew, result) in renews.iter().zip(&answered.result) {
                    let number = self.name_number(&renew.lease.name);
                    // Renewals know no `not_after`: one that comes late may lengthen what its client has given up.
                    self.strays[number] |= !self.processes[client].calls.iter().any(|made| made.id == call);
                    let verdict = self.breaking.renewed(&self.scene(), number, renew.lease.fence, *result);
                    self.must(verdict);
                    self.must(revival::renewed(*result, before >> number & 1 == 1, number));
                    if matches!(result, Renewed::Kept { .. }) {
                        self.look_at_name(number);
                    }
                }
            }
            _ => {}
        }
    }

    /// An answer arrives; after the call was given up it is ignored.
    pub(crate) fn replied(&mut self, client: usize, call: u64, answer: Answer) {
        let process = &mut self.processes[client];
        let Some(at) = process.calls.iter().position(|made| made.id == call) else { return };
        let Call { context, sent, .. } = process.calls.swap_remove(at);
        // What an earlier sending was granted is as old as that one.
        let found = matches!(answer, Answer::Acquire(_)) && !self.fresh.remove(&call);
        process.answering_since = if found { 0 } else { sent.0 };
        process.answering_sent = sent.1;
        self.answer(client, call, context, answer);
    }

    /// A call took too long.
    pub(crate) fn given_up(&mut self, client: usize, call: u64) {
        let process = &mut self.processes[client];
        let Some(at) = process.calls.iter().position(|made| made.id == call) else { return };
        let Call { context, kind, .. } = process.calls.swap_remove(at);
        self.story.tell(self.at, Who::Client(client), None, || format!("gives up call {call}"));
        self.answer(client, call, context, failed(kind, Outcome::Unknown));
    }

    /// Hands an answer to the table; whoever asked in vain for long enough hears of it.
    fn answer(&mut self, client: usize, call: u64, context: Context, answer: Answer) {
        let failed = matches!(answer, Answer::Acquire(Err(_)));
        let heard = matches!(answer, Answer::Acquire(Ok(_)));
        let asked = |want: &&mut Wanting| want.call == call && want.extends.is_none() && !want.again;
        let mut wants = self.processes[client].tasks.iter_mut().filter_map(|task| task.want.as_mut());
        let asker = wants.find(asked).map(|want| {
            want.heard |= heard;
            (want.ticket, want.names.clone())
        });
        if let (true, Some((_, names))) = (heard, &asker) {
            self.processes[client].store_answered(names);
        }
        self.step(client, Input::Answer(context, answer));
        if let (true, Some((ticket, _))) = (failed, asker)
            && let Some(task) = self.processes[client].task_of(ticket)
            && let Some(want) = &self.processes[client].tasks[task].want
        {
            let verdict = patience::goes_on(&self.scene(), client, want);
            self.must(verdict);
        }
    }

    pub(crate) fn hinted(&mut self, client: usize, name: Option<usize>) {
        let input = name.map_or(Input::HintAll, |name| Input::Hint(self.names[name].clone()));
        self.step(client, input);
    }

    fn about(&self, request: &Request) -> Option<usize> {
        match request {
            Request::Acquire(acquire) => Some(self.name_number(acquire.names.first())),
            Request::Release(release) => Some(self.name_number(&release.name)),
            Request::Renew(leases) if leases.len() == 1 => Some(self.name_number(&leases[0].lease.name)),
            Request::Renew(_) => None,
            Request::Watch(name) => Some(self.name_number(name)),
        }
    }
}

fn failed(kind: Kind, outcome: Outcome) -> Answer {
    let error = Error::new(ErrorKind::Unreachable, "call", "no answer").with_outcome(outcome);
    match kind {
        Kind::Acquire => Answer::Acquire(Err(error)),
        Kind::Renew => Answer::Renew(Err(error)),
        Kind::Release => Answer::Release(Err(error)),
        Kind::Watch => Answer::Watch(Err(error)),
    }
}
