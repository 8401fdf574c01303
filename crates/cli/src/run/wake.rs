//! Wakes the guardian: for the runner, a child, or a time. Its clock is that of leases, which counts suspend.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use leasehold_core::Moment;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN};

/// Waits for several events.
pub(super) struct Wake {
    child: UnixStream,
    alarm: Alarm,
}

impl Wake {
    /// From now on none of the usual signals ends or stops this process. Its children have the defaults: handlers are
    /// not inherited, and ignored signals stay ignored.
    pub(super) fn new() -> io::Result<Self> {
        let (child, sender) = UnixStream::pair()?;
        child.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, sender)?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGTTIN] {
            if !super::signals::is_ignored(signal) {
                signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
            }
        }
        Ok(Self { child, alarm: Alarm::new()? })
    }

    /// Sleeps until the runner sends something, a child has news, or `until` has come. May wake up without a reason.
    pub(super) fn wait(&mut self, runner: Option<&UnixStream>, until: Option<Moment>) -> io::Result<()> {
        let timeout = self.alarm.set(until)?;
        let mut watched = vec![PollFd::new(&self.child, PollFlags::IN)];
        watched.extend(self.alarm.descriptor().map(|alarm| PollFd::from_borrowed_fd(alarm, PollFlags::IN)));
        watched.extend(runner.map(|runner| PollFd::from_borrowed_fd(runner.as_fd(), PollFlags::IN)));
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while matches!(self.child.read(&mut [0; 64]), Ok(1..)) {}
        Ok(())
    }
}

/// A timer on that clock. It is set before each sleep, which also clears an expiry.
#[cfg(target_os = "linux")]
struct Alarm(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?))
    }

    fn set(&self, until: Option<Moment>) -> io::Result<Option<rustix::event::Timespec>> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
        // All zero turns it off: for a time that is already due, the first nanosecond is as good.
        let at = timespec(until.map_or(0, |until| until.as_nanos().max(1)));
        let once = Itimerspec { it_interval: timespec(0), it_value: at };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(None)
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// On other systems sleeps are short, because a sleep does not count suspend.
#[cfg(not(target_os = "linux"))]
struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    const SLEEP_MAX: std::time::Duration = std::time::Duration::from_millis(100);

    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    fn set(&self, until: Option<Moment>) -> io::Result<Option<rustix::event::Timespec>> {
        let left = until.map_or(Self::SLEEP_MAX, |until| until.since(leasehold_clock::now()).min(Self::SLEEP_MAX));
        Ok(Some(timespec(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))))
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

fn timespec(nanos: u64) -> rustix::event::Timespec {
    const SECOND: u64 = 1_000_000_000;
    let whole = i64::try_from(nanos / SECOND).unwrap_or(i64::MAX);
    rustix::event::Timespec { tv_sec: whole, tv_nsec: (nanos % SECOND) as _ }
}
