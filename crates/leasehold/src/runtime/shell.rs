//! The thin shell around the table: it sends what it is told to send, brings the answers back, and wakes tasks.
//!
//! It decides nothing. The table's mutex is never held while the store is called (ending a subscription apart, which only hands
//! a message over), nor while other user code runs: listeners, and the wakers of tasks.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState as Hasher;
use leasehold_clock::fork::Process;
use leasehold_core::port::{Call, Hint, HintSink};
use leasehold_core::table::{
    FailedRenewal, HoldId, Input, Output, Outputs, Request, Sending, Table, TaskEffect, TicketId,
};
use leasehold_core::{ClientId, Error, ErrorKind, Moment, Name, Store};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::client::event::{Event, Listener};
use crate::client::stats::Stats;
use crate::guard::lost::{LossReport, LostCell};
use crate::runtime::background::Remains;
use crate::runtime::in_flight::InFlight;
use crate::runtime::keeper::{Waker, WallWatch};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::panic_guard::contained;
use crate::runtime::sync::{Mutex, MutexGuard};
use leasehold_core::task_tracker::{TaskGuard, TaskTracker};

/// So many names in use are looked through at each step of a client whose keeper rests.
const FEW: usize = 16;

/// What all handles of one client share.
pub(crate) struct Shell {
    pub(crate) client: ClientId,
    /// For callers.
    pub(crate) store: Arc<dyn Store>,
    /// For the keeper, over connections of its own.
    pub(crate) keepers_store: Arc<dyn Store>,
    /// The keeper's runtime: whatever must go on when the caller has gone goes on there.
    pub(crate) background: Handle,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    /// Notified when a closed client has given everything back.
    pub(crate) quiet: Notify,
    keeper: Arc<Waker>,
    /// Counts what the background has under way.
    pub(crate) errands: TaskTracker,
    state: Mutex<State>,
    process: Process,
}

pub(crate) struct State {
    pub(crate) table: Table,
    /// Of tasks that wait.
    pub(crate) mailboxes: HashMap<TicketId, Arc<Mailbox>, Hasher>,
    /// Of guards that somebody watches.
    pub(crate) lost: HashMap<HoldId, Arc<LostCell>, Hasher>,
    pub(crate) closed: bool,
    /// Counted with every step.
    pub(crate) stats: Stats,
    /// The keeper sleeps until it is woken: no lease was there or on its way as it lay down, nor has been since, but for one who waits,
    /// asks again, and is answered before anybody else gets to run.
    keeper_rests: bool,
    /// The clocks before anything was sent while the keeper rested: for the keeper, when it is woken.
    roused: Option<WallWatch>,
}

impl Shell {
    pub(crate) fn new(
        client: ClientId,
        store: Arc<dyn Store>,
        keepers_store: Arc<dyn Store>,
        background: Handle,
        listener: Option<Arc<dyn Listener>>,
        keeper: Arc<Waker>,
        table: Table,
    ) -> Self {
        let (mailboxes, lost) = (HashMap::default(), HashMap::default());
        let state =
            State { table, mailboxes, lost, closed: false, stats: Stats::default(), keeper_rests: false, roused: None };
        let process = Process::current();
        let (quiet, errands, state) = (Notify::new(), TaskTracker::default(), Mutex::new(state));
        Self { client, store, keepers_store, background, listener, quiet, keeper, errands, state, process }
    }

