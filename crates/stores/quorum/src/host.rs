//! What a quorum asks of the machine it runs on: the time, alarms, somebody who goes on with what nobody waits for, and chance.
//!
//! A simulation brings its own; everybody else has [`Machine`].

use std::future::Future;
use std::pin::Pin;
use std::task::Waker;

use leasehold_core::{Error, Moment};

use crate::{thread, timer_queue};

/// Work that nobody waits for.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The machine that a quorum runs on.
pub trait Host: Send + Sync + 'static {
    /// The time, on a clock that never goes back and counts while the machine sleeps.
    fn now(&self) -> Moment;

    /// Wakes a task at that time. An alarm that was set `before` is replaced.
    fn set_alarm(&self, before: Option<Alarm>, when: Moment, waker: &Waker) -> Alarm;

    /// Forgets an alarm that may not have rung.
    fn drop_alarm(&self, alarm: Alarm);

    /// Drives some work to its end.
    fn spawn(&self, work: Work);

    /// Any number, for a generator of others.
    ///
    /// # Errors
    ///
    /// Where the machine has none.
    fn seed(&self) -> Result<u64, Error>;
}

/// An alarm that was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarm {
    /// Which one: no other of the same machine has this number.
    pub number: u64,
    /// When it rings.
    pub when: Moment,
}

/// The machine of this process: its clocks, a thread of its own, and numbers from the operating system.
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
        // Asked for before anything else: without this thread nothing could be done later.
        thread::start()?;
        leasehold_clock::seed()
    }
}
