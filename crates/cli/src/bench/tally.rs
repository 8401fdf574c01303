//! Counts during a workload: operations, their times, errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::exit::Failure;

/// Times in nanoseconds.
pub(crate) type Times = Histogram<u64>;

/// Number of histograms that tasks share, so that a thousand tasks do not need a thousand of them.
const SHARDS: usize = 16;
/// Significant digits of a histogram.
const DIGITS: u8 = 3;
/// Longer times count as this one.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Counts of all tasks of a process.
#[derive(Debug)]
pub(crate) struct Tally {
    ops: AtomicU64,
    held: AtomicU64,
    errors: AtomicU64,
    first_error: Mutex<Option<Failure>>,
    shards: Vec<Mutex<Times>>,
}

/// An empty histogram.
pub(crate) fn no_times() -> Times {
    Histogram::new_with_max(LONGEST.as_nanos() as u64, DIGITS)
        .expect("a histogram of three digits and an hour is possible")
}

/// Adds a measured time with its count.
pub(crate) fn add(times: &mut Times, nanos: u64, count: u64) {
    times.saturating_record_n(nanos, count);
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            ops: AtomicU64::new(0),
            held: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            first_error: Mutex::new(None),
            shards: (0..SHARDS).map(|_| Mutex::new(no_times())).collect(),
        }
    }

    /// A task acquired and released.
    pub(crate) fn op(&self, task: usize, took: Duration) {
        self.ops.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let shard = &self.shards[task % SHARDS];
        add(&mut shard.lock().unwrap_or_else(PoisonError::into_inner), nanos, 1);
    }

    /// A lock was acquired, to be held for a while.
    pub(crate) fn hold(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// A task failed.
    pub(crate) fn error(&self, failure: impl Into<Failure>) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| failure.into());
    }

    /// Operations reported by other processes.
    pub(crate) fn set_ops(&self, ops: u64) {
        self.ops.store(ops, Ordering::Relaxed);
    }

    pub(crate) fn ops(&self) -> u64 {
        self.ops.load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub(crate) fn take_first_error(&self) -> Option<Failure> {
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The times of all tasks together.
    pub(crate) fn times(&self) -> Times {
        let mut all = no_times();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(&*shard).expect("all histograms have the same bounds");
        }
        all
    }
}