    /// After `fork` the child has neither the keeper nor a right to the connections.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn check_process(&self, operation: &'static str) -> Result<(), Error> {
        if !self.is_forked() {
            return Ok(());
        }
        let what = "the process was forked after this client was made";
        let error = Error::new(ErrorKind::Forked, operation, what).with_hint("connect anew in the child");
        Err(error.on_store(self.store.label()))
    }

    /// A panic under this mutex would be a bug of ours; the table is whole between two steps.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the table, and all that follows from it for others. What is meant for `mine` is given back.
    pub(crate) fn step(self: &Arc<Self>, input: Input, mine: Recipient) -> Effects {
        let mut state = self.state();
        self.step_locked(&mut state, input, mine).send(self, state)
    }

    /// The same with the mutex held; `send` must follow, which lets it go.
    pub(crate) fn step_locked(&self, state: &mut State, input: Input, mine: Recipient) -> StepResult {
        let woke = matches!(input, Input::Woke(..));
        self.after(state, mine, woke, |table, now, out| table.step(now, input, out))
    }

    #[inline]
    fn after(
        &self,
        state: &mut State,
        mine: Recipient,
        woke: bool,
        step: impl FnOnce(&mut Table, Moment, &mut Outputs),
    ) -> StepResult {
        if state.keeper_rests {
            // Here and not by the keeper: the clocks may jump before it gets to run.
            state.roused.get_or_insert_with(WallWatch::new);
        }
        let now = leasehold_clock::now();
        let mut outputs = Outputs::new();
        step(&mut state.table, now, &mut outputs);
        let mut stepped = StepResult::default();
        for output in outputs {
            state.stats.count(&output);
            self.sort_out(state, output, mine, &mut stepped);
        }
        if state.keeper_rests && !(woke && matches!(stepped.mail.told, Some(TaskEffect::Call(_)))) {
            self.rest_or_rouse(state);
        }
        self.keeper.due_at(state.table.next_timer());
        stepped.quiet = state.closed && state.table.is_empty();
        stepped
    }

    /// Lets the keeper rest on where tasks still only wait, and wakes it where a lease is there or on its way. Where that would take
    /// long to find out, it is woken.
    #[cold]
    fn rest_or_rouse(&self, state: &mut State) {
        if state.table.len() <= FEW && state.table.only_waits() {
            state.roused = None;
        } else {
            state.keeper_rests = false;
            self.keeper.rouse();
        }
    }

    /// One who woke up in line asks again, and the answer is not there at once: the keeper is needed.
    pub(crate) fn rouse_keeper(&self) {
        let mut state = self.state();
        if state.keeper_rests {
            state.keeper_rests = false;
            self.keeper.rouse();
        }
    }

    /// Delivers what needs the mutex; keeps what must be done without it.
    fn sort_out(&self, state: &mut State, output: Output, mine: Recipient, stepped: &mut StepResult) {
        match output {
            Output::To(ticket, told) if mine == Recipient::Ticket(ticket) => stepped.mail.told = Some(told),
            Output::To(ticket, told) => {
                // What ends the waiting is the last that comes to this mailbox.
                let mailbox = match told {
                    TaskEffect::Call(_) | TaskEffect::Sleep(_) => state.mailboxes.get(&ticket).cloned(),
                    _ => state.mailboxes.remove(&ticket),
                };
                stepped.wake.extend(mailbox.and_then(|mailbox| mailbox.put(told)));
            }
            Output::Released(hold, result) if mine == Recipient::Hold(hold) => stepped.mail.given = Some(result),
            Output::Released(..) => {}
            Output::ForHold(hold, sending) if mine == Recipient::Hold(hold) => {
                stepped.mail.told = Some(TaskEffect::Call(sending));
            }
            Output::Lost(hold, name, report) => {
                if let Some(cell) = state.lost.remove(&hold) {
                    // Known at once, told when the mutex is let go.
                    cell.lose(&report);
                    stepped.lost.push(cell);
                }
                stepped.rest.push(Output::Lost(hold, name, report));
            }
            Output::Unwatch(name) => {
                // Under the mutex, though a layer's code may run here: whoever steps next may be told to watch this name or to
                // be put on its list of waiters, and an unwatch that came after that would undo it.
                let call = contained("a layer", || self.store.unwatch(self.client, name));
                if let Some(Call::Pending(future)) = call {
                    let errand = self.errand();
                    self.background.spawn(async move {
                        future.await;
                        drop(errand);
                    });
                }
            }
            output => stepped.rest.push(output),
        }
    }

    /// Starts a call on the callers' connections.
    pub(crate) fn start(self: &Arc<Self>, sending: Sending) -> InFlight {
        self.start_on(&self.store, sending)
    }

    pub(crate) fn start_on(self: &Arc<Self>, store: &Arc<dyn Store>, sending: Sending) -> InFlight {
        let Sending { context, request } = sending;
        match request {
            Request::Acquire(request) => {
                self.tell(|| Event::Asked { names: request.names.as_slice() });
                InFlight::acquire(context, || store.acquire(request))
            }
            Request::Release(request) => InFlight::release(context, || store.release(request)),
            Request::Renew(leases) => InFlight::renew(context, || store.renew(leases)),
            Request::Watch(name) => {
                let sink = self.hint_sink();
                InFlight::watch(context, || store.watch(self.client, name, sink))
            }
        }
    }

    /// Hints step the table; a client that has gone hears nothing.
    pub(crate) fn hint_sink(self: &Arc<Self>) -> HintSink {
        let shell = Arc::downgrade(self);
        Arc::new(move |hint| {
            if let Some(shell) = shell.upgrade() {
                let input = match hint {
                    Hint::Name(name) => Input::Hint(name),
                    Hint::All => Input::HintAll,
                    Hint::Held(name) => Input::HintHeld(name),
                };
                shell.step(input, Recipient::Nothing);
            }
        })
    }

    /// Gives a hold back to the table. Whoever watches its lost signal is told that nothing was lost.
    pub(crate) fn step_release(self: &Arc<Self>, hold: HoldId, name: &Name) -> Effects {
        let mut state = self.state();
        let cell = if state.lost.is_empty() { None } else { state.lost.remove(&hold) };
        let held = match self.is_heard() {
            true => state.table.held_for(leasehold_clock::now(), name, hold),
            false => Duration::ZERO,
        };
        let stepped =
            self.after(&mut state, Recipient::Hold(hold), false, |table, now, out| table.release(now, hold, name, out));
        let mail = Effects { held, ..stepped.send(self, state) };
        if let Some(cell) = cell {
            cell.release();
            contained("a waker", || cell.wake());
        }
        mail
    }

    /// Releases a hold without waiting for the answer: at least sent before this returns, where the store can.
    /// Answers whether it was still held, and for how long, where anybody listens.
    pub(crate) fn drop_hold(self: &Arc<Self>, hold: HoldId, name: &Name) -> (bool, Duration) {
        let mail = self.step_release(hold, name);
        let ok = !matches!(mail.given, Some(Err(_)));
        if let Some(TaskEffect::Call(sending)) = mail.told {
            let flight = self.start(*sending);
            self.adopt(flight, Recipient::Hold(hold), Remains::Nothing);
        }
        (ok, mail.held)
    }

    /// Leaves holds to their owner, all or none; or says how long to wait before that.
    pub(crate) fn step_detach(self: &Arc<Self>, holds: &[(HoldId, &Name)]) -> Result<Duration, Error> {
        let mut state = self.state();
        let now = leasehold_clock::now();
        let waits = holds.iter().map(|(hold, name)| state.table.check_detach(now, *hold, name));
        let wait = waits.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default();
        if !wait.is_zero() {
            return Ok(wait);
        }
        let watched: Vec<_> = holds.iter().filter_map(|(hold, _)| state.lost.remove(hold)).collect();
        let stepped = self.after(&mut state, Recipient::Nothing, false, |table, now, out| {
            holds.iter().for_each(|(hold, name)| table.detach(now, *hold, name, out));
        });
        stepped.send(self, state);
        for cell in watched {
            cell.release();
            contained("a waker", || cell.wake());
        }
        Ok(wait)
    }

    /// Whether anybody listens.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.listener.is_some() || tracing::enabled!(target: "leasehold::event", tracing::Level::WARN)
    }

    /// Tells whoever listens; what to tell is not even put together where nobody does. A listener that panics is logged, and
    /// nothing else comes of it: not every event has a caller, and what it tells of has happened anyway.
    #[inline]
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if self.is_heard() {
            let event = event();
            contained("a subscriber", || event.trace(self.store.label()));
            if let Some(listener) = &self.listener {
                contained("a listener", || listener.on(&event));
            }
        }
    }

    /// When the keeper next has something to do.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        self.state().table.next_timer()
    }

    /// The last handle is gone: the keeper ends when nothing is open any more.
    pub(crate) fn abandon(&self) {
        self.keeper.abandon();
    }

    /// Whether the keeper, and its runtime, are there.
    pub(crate) fn is_served(&self) -> bool {
        !self.keeper.has_ended()
    }

    pub(crate) fn errand(&self) -> TaskGuard {
        self.errands.begin()
    }

    /// Whether the background has something under way.
    pub(crate) fn has_errands(&self) -> bool {
        self.errands.any()
    }

    /// The keeper wants to sleep until it is woken: only while nothing is held and no call under way may yet bring a lease.
    pub(crate) fn may_rest(&self) -> bool {
        let mut state = self.state();
        state.keeper_rests = state.table.only_waits();
        state.keeper_rests
    }

    /// The keeper is awake again. Answers the clocks as it was woken, if by a step.
    pub(crate) fn rested(&self) -> Option<WallWatch> {
        let mut state = self.state();
        state.keeper_rests = false;
        state.roused.take()
    }
}

