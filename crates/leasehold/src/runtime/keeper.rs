//! The keeper: a thread and a runtime of its own that renew leases and notice in time when they are lost.
//!
//! A blocked or busy runtime of the user's cannot starve it. It reads the clock at least every 100 ms while anything is held
//! or asked for, because timers do not count the time a machine was suspended. While tasks only wait in line it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::table::Input;
use leasehold_core::{Error, ErrorKind, Moment};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::runtime::panic_guard::{self, caught};
use crate::runtime::shell::{Recipient, Shell};

/// The longest sleep while anything is held, or was a moment ago.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Two checks are this far apart, so that renewals gather into batches, unless something is due before: a short lease leaves no more
/// than this between its deadline and its end.
const MIN_SLEEP: Duration = Duration::from_millis(2);
/// After this many checks at which nothing was due the keeper rests: it sleeps until it is woken. If its last rest was a long one,
/// it rests after one such check: a lock that is taken and given back all the time would wake it each time.
const IDLE_CHECKS: u32 = 20;
/// The wall clock may be set or slewed by this much between two checks without being taken for a jump.
const MAX_SLEW: Duration = Duration::from_millis(500);
/// How long the keeper waits, after the last handle is gone and the table is empty, for calls that only tidy up.
const MAX_DRAIN: Duration = Duration::from_secs(10);

/// Wakes the keeper when something is due before its next check.
#[derive(Debug, Default)]
pub(crate) struct KeeperWaker {
    /// When its next check is, on the clock of [`Moment`].
    checks_at: AtomicU64,
    wake: Notify,
    /// The last handle is gone.
    abandoned: AtomicBool,
    ended: AtomicBool,
}

impl KeeperWaker {
    /// Something is due then. Costs one load if the keeper checks early enough anyway.
    #[inline]
    pub(crate) fn due_at(&self, when: Option<Moment>) {
        if let Some(when) = when
            && when.as_nanos() < self.checks_at.load(Ordering::Acquire)
        {
            self.checks_at.store(when.as_nanos(), Ordering::Release);
            self.wake.notify_one();
        }
    }

    pub(crate) fn rouse(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn set_next_check(&self, when: Moment) {
        self.checks_at.store(when.as_nanos(), Ordering::Release);
    }
}

/// A keeper's thread that has not been given its client yet.
pub(crate) struct Keeper {
    pub(crate) handle: Handle,
    pub(crate) waker: Arc<KeeperWaker>,
    start: oneshot::Sender<Arc<Shell>>,
}

impl Keeper {
    /// Starts the thread and its runtime.
    pub(crate) fn spawn() -> Result<Self, Error> {
        let failed = |what: &str, error: std::io::Error| {
            Error::new(ErrorKind::Internal, "connect", format!("{what}: {error}"))
                .with_hint("look at the limits of this process: threads (ulimit -u), open files (ulimit -n), memory")
                .with_source(error)
        };
        let runtime = leasehold_clock::room_for_runtime()
            .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
            .map_err(|error| failed("the keeper's runtime could not be made", error))?;
        let handle = runtime.handle().clone();
        let waker = Arc::new(KeeperWaker::default());
        let (start, started) = oneshot::channel();
        let waker_there = waker.clone();
        let (give, given) = std::sync::mpsc::channel::<Runtime>();
        let spawned = std::thread::Builder::new()
            .name("leasehold-keeper".into())
            .spawn(move || {
                let Ok(runtime) = given.recv() else { return };
                let shell = runtime.block_on(async {
                    let shell = started.await.ok()?;
                    keep(&shell, &waker_there).await;
                    // Nobody is left to close it.
                    match caught(|| shell.store.close(shell.client)) {
                        Ok(closing) => drop(tokio::time::timeout(MAX_DRAIN, closing).await),
                        Err(panic) => panic_guard::log("closing", &panic),
                    }
                    Some(shell)
                });
                waker_there.ended.store(true, Ordering::Release);
                runtime.shutdown_background();
                // Last: with it go the stores, which may have runtimes of their own.
                drop(shell);
            })
            .map_err(|error| failed("the keeper's thread could not be started", error));
        match spawned {
            // The thread waits for just this.
            Ok(_) => drop(give.send(runtime)),
            Err(error) => {
                // A runtime that is dropped in an async task panics: so it was not given to a thread that may not start.
                runtime.shutdown_background();
                return Err(error);
            }
        }
        Ok(Self { handle, waker, start })
    }

