//! One thread per process and file that waits for hints and for the end of holders' processes. Every second it checks
//! the liveness files of the holders that local clients wait behind. It never opens the store's own file for that.

use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{ClientId, Hint, HintSink, Moment, Name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::registry::Registry;
use crate::{live, socket};

/// Longest message: a name, and the marker for names that the reader holds.
const MESSAGE_BYTES: usize = 513;
/// Delay after a wake-up before the client's other names are checked: a full socket may have dropped a hint.
const CHECK_ALL_AFTER: Duration = Duration::from_millis(20);

/// Interval between two checks of the holders that local clients wait behind: a waiter that was notified may not act.
const CHECK_INTERVAL: Duration = Duration::from_millis(900);

/// Timer slack in nanoseconds (50 ms): the kernel may delay a check to run it along with others, so that many waiters
/// wake an idle machine less often.
#[cfg(target_os = "linux")]
const TIMER_SLACK_NS: Option<NonZeroU64> = NonZeroU64::new(50_000_000);

/// Handle of the thread.
#[derive(Debug)]
pub(crate) struct Notifier {
    started: AtomicBool,
    /// Wakes the thread, so that it picks up new sockets, or ends if it is no longer needed.
    waker: UnixDatagram,
    /// The thread's end of the wake-up socket, until the thread starts.
    receiver: Mutex<Option<UnixDatagram>>,
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let (waker, heard) = UnixDatagram::pair()?;
        waker.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Self { started: AtomicBool::new(false), waker, receiver: Mutex::new(Some(heard)) })
    }

    /// Makes sure that the thread listens to every socket of the registry.
    pub(crate) fn listen(&self, registry: &Arc<Registry>) -> io::Result<()> {
        if self.started.load(Ordering::Acquire) {
            self.wake();
            return Ok(());
        }
        let mut heard = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = heard.as_ref() {
            let listener = Listener {
                waker: waker.try_clone()?,
                registry: Arc::downgrade(registry),
                due: None,
                look: None,
                deferred: false,
            };
            std::thread::Builder::new().name("leasehold-ear".into()).spawn(move || listener.run())?;
            *heard = None;
            self.started.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// If the socket is full, a wake-up is pending already.
    pub(crate) fn wake(&self) {
        let _ = self.waker.send(&[]);
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.wake();
    }
}

struct Listener {
    waker: UnixDatagram,
    registry: Weak<Registry>,
    /// When all names are to be checked, if they are.
    due: Option<Moment>,
    /// When the holders are to be checked, if they are.
    look: Option<Moment>,
    /// The check was postponed once, and is not postponed again.
    deferred: bool,
}

/// What the thread waits for, and whose it is.
#[derive(Clone, Copy)]
enum Source {
    Bell,
    Client(ClientId),
    Holder(ClientId),
}

impl Listener {
    fn run(mut self) {
        coalesce_checks();
        while self.turn().is_some() {}
    }

    /// Waits once and notifies the clients concerned. `None` when the registry is gone.
    fn turn(&mut self) -> Option<()> {
        let registry = self.registry.upgrade()?;
        let (sources, files): (Vec<Source>, Vec<Arc<dyn AsFd + Send + Sync>>) = sources(&registry).into_iter().unzip();
        self.look =
            registry.has_followed().then(|| self.look.unwrap_or_else(|| leasehold_clock::now() + CHECK_INTERVAL));
        drop(registry);
        let woken = self.wait(&files);
        drop(files);
        let registry = self.registry.upgrade()?;
        for index in woken {
            match index.checked_sub(1).map_or(Source::Bell, |index| sources[index]) {
                Source::Bell => while self.waker.recv(&mut [0; 1]).is_ok() {},
                Source::Client(client) => self.hear(&registry, client),
                Source::Holder(holder) => remove_dead(&registry, holder),
            }
        }
        if self.look.is_some_and(|look| look <= leasehold_clock::now()) {
            self.look = registry.check_holders(!self.deferred);
            self.deferred = self.look.is_some();
        }
        if self.due.is_some_and(|due| due <= leasehold_clock::now()) {
            self.due = None;
            registry.check_all();
        }
        Some(())
    }

    /// Returns which of the wake-up socket and the files are ready.
    fn wait(&self, files: &[Arc<dyn AsFd + Send + Sync>]) -> Vec<usize> {
        let waker: BorrowedFd<'_> = self.waker.as_fd();
        let mut asked = vec![PollFd::from_borrowed_fd(waker, PollFlags::IN)];
        asked.extend(files.iter().map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)));
        let due = self.due.into_iter().chain(self.look).min();
        let limit = due.map(|due| due.since(leasehold_clock::now()) + Duration::from_millis(1));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut asked, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Too many files, or no memory: every waiter still rechecks, without hints.
            Err(_) => std::thread::sleep(CHECK_ALL_AFTER),
        }
        (0..asked.len()).filter(|index| !asked[*index].revents().is_empty()).collect()
    }

    /// Reads a client's messages and delivers them.
    fn hear(&mut self, registry: &Registry, client: ClientId) {
        let Some(socket) = registry.state().members.get(&client).and_then(|member| member.socket.clone()) else {
            return;
        };
        let mut message = [0; MESSAGE_BYTES];
        while let Ok(length) = socket.recv(&mut message) {
            let Some(hint) = socket::read(&message[..length]) else { continue };
            let sink = match &hint {
                Hint::Held(_) => registry.holder(client),
                Hint::Name(name) => registry.sink(client, name),
                Hint::All => None,
            };
            if let Some(sink) = sink {
                sink(hint);
            }
        }
        if registry.state().members.get(&client).is_some_and(|member| member.watched.len() > 1) {
            self.due.get_or_insert(leasehold_clock::now() + CHECK_ALL_AFTER);
        }
    }
}

#[cfg(target_os = "linux")]
fn coalesce_checks() {
    // If it is not allowed, each check runs at its own time.
    let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK_NS);
}

#[cfg(not(target_os = "linux"))]
fn coalesce_checks() {}

fn sources(registry: &Registry) -> Vec<(Source, Arc<dyn AsFd + Send + Sync>)> {
    let state = registry.state();
    let mut sources: Vec<(Source, Arc<dyn AsFd + Send + Sync>)> = Vec::new();
    for (client, member) in &state.members {
        if let Some(socket) = &member.socket {
            sources.push((Source::Client(*client), socket.clone()));
        }
    }
    // On other systems the file is not a pipe and signals nothing; waiters find out by their recheck.
    if cfg!(target_os = "linux") {
        for (holder, (file, _)) in &state.followed {
            sources.push((Source::Holder(*holder), file.clone()));
        }
    }
    sources
}

/// The process of a holder ended: the clients that wait behind it ask again.
fn remove_dead(registry: &Registry, holder: ClientId) {
    let told: Vec<(Name, HintSink)> = {
        let mut state = registry.state();
        match state.followed.get(&holder) {
            Some((file, _)) if live::is_free(file) => state.behind(holder),
            // Not the end of a pipe but another event: the file is dropped, so that it cannot keep the thread busy.
            Some(_) => return drop(state.followed.remove(&holder)),
            None => return,
        }
    };
    for (name, sink) in told {
        sink(Hint::Name(name));
    }
}
