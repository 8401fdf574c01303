//! What leasehold asks the operating system. The only place that reads a clock: everything else gets time as an argument.
//!
//! A lease must not seem longer because the machine slept: so the clock counts suspend, which `std::time::Instant` does not.

pub mod fork;

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::{Moment, STORE_EPOCH_UNIX_SECONDS, StoreTime};
use leasehold_core::{Error, ErrorKind};
use rustix::time::{ClockId, clock_gettime};

/// Linux: the clock that goes on while the machine is suspended. Elsewhere (macOS) the monotonic clock does so.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// Now, on the clock that counts suspend and never goes back.
#[inline]
pub fn now() -> Moment {
    let time = clock_gettime(BOOT);
    Moment::from_nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// How much of the processors this process has used so far, all of its threads together.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The wall clock, in time since 2020-01-01 UTC. For people, and for noticing jumps; it decides no lease.
pub fn wall() -> StoreTime {
    let epoch = UNIX_EPOCH + Duration::from_secs(STORE_EPOCH_UNIX_SECONDS);
    let since = SystemTime::now().duration_since(epoch).unwrap_or_default();
    StoreTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// How many files tokio opens for a runtime.
const RUNTIME_FILES: usize = 6;

/// Whether a runtime of tokio can still be made. Where its signals cannot have their files it panics, so this is asked before.
///
/// # Errors
///
/// The process has too many files open.
pub fn room_for_runtime() -> std::io::Result<()> {
    let opened: std::io::Result<Vec<_>> = (0..RUNTIME_FILES).map(|_| std::fs::File::open("/dev/null")).collect();
    opened.map(drop)
}

/// The name of this machine, for people.
pub fn host() -> Option<String> {
    let name = rustix::system::uname();
    name.nodename().to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// A random number from the operating system.
///
/// # Errors
///
/// [`ErrorKind::Internal`] where the system has none.
pub fn seed() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| {
        let what = format!("the operating system gave no random numbers: {error}");
        Error::new(ErrorKind::Internal, "connect", what)
    })
}

/// Where the wall clock and the clock that never goes back stood when this process first asked.
static ANCHOR: LazyLock<Anchored> = LazyLock::new(|| Anchored { moment: now(), wall: wall() });

/// A store's clock inside this process: it starts at the wall clock and then follows the clock that never goes back. It is the
/// same for all stores of the process, so that one which comes back later does not start anew behind a wall clock that was set.
#[derive(Clone, Copy, Debug)]
pub struct Anchored {
    moment: Moment,
    wall: StoreTime,
}

impl Anchored {
    /// Anchored where this process first asked.
    pub fn new() -> Self {
        *ANCHOR
    }

    /// The store's time.
    #[inline]
    pub fn now(&self) -> StoreTime {
        self.wall + now().since(self.moment)
    }
}

impl Default for Anchored {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_go_forward_and_agree() {
        let clock = Anchored::new();
        let (a, b) = (clock.now(), clock.now());
        assert!(a <= b);
        let apart = wall().since(clock.now()).max(clock.now().since(wall()));
        assert!(apart < Duration::from_secs(5), "{apart:?} apart");
        assert!(now().as_nanos() > 0);
    }
}
