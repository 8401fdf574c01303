//! Alarms for calls that wait for servers. Nearly all end before theirs rings: so setting one costs no timer and wakes nobody, as long
//! as another rings before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use foldhash::fast::RandomState;
use leasehold_core::Moment;
use tokio::sync::Notify;

use super::background;

/// Waits for something until then at most.
pub(super) async fn within<T>(until: Moment, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut alarm) = (pin!(work), Alarm::new());
    poll_fn(|task| {
        if let Poll::Ready(done) = work.as_mut().poll(task) {
            return Poll::Ready(Some(done));
        }
        if leasehold_clock::now() >= until {
            return Poll::Ready(None);
        }
        alarm.set(until, task.waker());
        Poll::Pending
    })
    .await
}

/// One alarm, until it is dropped.
pub(super) struct Alarm {
    number: u64,
    set_for: Moment,
}

#[derive(Default)]
struct Bell {
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

fn bell() -> &'static Bell {
    static BELL: OnceLock<&'static Bell> = OnceLock::new();
    BELL.get_or_init(|| {
        let bell: &'static Bell = Box::leak(Box::default());
        background::spawn(bell.ring());
        bell
    })
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Alarm {
    /// Not set.
    pub(super) fn new() -> Self {
        Self { number: 0, set_for: Moment::NEVER }
    }

    /// Wakes this task then, if it is not set anew or dropped before.
    pub(super) fn set(&mut self, when: Moment, waker: &Waker) {
        if when == Moment::NEVER {
            return;
        }
        let bell = bell();
        let mut state = bell.state();
        if self.number == 0 || when != self.set_for {
            state.wakers.remove(&self.number);
            state.numbers += 1;
            (self.number, self.set_for) = (state.numbers, when);
            state.times.push(Reverse((when, self.number)));
        }
        state.wakers.insert(self.number, waker.clone());
        if state.looks_at.is_none_or(|looks_at| when < looks_at) {
            state.looks_at = Some(when);
            drop(state);
            bell.earlier.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever. One that is left behind wakes somebody once for nothing.
        if self.number > 0
            && let Ok(mut state) = bell().state.try_lock()
        {
            state.wakers.remove(&self.number);
        }
    }
}
