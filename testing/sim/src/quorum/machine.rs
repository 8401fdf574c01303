//! The machine that a simulated client runs on: virtual time, alarms, and one thread that polls whatever is ready, in order.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold_core::backoff::Rng;
use leasehold_core::{Error, Moment};
use leasehold_quorum::{Alarm, Host, Work};

/// What the code that ships sees of its machine.
pub(super) struct Machine {
    now: AtomicU64,
    inner: Mutex<Inner>,
    ready: Arc<Ready>,
}

struct Inner {
    rng: Rng,
    numbers: u64,
    alarms: BTreeMap<(Moment, u64), Waker>,
    spawned: Vec<Work>,
}

/// Tasks that are to be polled, in the order in which they were woken.
type Ready = Mutex<VecDeque<usize>>;

struct Task {
    work: Option<Work>,
    waker: Waker,
    queued: Arc<Woken>,
}

struct Woken {
    task: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push_back(self.task);
        }
    }
}

/// The tasks of one machine.
#[derive(Default)]
pub(super) struct Tasks {
    all: Vec<Task>,
    free: Vec<usize>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(0),
            inner: Mutex::new(Inner { rng: Rng::new(seed), numbers: 0, alarms: BTreeMap::new(), spawned: Vec::new() }),
            ready: Arc::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// It is so late now; whoever is due is woken.
    pub(super) fn set_time(&self, now: Moment) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        let mut inner = self.inner();
        let later = inner.alarms.split_off(&(now + Duration::from_nanos(1), 0));
        let due = std::mem::replace(&mut inner.alarms, later);
        drop(inner);
        due.into_values().for_each(Waker::wake);
    }

    /// When the next alarm rings.
    pub(super) fn next_alarm(&self) -> Option<Moment> {
        self.inner().alarms.keys().next().map(|(when, _)| *when)
    }

    /// Waits until then.
    pub(super) async fn sleep_until(self: &Arc<Self>, when: Moment) {
        let mut alarm = None;
        poll_fn(|task| {
            if self.now() >= when {
                return Poll::Ready(());
            }
            alarm = Some(self.set_alarm(alarm, when, task.waker()));
            Poll::Pending
        })
        .await;
    }

    pub(super) async fn sleep(self: &Arc<Self>, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Waits for something, no longer than that; then it is dropped.
    pub(super) async fn within<T>(self: &Arc<Self>, span: Duration, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut end) = (std::pin::pin!(work), std::pin::pin!(self.sleep(span)));
        poll_fn(|task| match work.as_mut().poll(task) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => end.as_mut().poll(task).map(|()| None),
        })
        .await
    }
}

impl Host for Machine {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn set_alarm(&self, before: Option<Alarm>, when: Moment, waker: &Waker) -> Alarm {
        let mut inner = self.inner();
        let number = match before {
            Some(before) => {
                inner.alarms.remove(&(before.when, before.number));
                before.number
            }
            None => {
                inner.numbers += 1;
                inner.numbers
            }
        };
        inner.alarms.insert((when, number), waker.clone());
        Alarm { number, when }
    }

    fn drop_alarm(&self, alarm: Alarm) {
        self.inner().alarms.remove(&(alarm.when, alarm.number));
    }

    fn spawn(&self, work: Work) {
        self.inner().spawned.push(work);
    }

    fn seed(&self) -> Result<u64, Error> {
        Ok(self.inner().rng.draw())
    }
}

impl Tasks {
    /// Polls whatever is ready until nothing is.
    pub(super) fn run(&mut self, machine: &Machine) {
        loop {
            for work in std::mem::take(&mut machine.inner().spawned) {
                self.add(machine, work);
            }
            let Some(at) = lock(&machine.ready).pop_front() else { return };
            let task = &mut self.all[at];
            task.queued.queued.store(false, Ordering::Relaxed);
            let Some(work) = &mut task.work else { continue };
            if work.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                task.work = None;
                self.free.push(at);
            }
        }
    }

    fn add(&mut self, machine: &Machine, work: Work) {
        let at = self.free.pop().unwrap_or(self.all.len());
        if at == self.all.len() {
            let woken = Woken { task: at, queued: AtomicBool::new(false), ready: machine.ready.clone() };
            let queued = Arc::new(woken);
            self.all.push(Task { work: None, waker: Waker::from(queued.clone()), queued });
        }
        self.all[at].work = Some(work);
        self.all[at].waker.wake_by_ref();
    }
}
