//! Alarms for calls that wait for servers. Nearly all end before theirs rings: so setting one costs no timer and wakes nobody, as long
//! as another rings before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use foldhash::fast::RandomState;
use leasehold_core::Moment;
use tokio::sync::Notify;

use crate::host::{self, Host};
use crate::thread;

/// Waits for something until then at most.
pub(crate) async fn within<T>(host: &Arc<dyn Host>, until: Moment, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut alarm) = (pin!(work), Alarm::new(host));
    poll_fn(|task| {
        if let Poll::Ready(done) = work.as_mut().poll(task) {
            return Poll::Ready(Some(done));
        }
        if host.now() >= until {
            return Poll::Ready(None);
        }
        alarm.set(until, task.waker());
        Poll::Pending
    })
    .await
}

/// One alarm, until it is dropped.
pub(crate) struct Alarm {
    host: Arc<dyn Host>,
    set: Option<host::Alarm>,
}

impl Alarm {
    /// Not set.
    pub(crate) fn new(host: &Arc<dyn Host>) -> Self {
        Self { host: host.clone(), set: None }
    }

    /// Wakes this task then, if it is not set anew or dropped before.
    pub(crate) fn set(&mut self, when: Moment, waker: &Waker) {
        if when != Moment::NEVER {
            self.set = Some(self.host.set_alarm(self.set, when, waker));
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(alarm) = self.set {
            self.host.drop_alarm(alarm);
        }
    }
}

/// Rings the alarms of this process.
#[derive(Default)]
pub(crate) struct TimerQueue {
    state: Mutex<State>,
    earlier: Notify,
}

#[derive(Default)]
struct State {
    numbers: u64,
    times: BinaryHeap<Reverse<(Moment, u64)>>,
    wakers: HashMap<u64, Waker, RandomState>,
    /// When the bell looks next; never, where it sleeps until it is told.
    looks_at: Option<Moment>,
}

pub(crate) fn bell() -> &'static TimerQueue {
    static BELL: OnceLock<&'static TimerQueue> = OnceLock::new();
    BELL.get_or_init(|| {
        let bell: &'static TimerQueue = Box::leak(Box::default());
        if let Some(handle) = thread::handle() {
            handle.spawn(bell.ring());
        }
        bell
    })
}

impl TimerQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a task then; the alarm that was set before does not ring.
    pub(crate) fn set(&self, before: Option<host::Alarm>, when: Moment, waker: &Waker) -> host::Alarm {
        let mut state = self.state();
        let alarm = match before {
            Some(same) if same.when == when => same,
            _ => {
                before.iter().for_each(|before| drop(state.wakers.remove(&before.number)));
                state.numbers += 1;
                let number = state.numbers;
                state.times.push(Reverse((when, number)));
                host::Alarm { number, when }
            }
        };
        state.wakers.insert(alarm.number, waker.clone());
        if state.looks_at.is_none_or(|looks_at| when < looks_at) {
            state.looks_at = Some(when);
            drop(state);
            self.earlier.notify_one();
        }
        alarm
    }

    /// In a forked child the mutex may be locked for ever. One that is left behind wakes somebody once for nothing.
    pub(crate) fn forget(&self, alarm: host::Alarm) {
        if let Ok(mut state) = self.state.try_lock() {
            state.wakers.remove(&alarm.number);
        }
    }

    async fn ring(&self) {
        loop {
            let (due, next) = self.state().due(leasehold_clock::now());
            due.into_iter().for_each(Waker::wake);
            match next {
                Some(next) => {
                    let span = next.since(leasehold_clock::now());
                    let _ = tokio::time::timeout(span, self.earlier.notified()).await;
                }
                None => self.earlier.notified().await,
            }
        }
    }
}

impl State {
    /// Whoever is due, and when to look again.
    fn due(&mut self, now: Moment) -> (Vec<Waker>, Option<Moment>) {
        let mut due = Vec::new();
        while let Some(Reverse((when, number))) = self.times.peek().copied() {
            // Nearly all are dropped before their time: the bell does not look for those.
            if when > now && self.wakers.contains_key(&number) {
                break;
            }
            self.times.pop();
            due.extend(self.wakers.remove(&number));
        }
        self.looks_at = self.times.peek().map(|Reverse((when, _))| *when);
        (due, self.looks_at)
    }
}
