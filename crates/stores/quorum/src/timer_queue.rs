//! Alarms for calls that wait for servers. Nearly all calls end before their alarm expires, so setting one costs no
//! timer and wakes no thread as long as another alarm expires before it.

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

/// Waits for something, at most until then.
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

/// An alarm that is removed on drop.
pub(crate) struct Alarm {
    host: Arc<dyn Host>,
    set: Option<host::Alarm>,
}

impl Alarm {
    /// Not set.
    pub(crate) fn new(host: &Arc<dyn Host>) -> Self {
        Self { host: host.clone(), set: None }
    }

    /// Wakes this task then, unless it is set again or dropped before.
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

/// The alarms of this process.
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
    /// When the thread wakes up next; never, if it sleeps until it is notified.
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

    /// Wakes a task then; the alarm `before` is removed.
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

    /// In a forked child the mutex may be locked for ever. An alarm that is left behind causes one spurious wake-up.
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
    /// The tasks that are due, and when to check again.
    fn due(&mut self, now: Moment) -> (Vec<Waker>, Option<Moment>) {
        let mut due = Vec::new();
        while let Some(Reverse((when, number))) = self.times.peek().copied() {
            // Nearly all are dropped before their time: the thread does not wake up for those.
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
