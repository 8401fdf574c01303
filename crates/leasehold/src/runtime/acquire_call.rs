//! One task's way to a lock: it asks, waits and is told. Dropping it at any moment leaks nothing.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use leasehold_core::port::{Acquired, Busy};
use leasehold_core::table::{AcquireRequest, Answer, Grant, Input, TaskEffect, TicketId};
use leasehold_core::{Error, ErrorKind, Moment, Names};
use smallvec::SmallVec;
use tokio::time::Sleep;

use crate::client::event::Event;
use crate::client::status::Holder;
use crate::runtime::background::Remains;
use crate::runtime::in_flight::{Completed, InFlight};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::panic_guard::Panic;
use crate::runtime::shell::{Recipient, Shell};

/// What asking came to.
pub(crate) enum Outcome {
    Granted(SmallVec<[Grant; 1]>),
    Busy(Option<Box<Busy>>),
    Extended,
}

/// A task that wants something of the table. When it is dropped, the table forgets its wish, a call on its way is finished in the
/// background, and a lock that it turns out to have got is released.
pub(crate) struct AcquireCall<'a> {
    shell: &'a Arc<Shell>,
    id: TicketId,
    /// The lock's own: the count of copies is not touched by every wait, for many tasks would touch it at once.
    names: &'a Names,
    flight: Option<InFlight>,
    mailbox: Option<Arc<Mailbox>>,
    /// What the store said last: for one whose time runs out.
    last: Last,
    waiting: bool,
    /// Since when it wants a lock, where anybody listens.
    began: Option<Moment>,
    done: bool,
}

enum Last {
    Nothing,
    Busy(Box<Busy>),
    Failed(Error),
}

impl<'a> AcquireCall<'a> {
    /// Puts the wish to the table.
    pub(crate) fn new(
        shell: &'a Arc<Shell>,
        names: &'a Names,
        input: impl FnOnce(TicketId) -> Input,
    ) -> (Self, Option<TaskEffect>) {
        Self::begin(shell, names, None, input)
    }

    fn begin(
        shell: &'a Arc<Shell>,
        names: &'a Names,
        began: Option<Moment>,
        input: impl FnOnce(TicketId) -> Input,
    ) -> (Self, Option<TaskEffect>) {
        let mut state = shell.state();
        let id = state.table.ticket();
        let (last, waiting, done) = (Last::Nothing, false, false);
        let mut asking = Self { shell, id, names, flight: None, mailbox: None, last, waiting, began, done };
        let stepped = shell.step_locked(&mut state, input(id), Recipient::Ticket(id));
        asking.be_reachable(&mut state, stepped.mail.told.as_ref());
        let told = stepped.send(shell, state).told;
        (asking, told)
    }

    pub(crate) fn want(shell: &'a Arc<Shell>, names: &'a Names, want: AcquireRequest) -> (Self, Option<TaskEffect>) {
        let began = shell.is_heard().then(leasehold_clock::now);
        Self::begin(shell, names, began, |id| Input::Acquire(id, want))
    }

    /// Before the mutex is let go, one who has to wait must have a mailbox, and one who is done must have none.
    fn be_reachable(&mut self, state: &mut crate::runtime::shell::State, told: Option<&TaskEffect>) {
        match (told, &self.mailbox) {
            (None | Some(TaskEffect::Sleep(_)), None) => {
                let mailbox = Arc::new(Mailbox::default());
                if state.closed {
                    let closed =
                        Error::new(ErrorKind::Closed, "acquire", "the client was closed").with_hint("connect anew");
                    let nobody_sleeps_yet = mailbox.put(TaskEffect::Failed(closed));
                    drop(nobody_sleeps_yet);
                } else {
                    state.mailboxes.insert(self.id, mailbox.clone());
                }
                self.mailbox = Some(mailbox);
            }
            (None | Some(TaskEffect::Sleep(_) | TaskEffect::Call(_)), _) | (_, None) => {}
            (Some(_), Some(_)) => drop(state.mailboxes.remove(&self.id)),
        }
    }

