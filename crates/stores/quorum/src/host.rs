//! What a quorum needs from its host: time, timers, background tasks, and randomness.
//!
//! A simulation brings its own host; all others use [`Machine`].

use std::future::Future;
use std::pin::Pin;
use std::task::Waker;

use leasehold_core::{Error, Moment};

use crate::{thread, timer_queue};

/// Background work.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The host that a quorum runs on.
pub trait Host: Send + Sync + 'static {
    /// The time, on a clock that never goes back and counts while the machine sleeps.
    fn now(&self) -> Moment;

    /// Wakes a task at that time. Replaces the alarm `before`, if there is one.
    fn set_alarm(&self, before: Option<Alarm>, when: Moment, waker: &Waker) -> Alarm;

    /// Removes an alarm that may not have expired.
    fn drop_alarm(&self, alarm: Alarm);

    /// Runs work to its end.
    fn spawn(&self, work: Work);

    /// A random seed.
    ///
    /// # Errors
    ///
    /// If the host has no randomness.
    fn seed(&self) -> Result<u64, Error>;
}

/// An alarm that was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarm {
    /// Unique on the same host.
    pub number: u64,
    /// When it expires.
    pub when: Moment,
}

/// The host of this process: its clocks, a thread of its own, and random numbers from the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Host for Machine {
    fn now(&self) -> Moment {
        leasehold_clock::now()
    }

    fn set_alarm(&self, before: Option<Alarm>, when: Moment, waker: &Waker) -> Alarm {
        timer_queue::bell().set(before, when, waker)
    }

    fn drop_alarm(&self, alarm: Alarm) {
        timer_queue::bell().forget(alarm);
    }

    fn spawn(&self, work: Work) {
        if let Some(handle) = thread::handle() {
            handle.spawn(work);
        }
    }

    fn seed(&self) -> Result<u64, Error> {
        // Checked before anything else: without this thread no background work could run later.
        thread::start()?;
        leasehold_clock::seed()
    }
}
