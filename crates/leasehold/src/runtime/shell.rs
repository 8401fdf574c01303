//! The thin shell around the table: it steps the table, delivers what a step has for tasks and guards, and makes its calls.
//!
//! It decides nothing. The table's mutex is never held while the store is called, except to end a subscription, which only hands
//! over a message; nor while other user code runs: listeners, and the wakers of tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState as Hasher;
use leasehold_clock::fork::Process;
use leasehold_core::port::{Call, Hint, HintSink, Released};
use leasehold_core::table::{FailedRenewal, HoldId, Input, Output, Outputs, Table, TaskEffect, TicketId};
use leasehold_core::task_tracker::TaskTracker;
use leasehold_core::{ClientId, Error, ErrorKind, Moment, Name, Store};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::client::event::{Event, Listener};
use crate::client::stats::Stats;
use crate::guard::lost::{LossReport, LostCell};
use crate::runtime::in_flight::InFlight;
use crate::runtime::keeper::{KeeperWaker, WallWatch};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::panic_guard::contained;
use crate::runtime::sync::{Mutex, MutexGuard, lock};

/// Up to this many names are scanned per step of a client whose keeper rests.
const MAX_SCANNED: usize = 16;

/// What everything of one client shares.
pub(crate) struct Shell {
    pub(crate) client: ClientId,
    /// For callers.
    pub(crate) store: Arc<dyn Store>,
    /// For the keeper, over connections of its own.
    pub(crate) keepers_store: Arc<dyn Store>,
    /// The keeper's runtime, which finishes what its caller has left.
    pub(crate) background: Handle,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    /// Notified when a closed client has given everything back.
    pub(crate) quiet: Notify,
    keeper: Arc<KeeperWaker>,
    /// Counts the tasks on the background runtime.
    pub(crate) tasks: TaskTracker,
    state: Mutex<State>,
    process: Process,
}

pub(crate) struct State {
    pub(crate) table: Table,
    /// Of tasks that wait.
    pub(crate) mailboxes: HashMap<TicketId, Arc<Mutex<Mailbox>>, Hasher>,
    /// Of guards whose loss is watched for.
    pub(crate) lost: HashMap<HoldId, Arc<LostCell>, Hasher>,
    pub(crate) closed: bool,
    /// Counted with every step.
    pub(crate) stats: Stats,
    /// The keeper sleeps until it is woken: there was no lease, and none on its way, when it went to sleep. Nor has there been one
    /// since, except for a waiter that asks again and is answered before anything else runs.
    keeper_rests: bool,
    /// The clocks before anything was sent while the keeper rested: for the keeper, when it is woken.
    roused: Option<WallWatch>,
}

impl State {
    /// Gives a waiting task a mailbox. In a closed client, what it finds there is an error.
    pub(crate) fn open_mailbox(&mut self, ticket: TicketId) -> Arc<Mutex<Mailbox>> {
        let mut mailbox = Mailbox::default();
        if self.closed {
            let closed = Error::new(ErrorKind::Closed, "acquire", "the client was closed").with_hint("connect again");
            let not_asleep_yet = mailbox.put(TaskEffect::Failed(closed));
            drop(not_asleep_yet);
        }
        let mailbox = Arc::new(Mutex::new(mailbox));
        if !self.closed {
            self.mailboxes.insert(ticket, mailbox.clone());
        }
        mailbox
    }
}

impl Shell {
    pub(crate) fn new(
        client: ClientId,
        store: Arc<dyn Store>,
        keepers_store: Arc<dyn Store>,
        background: Handle,
        listener: Option<Arc<dyn Listener>>,
        keeper: Arc<KeeperWaker>,
        table: Table,
    ) -> Self {
        let (mailboxes, lost) = (HashMap::default(), HashMap::default());
        let state =
            State { table, mailboxes, lost, closed: false, stats: Stats::default(), keeper_rests: false, roused: None };
        let process = Process::current();
        let (quiet, tasks, state) = (Notify::new(), TaskTracker::default(), Mutex::new(state));
        Self { client, store, keepers_store, background, listener, quiet, keeper, tasks, state, process }
    }

    /// After `fork` the child has neither the keeper nor a right to the connections.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn check_process(&self, operation: &'static str) -> Result<(), Error> {
        if self.process.is_current() {
            return Ok(());
        }
        let what = "the process was forked after this client was made";
        let error = Error::new(ErrorKind::Forked, operation, what).with_hint("connect again in the child");
        Err(error.on_store(self.store.label()))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// One step of the table, and everything that follows from it for others. Returns the effects for `recipient`.
    pub(crate) fn step(self: &Arc<Self>, input: Input, recipient: Recipient) -> Effects {
        let mut state = self.state();
        self.step_table(&mut state, recipient, false, |table, now, out| table.step(now, input, out)).send(self, state)
    }