    /// Gives it its client.
    pub(crate) fn keep(self, shell: Arc<Shell>) {
        // The thread waits for just this; it is gone only if the process is going.
        let _ = self.start.send(shell);
    }
}

/// Does what is due, and sleeps, until the last handle is gone and nothing is open with the store.
async fn keep(shell: &Arc<Shell>, waker: &KeeperWaker) {
    let mut idle = 0;
    let mut wall = WallWatch::new();
    let mut drains_since = None;
    loop {
        let abandoned = waker.is_abandoned();
        let next = match caught(|| check(shell, &mut wall)) {
            Ok(next) => next,
            Err(panic) => {
                panic_guard::log("the keeper", &panic);
                Some(leasehold_clock::now() + MAX_SLEEP)
            }
        };
        if abandoned && is_drained(shell, &mut drains_since) {
            return;
        }
        idle = if next.is_some() || abandoned { 0 } else { idle + 1 };
        let now = leasehold_clock::now();
        if idle > IDLE_CHECKS && shell.may_rest() {
            waker.set_next_check(Moment::NEVER);
            waker.wake.notified().await;
            // Nothing was held or asked for until then: a jump of the wall clock before that concerns no lease.
            wall = shell.rested().unwrap_or_else(WallWatch::new);
            if leasehold_clock::now().since(now) < MAX_SLEEP {
                idle = 0;
            }
            continue;
        }
        let until = next.unwrap_or(Moment::NEVER).min(now + MAX_SLEEP);
        waker.set_next_check(until);
        // A timer set between the check and the line above saw an older time and did not wake the keeper; one set from here on does.
        let until = until.min(shell.next_timer().unwrap_or(Moment::NEVER));
        // The runtime's timers go by whole milliseconds, rounded up: so this lets other tasks run, and gathers what is due together.
        let woken = tokio::time::timeout(until.since(now), waker.wake.notified()).await;
        if woken.is_ok() {
            let due = shell.next_timer().unwrap_or(Moment::NEVER);
            tokio::time::sleep(due.since(leasehold_clock::now()).min(MIN_SLEEP)).await;
        }
    }
}

/// Whether nothing is open in the table, and what only tidies up has ended or had its time.
fn is_drained(shell: &Shell, since: &mut Option<Moment>) -> bool {
    if !shell.state().table.is_empty() {
        *since = None;
        return false;
    }
    let now = leasehold_clock::now();
    let since = *since.get_or_insert(now);
    !shell.tasks.any() || now.since(since) >= MAX_DRAIN
}

/// Does what is due, and returns when the next thing is.
fn check(shell: &Arc<Shell>, wall: &mut WallWatch) -> Option<Moment> {
    let now = leasehold_clock::now();
    if let Some(ahead) = wall.jumped(now) {
        shell.step(Input::Jumped(ahead), Recipient::Nobody);
    }
    let next = shell.next_timer();
    if next.is_some_and(|next| next <= now) {
        shell.step(Input::Tick, Recipient::Nobody);
        return shell.next_timer();
    }
    next
}

/// Notices when the wall clock runs ahead of the clock that leases are counted by, which may have stood still.
pub(crate) struct WallWatch {
    moment: Moment,
    wall: leasehold_core::StoreTime,
}

impl WallWatch {
    pub(crate) fn new() -> Self {
        Self { moment: leasehold_clock::now(), wall: leasehold_clock::wall() }
    }

    pub(crate) fn jumped(&mut self, now: Moment) -> Option<Duration> {
        let before = std::mem::replace(self, Self { moment: now, wall: leasehold_clock::wall() });
        let ahead = self.wall.since(before.wall).saturating_sub(now.since(before.moment));
        (ahead > MAX_SLEW).then_some(ahead)
    }
}
