//! The one clock on which every driver stamps its answers.

use rustix::time::{ClockId, clock_gettime};

/// Now, in microseconds of `CLOCK_MONOTONIC`: other processes of this machine read the same.
pub fn now_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}
