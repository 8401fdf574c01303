//! The signals that the runner handles, and those that were ignored at its start: `nohup` and background jobs stay as
//! they are.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use signal_hook::consts::SIGXFSZ;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// Whether this process was started with a signal ignored. Only Linux reports it.
pub(super) fn is_ignored(number: i32) -> bool {
    (1..=64).contains(&number) && *IGNORED >> (number - 1) & 1 == 1
}

/// As it was before the first signal was handled.
static IGNORED: LazyLock<u64> = LazyLock::new(|| {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
});

/// From now on a write beyond the file size limit (`ulimit -f`) fails and does not end this process, which could not
/// report it. The signal is handled and not ignored, so that the command inherits its default.
pub(crate) fn outlive_file_limit() {
    if !is_ignored(SIGXFSZ) {
        // If it cannot be handled, it ends the process as before.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// The signals that are forwarded to the command, or that end the wait for a lock.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// From now on none of them ends this process by itself. Must be called inside a runtime.
    pub(crate) fn passed_on() -> Result<Self, Failure> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        Self::of(kinds.into_iter().filter(|kind| !is_ignored(kind.as_raw_value())))
    }

    /// Signals of a shell's job control: SIGTSTP, SIGCONT.
    pub(super) fn of_jobs() -> Result<Self, Failure> {
        use rustix::process::Signal;
        let numbers = [Signal::CONT.as_raw(), Signal::TSTP.as_raw()];
        Self::of(numbers.into_iter().filter(|number| !is_ignored(*number)).map(SignalKind::from_raw))
    }

    /// None at all.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    fn of(kinds: impl Iterator<Item = SignalKind>) -> Result<Self, Failure> {
        let heard = |kind: SignalKind| signal(kind).map(|stream| (kind.as_raw_value(), stream));
        let all: Result<_, _> = kinds.map(heard).collect();
        all.map(Self).map_err(|error| Failure::new(Exit::BUG, format!("cannot handle signals: {error}")))
    }

    /// Waits for the next signal and returns its number. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|task| self.poll(task)).await
    }

    /// A signal that has already come.
    pub(crate) fn pending(&mut self) -> Option<i32> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(number) => Some(number),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<i32> {
        for (number, stream) in &mut self.0 {
            if stream.poll_recv(task).is_ready() {
                return Poll::Ready(*number);
            }
        }
        Poll::Pending
    }
}
