//! The way of one task to a lock: it asks the table, calls the store where the table says so, and waits where it has to.
//!
//! Dropping it at any moment leaks nothing.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::port::{Acquired, Busy};
use leasehold_core::table::{Answer, Grant, Input, Sending, TaskEffect, TicketId};
use leasehold_core::{Error, Moment, Names};
use smallvec::SmallVec;

use crate::client::event::Event;
use crate::client::status::Holder;
use crate::lock::Attempt;
use crate::runtime::in_flight::{Completed, InFlight};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::panic_guard::Panic;
use crate::runtime::shell::{Recipient, Shell, State};
use crate::runtime::sync::{Mutex, MutexGuard, lock};
use crate::runtime::timer::{Timer, poll_timer};

/// A task that wants something of the table. When it is dropped, its request is withdrawn, a call that is under way is finished in
/// the background, and a lock that it turns out to have brought is released.
pub(crate) struct AcquireCall<'a> {
    shell: &'a Arc<Shell>,
    id: TicketId,
    /// Borrowed from the lock: counting copies for every wait would make many tasks write to one counter.
    names: &'a Names,
    /// What the table last told this task to do.
    effect: Option<TaskEffect>,
    in_flight: Option<InFlight>,
    mailbox: Option<Arc<Mutex<Mailbox>>>,
    /// Why the store has not granted it so far: it is busy, or did not answer.
    refusal: Option<Result<Box<Busy>, Error>>,
    /// It woke up and asks again. The keeper was not woken for that, for the answer may be there at once.
    woke: bool,
    /// That it waits was emitted.
    waits: bool,
    /// When the task came, if there is a listener.
    began: Option<Moment>,
    /// Nothing is left to be withdrawn.
    done: bool,
}

impl<'a> AcquireCall<'a> {
    /// Puts a request to the table.
    pub(crate) fn new(
        shell: &'a Arc<Shell>,
        names: &'a Names,
        began: Option<Moment>,
        input: impl FnOnce(TicketId) -> Input,
    ) -> Self {
        let mut state = shell.state();
        let mut call = Self {
            shell,
            id: state.table.ticket(),
            names,
            effect: None,
            in_flight: None,
            mailbox: None,
            refusal: None,
            woke: false,
            waits: false,
            began,
            done: false,
        };
        call.step(state, input(call.id));
        call
    }

    /// Does what the table says until the request is granted or refused, or until `limit`. An extension is granted without grants.
    pub(crate) async fn run(mut self, limit: Option<Moment>) -> Result<Attempt<SmallVec<[Grant; 1]>>, Error> {
        let mut limit = limit.map(|limit| Timer::new(self.shell, limit));
        let result = loop {
            let in_time = match self.effect.take() {
                Some(TaskEffect::Granted(grants)) => break Ok(Attempt::Granted(grants)),
                Some(TaskEffect::Extended) => break Ok(Attempt::Granted(SmallVec::new())),
                Some(TaskEffect::Busy(busy)) => break Ok(Attempt::Busy(Holder::of(*busy))),
                Some(TaskEffect::Failed(error)) => break Err(error),
                Some(TaskEffect::Call(sending)) => self.call(*sending, &mut limit).await,
                Some(TaskEffect::Sleep(until)) => self.wait(Some(until), &mut limit).await,
                None => self.wait(None, &mut limit).await,
            };
            if !in_time {
                break self.out_of_time();
            }
        };
        self.done = true;
        result.map_err(|error| error.on_store(self.shell.store.label()).on_lock(self.names.first()))
    }

    /// Calls the store, and brings the answer to the table. False if the limit comes first.
    async fn call(&mut self, sending: Sending, limit: &mut Option<Timer>) -> bool {
        let in_flight = self.in_flight.insert(InFlight::start(self.shell, &self.shell.store, sending));
        if std::mem::take(&mut self.woke) && !in_flight.is_answered() {
            self.shell.rouse_keeper();
        }
        let completed = poll_fn(|task| match in_flight.poll(task) {
            Poll::Ready(completed) => Poll::Ready(Some(completed)),
            Poll::Pending => poll_timer(limit, task).map(|()| None),
        });
        let Some(Completed { context, answer, panic }) = completed.await else { return false };
        self.in_flight = None;
        match &answer {
            Answer::Acquire(Ok(answered)) => {
                if let Acquired::Busy(busy) = &answered.result {
                    self.refusal = Some(Ok(busy.clone()));
                }
            }
            Answer::Acquire(Err(error)) | Answer::Watch(Err(error)) => self.refusal = Some(Err(error.clone())),
            _ => {}
        }
        self.step(self.shell.state(), Input::Answer(context, answer));
        if let Some(panic) = panic {
            self.panicked(panic);
        }
        true
    }