    /// Goes on until the table has an answer, or until `limit`.
    pub(crate) async fn run(mut self, mut told: Option<TaskEffect>, limit: Option<Moment>) -> Result<Outcome, Error> {
        let mut alarm = limit.map(|limit| Alarm::new(self.shell, limit));
        // The keeper was not woken for a call that follows on sleeping, for it may be answered at once.
        let mut again = false;
        loop {
            told = match told {
                Some(TaskEffect::Granted(grants)) => return Ok(self.granted(grants)),
                Some(TaskEffect::Busy(busy)) => return Ok(self.finish(Outcome::Busy(Some(busy)))),
                Some(TaskEffect::Extended) => return Ok(self.finish(Outcome::Extended)),
                Some(TaskEffect::Failed(error)) => return Err(self.failed(error)),
                Some(TaskEffect::Call(sending)) => {
                    let flight = self.shell.start(*sending);
                    if std::mem::take(&mut again) && !flight.is_finished() {
                        self.shell.rouse_keeper();
                    }
                    self.flight = Some(flight);
                    match poll_fn(|task| self.poll_flight(task, alarm.as_mut())).await {
                        Some(landed) => self.answer(landed),
                        None => return self.out_of_time(),
                    }
                }
                Some(TaskEffect::Sleep(until)) => {
                    self.tell_waiting();
                    let mut sleep = Alarm::new(self.shell, until);
                    match poll_fn(|task| self.poll_mail(task, Some(&mut sleep), alarm.as_mut())).await {
                        Wakes::Effect(told) => Some(told),
                        Wakes::Slept => {
                            again = true;
                            self.woke()
                        }
                        Wakes::OutOfTime => return self.out_of_time(),
                    }
                }
                None => {
                    self.tell_waiting();
                    match poll_fn(|task| self.poll_mail(task, None, alarm.as_mut())).await {
                        Wakes::Effect(told) => Some(told),
                        _ => return self.out_of_time(),
                    }
                }
            };
        }
    }

    fn poll_flight(&mut self, task: &mut TaskContext<'_>, alarm: Option<&mut Alarm>) -> Poll<Option<Completed>> {
        if let Some(flight) = &mut self.flight
            && let Poll::Ready(landed) = flight.poll(task)
        {
            self.flight = None;
            return Poll::Ready(Some(landed));
        }
        poll_alarm(alarm, task).map(|()| None)
    }

    fn poll_mail(
        &mut self,
        task: &mut TaskContext<'_>,
        sleep: Option<&mut Alarm>,
        alarm: Option<&mut Alarm>,
    ) -> Poll<Wakes> {
        if let Some(mailbox) = &self.mailbox
            && let Poll::Ready(told) = mailbox.poll(task)
        {
            return Poll::Ready(Wakes::Effect(told));
        }
        if poll_alarm(alarm, task).is_ready() {
            return Poll::Ready(Wakes::OutOfTime);
        }
        match sleep {
            Some(sleep) => sleep.poll(task).map(|()| Wakes::Slept),
            None => Poll::Pending,
        }
    }

    fn answer(&mut self, landed: Completed) -> Option<TaskEffect> {
        let Completed { context, answer, panic } = landed;
        match &answer {
            Answer::Acquire(Ok(answered)) => {
                if let Acquired::Busy(busy) = &answered.result {
                    self.last = Last::Busy(busy.clone());
                }
            }
            Answer::Acquire(Err(error)) | Answer::Watch(Err(error)) => self.last = Last::Failed(error.clone()),
            _ => {}
        }
        let told = self.step(Input::Answer(context, answer));
        match panic {
            Some(panic) => self.panicked(told, panic),
            None => told,
        }
    }

    /// The table has its answer: the panic of a layer goes on to the caller, who wants nothing any more.
    #[cold]
    fn panicked(&mut self, told: Option<TaskEffect>, panic: Panic) -> ! {
        if matches!(told, None | Some(TaskEffect::Call(_) | TaskEffect::Sleep(_))) {
            let granted = self.leave().map(TaskEffect::Granted);
            self.shell.give_up(granted, Some(self.names));
        }
        self.done = true;
        self.shell.give_up(told, Some(self.names));
        std::panic::resume_unwind(panic)
    }

    fn woke(&mut self) -> Option<TaskEffect> {
        let name = self.names.first().clone();
        self.step(Input::Woke(self.id, name))
    }

    fn step(&mut self, input: Input) -> Option<TaskEffect> {
        let shell = self.shell;
        let mut state = shell.state();
        let stepped = shell.step_locked(&mut state, input, Recipient::Ticket(self.id));
        self.be_reachable(&mut state, stepped.mail.told.as_ref());
        stepped.send(shell, state).told
    }

    fn tell_waiting(&mut self) {
        if !self.waiting {
            self.waiting = true;
            self.shell.tell(|| Event::Waits { name: self.names.first() });
        }
    }

