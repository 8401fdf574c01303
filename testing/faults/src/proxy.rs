//! A connection that goes wrong: a proxy before a server, which cuts, delays, holds up or refuses what goes through it.

mod through;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::Failure;
use crate::servers::Port;

/// How long a proxy may take to listen again.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// A proxy on the loopback address. It ends with its value, and everything that goes through it.
#[derive(Debug)]
pub struct Proxy {
    port: Arc<Port>,
    mode: watch::Sender<Mode>,
    seen: Arc<Seen>,
}

/// What it does.
#[derive(Clone, Copy, Debug)]
struct Mode {
    listens: bool,
    /// Otherwise nothing goes through, and nothing is closed.
    passes: bool,
    /// In each direction.
    delay: Duration,
    /// How often everything was cut.
    cuts: u64,
}

/// What its connections share with it.
#[derive(Default, Debug)]
struct Seen {
    listens: Mutex<bool>,
    changed: Condvar,
    open: AtomicUsize,
    /// How many bytes of replies are let through before the connection is cut that carries the next.
    left: Mutex<Option<usize>>,
    cut_in_a_reply: AtomicUsize,
}

impl Proxy {
    /// Before a server.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub fn before(server: SocketAddr) -> Result<Self, Failure> {
        let mode = watch::Sender::new(Mode { listens: true, passes: true, delay: Duration::ZERO, cuts: 0 });
        let proxy = Self { port: Arc::new(Port::reserve()?), mode, seen: Arc::default() };
        let (port, modes, seen) = (proxy.port.clone(), proxy.mode.subscribe(), proxy.seen.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || runtime.block_on(through::serve(&port, server, modes, &seen));
        std::thread::Builder::new().name("proxy".into()).spawn(serve)?;
        proxy.listens(true)?;
        Ok(proxy)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// How many connections go through it.
    pub fn connections(&self) -> usize {
        self.seen.open.load(Ordering::Acquire)
    }

    /// Cuts every connection. New ones go through.
    pub fn cut(&self) {
        self.mode.send_modify(|mode| mode.cuts += 1);
    }

    /// Lets this many bytes of replies through, over all connections, and cuts the connection that has the next byte:
    /// in the middle of a reply, or before one whose request was executed.
    pub fn cut_after(&self, bytes: usize) {
        *self.seen.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
    }

    /// How often a connection was cut by [`Proxy::cut_after`].
    pub fn cut_in_a_reply(&self) -> usize {
        self.seen.cut_in_a_reply.load(Ordering::Acquire)
    }

    /// Everything takes this much longer, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.mode.send_modify(|mode| mode.delay = delay);
    }

    /// Nothing goes through any more, and nothing is closed: what is sent vanishes until [`Proxy::resume`].
    pub fn hold(&self) {
        self.mode.send_modify(|mode| mode.passes = false);
    }

    /// Cuts every connection, and refuses new ones.
    ///
    /// # Errors
    ///
    /// When it goes on listening.
    pub fn refuse(&self) -> Result<(), Failure> {
        self.mode.send_modify(|mode| {
            mode.listens = false;
            mode.cuts += 1;
        });
        self.listens(false)
    }

    /// Everything goes through again, at once.
    ///
    /// # Errors
    ///
    /// When it does not listen again.
    pub fn resume(&self) -> Result<(), Failure> {
        *self.seen.left.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.mode.send_modify(|mode| {
            (mode.listens, mode.passes, mode.delay) = (true, true, Duration::ZERO);
        });
        self.listens(true)
    }

    fn listens(&self, expected: bool) -> Result<(), Failure> {
        let listens = self.seen.listens.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.seen.changed.wait_timeout_while(listens, LISTENS_WITHIN, |listens| *listens != expected);
        let (listens, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *listens == expected { Ok(()) } else { Err("the proxy does not do as it is told".into()) }
    }
}