    /// Waits for the table's next word, and asks it for one after `until`. False if the limit comes first.
    async fn wait(&mut self, until: Option<Moment>, limit: &mut Option<Timer>) -> bool {
        if !std::mem::replace(&mut self.waits, true) {
            self.shell.emit(|| Event::Waits { name: self.names.first() });
        }
        let mut sleep = until.map(|until| Timer::new(self.shell, until));
        let in_time = poll_fn(|task| {
            if let Some(mailbox) = &self.mailbox
                && let Poll::Ready(effect) = lock(mailbox).poll(task)
            {
                self.effect = Some(effect);
                return Poll::Ready(true);
            }
            if poll_timer(limit, task).is_ready() {
                return Poll::Ready(false);
            }
            poll_timer(&mut sleep, task).map(|()| true)
        });
        let in_time = in_time.await;
        if in_time && self.effect.is_none() {
            self.woke = true;
            self.step(self.shell.state(), Input::Woke(self.id, self.names.first().clone()));
        }
        in_time
    }

    /// One step of the table for this task.
    fn step(&mut self, mut state: MutexGuard<'_, State>, input: Input) {
        let woke = matches!(input, Input::Woke(..));
        let recipient = Recipient::Ticket(self.id);
        let result = self.shell.step_table(&mut state, recipient, woke, |table, now, out| table.step(now, input, out));
        // Before the mutex is released: a task that has to wait needs a mailbox by then, and one that is done must have none.
        match (&result.effects.effect, &self.mailbox) {
            (None | Some(TaskEffect::Sleep(_)), None) => self.mailbox = Some(state.open_mailbox(self.id)),
            (None | Some(TaskEffect::Sleep(_) | TaskEffect::Call(_)), _) | (_, None) => {}
            (Some(_), Some(_)) => drop(state.mailboxes.remove(&self.id)),
        }
        self.effect = result.send(self.shell, state).effect;
    }

    /// The limit came first: unless the lock came at this very moment, it is busy.
    fn out_of_time(&mut self) -> Result<Attempt<SmallVec<[Grant; 1]>>, Error> {
        if self.refusal.is_none() {
            self.refusal = self.holder_here().map(Ok);
        }
        if let Some(grants) = self.withdraw() {
            return Ok(Attempt::Granted(grants));
        }
        let busy = self.refusal.take().transpose()?;
        Ok(Attempt::Busy(self.holder(busy)))
    }

    /// Who holds the lock as far as this client knows, for a task that never asked the store.
    fn holder_here(&self) -> Option<Box<Busy>> {
        let state = self.shell.state();
        let now = leasehold_clock::now();
        self.names.as_slice().iter().find_map(|name| state.table.busy(now, name)).map(Box::new)
    }

    fn holder(&self, busy: Option<Box<Busy>>) -> Holder {
        busy.map_or_else(|| Holder::unknown(self.names.first().clone()), |busy| Holder::of(*busy))
    }

    /// Withdraws the request. A grant that was already in the mailbox is returned.
    fn withdraw(&mut self) -> Option<SmallVec<[Grant; 1]>> {
        self.done = true;
        let mut state = self.shell.state();
        let cancel = Input::Cancel(self.id, self.names.first().clone());
        let result = self.shell.step_locked(&mut state, cancel, Recipient::Nobody);
        // Under the same mutex: an effect of this step must still find the mailbox, or a lock that is handed over would be lost.
        state.mailboxes.remove(&self.id);
        result.send(self.shell, state);
        let mut granted = None;
        let mailbox = self.mailbox.take();
        while let Some(effect) = mailbox.as_ref().and_then(|mailbox| lock(mailbox).take()) {
            match effect {
                TaskEffect::Granted(grants) => granted = Some(grants),
                effect => self.shell.give_up(Some(effect), Some(self.names)),
            }
        }
        if let Some(in_flight) = self.in_flight.take() {
            let names = self.names.clone();
            self.shell.adopt(in_flight, Recipient::Ticket(self.id), move |shell, effects| {
                shell.give_up(effects.effect, Some(&names));
            });
        }
        granted
    }

    /// A layer panicked. The table has its answer by now; the panic goes on to the caller, which gets nothing else.
    #[cold]
    fn panicked(&mut self, panic: Panic) -> ! {
        let effect = self.effect.take();
        if matches!(effect, None | Some(TaskEffect::Call(_) | TaskEffect::Sleep(_))) {
            let granted = self.withdraw().map(TaskEffect::Granted);
            self.shell.give_up(granted, Some(self.names));
        }
        self.done = true;
        self.shell.give_up(effect, Some(self.names));
        std::panic::resume_unwind(panic)
    }
}

impl Drop for AcquireCall<'_> {
    fn drop(&mut self) {
        if self.done || self.shell.is_forked() {
            return;
        }
        let holder = self.began.map(|_| {
            let busy = self.refusal.take().map_or_else(|| self.holder_here(), Result::ok);
            self.holder(busy)
        });
        let granted = self.withdraw().map(TaskEffect::Granted);
        self.shell.give_up(granted, Some(self.names));
        if let Some(holder) = &holder {
            let (name, waited) = (self.names.first(), waited(self.began));
            self.shell.emit(|| Event::Cancelled { name, waited, holder });
        }
    }
}

/// How long a task has waited, if there is a listener.
pub(crate) fn waited(began: Option<Moment>) -> Duration {
    began.map(|began| leasehold_clock::now().since(began)).unwrap_or_default()
}
