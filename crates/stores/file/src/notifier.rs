//! The ear: one thread a process and file that waits for hints and for the end of holders' processes. Each second it looks at the
//! files of those whom somebody here waits behind; it never opens the store's own file for that.

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

/// The longest message: a name, and what says that its reader holds it.
const MESSAGE_BYTES: usize = 513;
/// After a wake-up, every other name of the client is looked at this much later: a full socket may have swallowed its hint.
const LOOK_AROUND_AFTER: Duration = Duration::from_millis(20);

/// How often those are looked at whom somebody here waits behind: whoever a release told may not act on it.
const LOOK: Duration = Duration::from_millis(900);

/// How much later the kernel may wake the thread for a look, along with others: many that wait then wake a resting machine less often.
/// In nanoseconds: 50 ms.
#[cfg(target_os = "linux")]
const SLACK: Option<NonZeroU64> = NonZeroU64::new(50_000_000);

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Notifier {
    started: AtomicBool,
    /// Wakes the thread, so that it sees new sockets, or that nobody needs it any more.
    bell: UnixDatagram,
    /// The thread's end, until it starts.
    heard: Mutex<Option<UnixDatagram>>,
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let (bell, heard) = UnixDatagram::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Self { started: AtomicBool::new(false), bell, heard: Mutex::new(Some(heard)) })
    }

    /// Makes sure that the thread listens to every socket of the place.
    pub(crate) fn listen(&self, place: &Arc<Registry>) -> io::Result<()> {
        if self.started.load(Ordering::Acquire) {
            self.wake();
            return Ok(());
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = heard.as_ref() {
            let listener = Listener {
                bell: bell.try_clone()?,
                place: Arc::downgrade(place),
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

    /// A full bell rings already.
    pub(crate) fn wake(&self) {
        let _ = self.bell.send(&[]);
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.wake();
    }
}

struct Listener {
    bell: UnixDatagram,
    place: Weak<Registry>,
    /// When all names are to be looked at, if they are.
    due: Option<Moment>,
    /// When the holders are to be looked at, if they are.
    look: Option<Moment>,
    /// That look was put off once, and is not put off again.
    deferred: bool,
}

/// What the thread waits for, with how to find it again.
#[derive(Clone, Copy)]
enum Source {
    Bell,
    Client(ClientId),
    Holder(ClientId),
}

impl Listener {
    fn run(mut self) {
        let_looks_gather();
        while self.turn().is_some() {}
    }

    /// Waits once, and tells those whom it concerns. None when the place is gone.
    fn turn(&mut self) -> Option<()> {
        let place = self.place.upgrade()?;
        let (sources, files): (Vec<Source>, Vec<Arc<dyn AsFd + Send + Sync>>) = sources(&place).into_iter().unzip();
        self.look = place.looks().then(|| self.look.unwrap_or_else(|| leasehold_clock::now() + LOOK));
        drop(place);
        let woken = self.wait(&files);
        drop(files);
        let place = self.place.upgrade()?;
        for index in woken {
            match index.checked_sub(1).map_or(Source::Bell, |index| sources[index]) {
                Source::Bell => while self.bell.recv(&mut [0; 1]).is_ok() {},
                Source::Client(client) => self.hear(&place, client),
                Source::Holder(holder) => bury(&place, holder),
            }
        }
        if self.look.is_some_and(|look| look <= leasehold_clock::now()) {
            self.look = place.look_at_holders(!self.deferred);
            self.deferred = self.look.is_some();
        }
        if self.due.is_some_and(|due| due <= leasehold_clock::now()) {
            self.due = None;
            place.look_around();
        }
        Some(())
    }

    /// Which of bell and files have something.
    fn wait(&self, files: &[Arc<dyn AsFd + Send + Sync>]) -> Vec<usize> {
        let bell: BorrowedFd<'_> = self.bell.as_fd();
        let mut asked = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        asked.extend(files.iter().map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)));
        let due = self.due.into_iter().chain(self.look).min();
        let limit = due.map(|due| due.since(leasehold_clock::now()) + Duration::from_millis(1));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut asked, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Too many files, or no memory: the recheck of every waiter goes on without hints.
            Err(_) => std::thread::sleep(LOOK_AROUND_AFTER),
        }
        (0..asked.len()).filter(|index| !asked[*index].revents().is_empty()).collect()
    }

    /// Reads what came for a client, and passes it on.
    fn hear(&mut self, place: &Registry, client: ClientId) {
        let Some(socket) = place.state().members.get(&client).and_then(|member| member.socket.clone()) else { return };
        let mut message = [0; MESSAGE_BYTES];
        while let Ok(length) = socket.recv(&mut message) {
            let Some(hint) = socket::read(&message[..length]) else { continue };
            let sink = match &hint {
                Hint::Held(_) => place.holder(client),
                Hint::Name(name) => place.sink(client, name),
                Hint::All => None,
            };
            if let Some(sink) = sink {
                sink(hint);
            }
        }
        if place.state().members.get(&client).is_some_and(|member| member.watched.len() > 1) {
            self.due.get_or_insert(leasehold_clock::now() + LOOK_AROUND_AFTER);
        }
    }
}

#[cfg(target_os = "linux")]
fn let_looks_gather() {
    // Where it is not allowed, each look comes in its own time.
    let _ = rustix::thread::set_current_timer_slack(SLACK);
}

#[cfg(not(target_os = "linux"))]
fn let_looks_gather() {}

fn sources(place: &Registry) -> Vec<(Source, Arc<dyn AsFd + Send + Sync>)> {
    let state = place.state();
    let mut sources: Vec<(Source, Arc<dyn AsFd + Send + Sync>)> = Vec::new();
    for (client, member) in &state.members {
        if let Some(socket) = &member.socket {
            sources.push((Source::Client(*client), socket.clone()));
        }
    }
    // Elsewhere the file is not a pipe, and says nothing: there the recheck of every waiter finds out.
    if cfg!(target_os = "linux") {
        for (holder, (file, _)) in &state.followed {
            sources.push((Source::Holder(*holder), file.clone()));
        }
    }
    sources
}

/// The process of a holder ended: those who wait behind it ask again.
fn bury(place: &Registry, holder: ClientId) {
    let told: Vec<(Name, HintSink)> = {
        let mut state = place.state();
        match state.followed.get(&holder) {
            Some((file, _)) if live::is_free(file) => state.behind(holder),
            // Not a pipe's end but something else: not listened to any more, so that it cannot keep the thread busy.
            Some(_) => return drop(state.followed.remove(&holder)),
            None => return,
        }
    };
    for (name, sink) in told {
        sink(Hint::Name(name));
    }
}