/// For whom a step is made: what is told to it is given back and not put into a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recipient {
    Nothing,
    Ticket(TicketId),
    Hold(HoldId),
}

/// What a step told the one who made it.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) told: Option<TaskEffect>,
    pub(crate) given: Option<Result<leasehold_core::port::Released, Error>>,
    /// Of a release: how long it was held, where anybody listens.
    pub(crate) held: Duration,
}

/// A step whose consequences for others are not sent yet.
#[must_use]
#[derive(Default)]
pub(crate) struct StepResult {
    pub(crate) mail: Effects,
    rest: Outputs,
    /// Tasks that have mail.
    wake: SmallVec<[std::task::Waker; 1]>,
    /// Holds that are lost, and watched.
    lost: Vec<Arc<LostCell>>,
    /// A closed client has given everything back.
    quiet: bool,
}

impl StepResult {
    /// Lets the mutex go and does what is to be done without it.
    pub(crate) fn send(self, shell: &Arc<Shell>, state: MutexGuard<'_, State>) -> Effects {
        drop(state);
        // First those who lost a lock, then those who have it now.
        for cell in self.lost {
            contained("a waker", || cell.wake());
        }
        for waker in self.wake {
            contained("a waker", || waker.wake());
        }
        if self.quiet {
            contained("a waker", || shell.quiet.notify_waiters());
        }
        for output in self.rest {
            match output {
                Output::ForHold(_, sending) | Output::Background(sending) => shell.in_background(*sending),
                Output::Lost(hold, name, report) if shell.is_heard() => {
                    let report = LossReport::of(&report);
                    let (hold, loss) = (hold.number(), report.loss);
                    shell.tell(|| Event::Lost { name: &name, hold, loss, report: &report });
                }
                Output::RenewalFailed(name, FailedRenewal { error, took, .. }, left) => {
                    shell.tell(|| Event::RenewalFailed { name: &name, error: &error, took, left });
                }
                Output::RenewalLate(name, left) => shell.tell(|| Event::RenewalLate { name: &name, left }),
                Output::Lost(..) => {}
                Output::To(..) | Output::Released(..) | Output::Unwatch(_) => {}
            }
        }
        self.mail
    }
}