    /// The same with the mutex held. [`StepResult::send`] must follow, which releases it.
    pub(crate) fn step_locked(&self, state: &mut State, input: Input, recipient: Recipient) -> StepResult {
        self.step_table(state, recipient, false, |table, now, out| table.step(now, input, out))
    }

    /// Steps the table in any way. `woke`: a waiter asks again, which by itself is no reason to wake the keeper.
    #[inline]
    pub(crate) fn step_table(
        &self,
        state: &mut State,
        recipient: Recipient,
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
        let mut result = StepResult::default();
        for output in outputs {
            state.stats.count(&output);
            self.sort_out(state, output, recipient, &mut result);
        }
        if state.keeper_rests && !(woke && matches!(result.effects.effect, Some(TaskEffect::Call(_)))) {
            self.rest_or_rouse(state);
        }
        self.keeper.due_at(state.table.next_timer());
        result.quiet = state.closed && state.table.is_empty();
        result
    }

    /// Lets the keeper rest on while tasks still only wait, and wakes it when there is a lease or one is on its way. Where finding
    /// out would take long, it is woken.
    #[cold]
    fn rest_or_rouse(&self, state: &mut State) {
        if state.table.len() <= MAX_SCANNED && state.table.only_waits() {
            state.roused = None;
        } else {
            state.keeper_rests = false;
            self.keeper.rouse();
        }
    }

    /// A waiter asks again, and the answer is not there at once: the keeper is needed.
    pub(crate) fn rouse_keeper(&self) {
        let mut state = self.state();
        if state.keeper_rests {
            state.keeper_rests = false;
            self.keeper.rouse();
        }
    }

    /// Delivers what needs the mutex; keeps what must be done without it.
    fn sort_out(&self, state: &mut State, output: Output, recipient: Recipient, result: &mut StepResult) {
        match output {
            Output::To(ticket, effect) if recipient == Recipient::Ticket(ticket) => {
                result.effects.effect = Some(effect);
            }
            Output::To(ticket, effect) => {
                // The effect that ends a wait is the last one for its mailbox.
                let mailbox = match effect {
                    TaskEffect::Call(_) | TaskEffect::Sleep(_) => state.mailboxes.get(&ticket).cloned(),
                    _ => state.mailboxes.remove(&ticket),
                };
                result.wake.extend(mailbox.and_then(|mailbox| lock(&mailbox).put(effect)));
            }
            Output::Released(hold, released) if recipient == Recipient::Hold(hold) => {
                result.effects.released = Some(released);
            }
            Output::Released(..) => {}
            Output::ForHold(hold, sending) if recipient == Recipient::Hold(hold) => {
                result.effects.effect = Some(TaskEffect::Call(sending));
            }
            Output::Lost(hold, name, report) => {
                if let Some(cell) = state.lost.remove(&hold) {
                    // Known at once; its watchers are woken once the mutex is released.
                    cell.lose(&report);
                    result.lost.push(cell);
                }
                result.rest.push(Output::Lost(hold, name, report));
            }
            Output::Unwatch(name) => {
                // Under the mutex, although a layer's code may run here: the next step may have this name watched or put on its
                // list of waiters, and an unwatch that came after that would undo it.
                let call = contained("a layer", || self.store.unwatch(self.client, name));
                if let Some(Call::Pending(future)) = call {
                    let task = self.tasks.begin();
                    self.background.spawn(async move {
                        future.await;
                        drop(task);
                    });
                }
            }
            output => result.rest.push(output),
        }
    }

    /// Where the store puts hints for this client. It keeps no client alive.
    pub(crate) fn hint_sink(self: &Arc<Self>) -> HintSink {
        let shell = Arc::downgrade(self);
        Arc::new(move |hint| {
            if let Some(shell) = shell.upgrade() {
                let input = match hint {
                    Hint::Name(name) => Input::Hint(name),
                    Hint::All => Input::HintAll,
                    Hint::Held(name) => Input::HintHeld(name),
                };
                shell.step(input, Recipient::Nobody);
            }
        })
    }

    /// Gives a hold back to the table. Its lost signal ends without a loss.
    pub(crate) fn step_release(self: &Arc<Self>, hold: HoldId, name: &Name) -> Effects {
        let mut state = self.state();
        let watched = if state.lost.is_empty() { None } else { state.lost.remove(&hold) };
        let held = match self.has_listener() {
            true => state.table.held_for(leasehold_clock::now(), name, hold),
            false => Duration::ZERO,
        };
        let release = |table: &mut Table, now, out: &mut Outputs| table.release(now, hold, name, out);
        let result = self.step_table(&mut state, Recipient::Hold(hold), false, release);
        let effects = Effects { held, ..result.send(self, state) };
        if let Some(cell) = watched {
            cell.release();
            contained("a waker", || cell.wake());
        }
        effects
    }