    /// The time to wait is over: unless the lock came at this very moment, it is busy.
    fn out_of_time(mut self) -> Result<Outcome, Error> {
        if matches!(self.last, Last::Nothing) {
            self.last = self.known_to_be_busy();
        }
        let leftover = self.leave();
        match leftover {
            Some(grants) => Ok(self.granted(grants)),
            None => match std::mem::replace(&mut self.last, Last::Nothing) {
                Last::Failed(error) => Err(self.failed(error)),
                Last::Busy(busy) => Ok(self.finish(Outcome::Busy(Some(busy)))),
                Last::Nothing => Ok(self.finish(Outcome::Busy(None))),
            },
        }
    }

    /// Who never asked the store itself may still be told who holds the lock, as far as this client knows.
    fn known_to_be_busy(&self) -> Last {
        let state = self.shell.state();
        let now = leasehold_clock::now();
        let busy = self.names.as_slice().iter().find_map(|name| state.table.busy(now, name));
        busy.map_or(Last::Nothing, |busy| Last::Busy(Box::new(busy)))
    }

    /// Takes the wish back. A grant that was already in the mail is given out instead of being released.
    fn leave(&mut self) -> Option<SmallVec<[Grant; 1]>> {
        let name = self.names.first().clone();
        let mut state = self.shell.state();
        let stepped = self.shell.step_locked(&mut state, Input::Cancel(self.id, name), Recipient::Nothing);
        // In the same step: what the table tells up to the cancelling must find its mailbox, or a lock passed on would be lost.
        state.mailboxes.remove(&self.id);
        stepped.send(self.shell, state);
        let mut granted = None;
        while let Some(told) = self.mailbox.as_ref().and_then(|mailbox| mailbox.take()) {
            match told {
                TaskEffect::Granted(grants) => granted = Some(grants),
                told => self.shell.give_up(Some(told), Some(self.names)),
            }
        }
        if let Some(flight) = self.flight.take() {
            self.shell.adopt(flight, Recipient::Ticket(self.id), Remains::Acquired(self.names.clone()));
        }
        self.mailbox = None;
        self.done = true;
        granted
    }

    fn granted(mut self, grants: SmallVec<[Grant; 1]>) -> Outcome {
        self.end();
        Outcome::Granted(grants)
    }

    fn finish(mut self, outcome: Outcome) -> Outcome {
        self.end();
        outcome
    }

    fn failed(mut self, error: Error) -> Error {
        self.end();
        error.on_store(self.shell.store.label()).on_lock(self.names.first())
    }

    fn end(&mut self) {
        self.done = true;
    }
}

impl Drop for AcquireCall<'_> {
    fn drop(&mut self) {
        if self.done || self.shell.is_forked() {
            return;
        }
        let busy = self.began.map(|_| match std::mem::replace(&mut self.last, Last::Nothing) {
            Last::Nothing => self.known_to_be_busy(),
            last => last,
        });
        if let Some(grants) = self.leave() {
            self.shell.give_up(Some(TaskEffect::Granted(grants)), Some(self.names));
        }
        if let Some(busy) = busy {
            let holder = match busy {
                Last::Busy(busy) => Holder::of(*busy),
                _ => Holder::unknown(self.names.first().clone()),
            };
            self.shell.tell(|| Event::Cancelled {
                name: self.names.first(),
                waited: waited(self.began),
                holder: &holder,
            });
        }
    }
}

/// How long a task has waited, where anybody listens.
pub(crate) fn waited(began: Option<Moment>) -> std::time::Duration {
    began.map(|began| leasehold_clock::now().since(began)).unwrap_or_default()
}

enum Wakes {
    Effect(TaskEffect),
    Slept,
    OutOfTime,
}

fn poll_alarm(alarm: Option<&mut Alarm>, task: &mut TaskContext<'_>) -> Poll<()> {
    alarm.map_or(Poll::Pending, |alarm| alarm.poll(task))
}

/// A timer on the keeper's runtime, so that the caller needs none.
pub(crate) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    shell: Arc<Shell>,
}

impl Alarm {
    pub(crate) fn new(shell: &Arc<Shell>, until: Moment) -> Self {
        let _context = shell.background.enter();
        let sleep = Box::pin(tokio::time::sleep(until.since(leasehold_clock::now())));
        Self { sleep: Some(sleep), shell: shell.clone() }
    }

    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        self.sleep.as_mut().map_or(Poll::Ready(()), |sleep| sleep.as_mut().poll(task))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // In a forked child the runtime's mutex may be locked for ever: leave the timer where it is.
        if self.shell.is_forked() {
            std::mem::forget(self.sleep.take());
        }
    }
}