#[cfg(all(test, not(shuttle), feature = "memory"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use crate::{Client, Event, Guard};

    /// A lease may come of a call under way: the keeper watches the wall clock for as long as anything is held or asked for, and from
    /// before the first sending after a rest.
    #[tokio::test]
    async fn the_keeper_rests_only_while_nothing_is_held() {
        let client = Client::connect("memory:rests").await.unwrap();
        let shell = &client.shell;
        let guard = client.lock("a").acquire().await.unwrap();
        assert!(!shell.may_rest());
        guard.release().await.unwrap();
        assert!(shell.may_rest());
        let guard = client.lock("a").acquire().await.unwrap();
        assert!(shell.rested().is_some(), "the clocks were not read as the first acquire was made");
        drop(guard);
    }

    /// One that only waits needs no watch; when it asks again the watch begins before that, and knows of nothing earlier.
    #[tokio::test]
    async fn the_keeper_rests_while_tasks_only_wait() {
        let (client, held, waiting) = one_waits("memory:waits").await;
        let shell = &client.shell;
        assert!(shell.may_rest());
        held.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert!(!shell.may_rest());
        let watch = shell.rested();
        let mut watch = watch.expect("the clocks were not read as the waiter asked again");
        assert_eq!(watch.jumped(leasehold_clock::now()), None);
        drop(guard);
    }

    /// A hundred processes that wait would wake a hundred keepers each second, for nothing.
    #[tokio::test]
    async fn the_keeper_rests_on_while_one_who_waits_is_refused_again() {
        let asked = Arc::new(AtomicU32::new(0));
        let heard = asked.clone();
        let listener = move |event: &Event<'_>| {
            heard.fetch_add(u32::from(matches!(event, Event::Asked { .. })), Ordering::AcqRel);
        };
        let client = Client::builder("memory:again").listener(listener).connect().await.unwrap();
        let (client, held, waiting) = waits_behind(client, "memory:again").await;
        let shell = &client.shell;
        let before = asked.load(Ordering::Acquire);
        assert!(shell.may_rest());
        while asked.load(Ordering::Acquire) == before || !shell.state().table.only_waits() {
            assert!(!waiting.is_finished());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (rests, roused) = {
            let state = shell.state();
            (state.keeper_rests, state.roused.is_some())
        };
        assert!(rests, "a recheck that was refused woke the keeper");
        assert!(!roused, "the next who asks would be judged by old clocks");
        held.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert!(!shell.state().keeper_rests);
        drop(guard);
    }

    /// A client with a task that sleeps in line for a lock that another client holds.
    async fn one_waits(url: &str) -> (Client, Guard, tokio::task::JoinHandle<Guard>) {
        waits_behind(Client::connect(url).await.expect("a client"), url).await
    }

    async fn waits_behind(client: Client, url: &str) -> (Client, Guard, tokio::task::JoinHandle<Guard>) {
        let other = Client::connect(url).await.expect("a client");
        let held = other.lock("a").acquire().await.expect("a grant");
        let lock = client.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await.expect("a grant") });
        let sleeps = || {
            let state = client.shell.state();
            !state.table.is_empty() && state.table.only_waits()
        };
        while !sleeps() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (client, held, waiting)
    }
}