    /// Releases a hold without waiting for the answer: at least sent before this returns, where the store can.
    /// Returns whether it was still held, and for how long, if there is a listener.
    pub(crate) fn drop_hold(self: &Arc<Self>, hold: HoldId, name: &Name) -> (bool, Duration) {
        let effects = self.step_release(hold, name);
        let ok = !matches!(effects.released, Some(Err(_)));
        if let Some(TaskEffect::Call(sending)) = effects.effect {
            let in_flight = InFlight::start(self, &self.store, *sending);
            self.adopt(in_flight, Recipient::Hold(hold), |shell, effects| shell.give_up(effects.effect, None));
        }
        (ok, effects.held)
    }

    /// Detaches holds from their guards, all or none; or returns how long to wait before that.
    pub(crate) fn step_detach(self: &Arc<Self>, holds: &[(HoldId, &Name)]) -> Result<Duration, Error> {
        let mut state = self.state();
        let now = leasehold_clock::now();
        let waits = holds.iter().map(|(hold, name)| state.table.check_detach(now, *hold, name));
        let wait = waits.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default();
        if !wait.is_zero() {
            return Ok(wait);
        }
        let watched: Vec<_> = holds.iter().filter_map(|(hold, _)| state.lost.remove(hold)).collect();
        let detach = |table: &mut Table, now, out: &mut Outputs| {
            holds.iter().for_each(|(hold, name)| table.detach(now, *hold, name, out));
        };
        self.step_table(&mut state, Recipient::Nobody, false, detach).send(self, state);
        for cell in watched {
            cell.release();
            contained("a waker", || cell.wake());
        }
        Ok(wait)
    }

    /// Whether anything listens to events.
    #[inline]
    pub(crate) fn has_listener(&self) -> bool {
        self.listener.is_some() || tracing::enabled!(target: "leasehold::event", tracing::Level::WARN)
    }

    /// Emits an event, which is not even put together without a listener. A listener that panics is logged and has no other effect:
    /// not every event has a caller, and it has happened anyway.
    #[inline]
    pub(crate) fn emit<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if self.has_listener() {
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

    /// Whether the keeper may sleep until it is woken: only while nothing is held and no call under way may bring a lease.
    pub(crate) fn may_rest(&self) -> bool {
        let mut state = self.state();
        state.keeper_rests = state.table.only_waits();
        state.keeper_rests
    }

    /// The keeper is awake again. Returns the clocks as they were when a step woke it.
    pub(crate) fn rested(&self) -> Option<WallWatch> {
        let mut state = self.state();
        state.keeper_rests = false;
        state.roused.take()
    }
}

/// Whom a step is made for: its effects are returned instead of being put into a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recipient {
    Nobody,
    Ticket(TicketId),
    Hold(HoldId),
}

/// The effects of a step for its recipient.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) effect: Option<TaskEffect>,
    pub(crate) released: Option<Result<Released, Error>>,
    /// Of a release: how long it was held, if there is a listener.
    pub(crate) held: Duration,
}

/// A step whose consequences for others are not sent yet.
#[must_use]
#[derive(Default)]
pub(crate) struct StepResult {
    pub(crate) effects: Effects,
    rest: Outputs,
    /// Tasks with something new in their mailboxes.
    wake: SmallVec<[std::task::Waker; 1]>,
    /// Holds that are lost, and watched.
    lost: Vec<Arc<LostCell>>,
    /// A closed client has given everything back.
    quiet: bool,
}

impl StepResult {
    /// Releases the mutex, and does what must be done without it.
    pub(crate) fn send(self, shell: &Arc<Shell>, state: MutexGuard<'_, State>) -> Effects {
        drop(state);
        // The holders that lost a lock are woken before those that have it now.
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
                Output::ForHold(_, sending) | Output::Background(sending) => shell.call_in_background(*sending),
                Output::Lost(hold, name, report) if shell.has_listener() => {
                    let report = LossReport::of(&report);
                    let (hold, loss) = (hold.number(), report.loss);
                    shell.emit(|| Event::Lost { name: &name, hold, loss, report: &report });
                }
                Output::RenewalFailed(name, FailedRenewal { error, took, .. }, left) => {
                    shell.emit(|| Event::RenewalFailed { name: &name, error: &error, took, left });
                }
                Output::RenewalLate(name, left) => shell.emit(|| Event::RenewalLate { name: &name, left }),
                Output::Lost(..) => {}
                Output::To(..) | Output::Released(..) | Output::Unwatch(_) => {}
            }
        }
        self.effects
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
        let guard = client.lock("a").expect("a name").acquire().await.unwrap();
        assert!(!shell.may_rest());
        guard.release().await.unwrap();
        assert!(shell.may_rest());
        let guard = client.lock("a").expect("a name").acquire().await.unwrap();
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
        assert!(!roused, "the next acquire would be judged by old clocks");
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
        let held = other.lock("a").expect("a name").acquire().await.expect("a grant");
        let lock = client.lock("a").expect("a name");
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
