//! A lock over several independent servers, as a store like any other: asked all at once, granted by a majority.
//!
//! The decisions are in `leasehold_core::quorum`; here they are driven over real servers. A call is driven by whoever waits for it, up
//! to its verdict; what is left to do behind it goes on in the background.

mod acquire;
mod calls;
mod deferred;
#[cfg(feature = "redis")]
mod examine;
mod host;
mod port;
mod rejoin;
mod release;
mod renew;
mod tasks;
mod timer_queue;
mod wake_threshold;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use leasehold_core::backoff::Rng;
use leasehold_core::port::{Answered, Reply};
use leasehold_core::quorum::{Clocks, Health, Hold, Member, PerServer, Rules, Vote};
use leasehold_core::{Error, ErrorKind, Moment, Name, RequestId, StoreTime};

use crate::task_guard::TaskTracker;
use calls::InFlightCalls;
use deferred::DeferredWork;
#[cfg(feature = "redis")]
pub(crate) use examine::examine;
pub use host::{Alarm, Host, Machine, Work};

/// How long a server does not vote that may have forgotten, where nothing else is said.
pub const QUARANTINE: Duration = Duration::from_secs(60);
/// So many calls that were not waited for may be open at a server before it is left out for a while.
const STRAGGLERS: u32 = 16;
/// Below this many grants nothing is swept.
const SWEEP_MIN: usize = 128;

/// How a quorum is used.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For how long a server does not vote that may have forgotten: one constant for everybody who uses these servers. No lease is
    /// longer. Zero switches it off.
    pub quarantine: Duration,
    /// How long a server is waited for; none for the smaller of 50 ms and a tenth of the lease.
    pub limit: Option<Duration>,
    /// An even number of servers is taken: it bears no more losses than one less.
    pub even: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { quarantine: QUARANTINE, limit: None, even: false }
    }
}

/// Several independent servers as one store.
#[derive(Clone)]
pub struct Quorum {
    shared: Arc<Shared>,
    members: Arc<[Arc<dyn Member>]>,
}

/// What callers and keeper have in common.
struct Shared {
    label: Arc<str>,
    rules: Rules,
    host: Arc<dyn Host>,
    process: u32,
    state: Mutex<State>,
    /// What closing waits for.
    errands: TaskTracker,
}

struct State {
    clocks: Clocks,
    health: Health,
    rng: Rng,
    attempts: u64,
    /// Where this store's own clock began, and what the servers' clocks showed then.
    anchor: Option<(Moment, StoreTime)>,
    /// What was granted, by the request of the client's.
    holds: HashMap<RequestId, Held, RandomState>,
    /// With so many of them those are looked for that ended and were never given back.
    sweep_at: usize,
    /// Calls to each server that nobody waits for.
    stragglers: PerServer<u32>,
    behind: DeferredWork,
}

/// A grant, for as long as it is held.
struct Held {
    hold: Hold,
    /// Those that were not given back.
    names: Vec<Name>,
    /// The servers have it until then at least, if they forget nothing.
    ends: Moment,
    /// Votes that were not needed.
    late: InFlightCalls<Answered<Vote>>,
}

impl Quorum {
    /// Over these servers: one handle for callers, and one over connections of its own for the keeper. Both name the same servers in
    /// the same order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`] for fewer than three servers, for an even number of them without `even`, or for one named twice.
    pub fn new(
        callers: Vec<Arc<dyn Member>>,
        keepers: Vec<Arc<dyn Member>>,
        settings: &Settings,
    ) -> Result<(Self, Self), Error> {
        let labels: Vec<Arc<str>> = callers.iter().map(|member| member.label().clone()).collect();
        check(&labels, settings)?;
        let rules = Rules {
            servers: labels.into(),
            limit: settings.limit,
            quarantine: settings.quarantine,
            planted: Default::default(),
        };
        Self::hosted(callers, keepers, rules, Arc::new(Machine))
    }

    /// As [`Quorum::new`], by these rules, which name the servers in the same order, and on this machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`] where there is not one handle of each kind for each server.
    pub fn hosted(
        callers: Vec<Arc<dyn Member>>,
        keepers: Vec<Arc<dyn Member>>,
        rules: Rules,
        host: Arc<dyn Host>,
    ) -> Result<(Self, Self), Error> {
        let servers = rules.servers();
        if callers.len() != servers || keepers.len() != servers {
            return Err(bad("the keeper needs a connection to each server".into()));
        }
        let place = |label: &'_ Arc<str>| label.split_once("//").map_or(&**label, |parts| parts.1).to_owned();
        let places: Vec<String> = rules.servers.iter().map(place).collect();
        let shared = Arc::new(Shared {
            label: format!("redlock://{}", places.join(",")).into(),
            rules,
            process: std::process::id(),
            errands: TaskTracker::default(),
            state: Mutex::new(State {
                clocks: Clocks::new(servers),
                health: Health::new(servers, Rng::new(host.seed()?)),
                rng: Rng::new(host.seed()?),
                attempts: 0,
                anchor: None,
                holds: HashMap::default(),
                sweep_at: SWEEP_MIN,
                stragglers: (0..servers).map(|_| 0).collect(),
                behind: DeferredWork::default(),
            }),
            host,
        });
        let face = |members: Vec<Arc<dyn Member>>| Self { shared: shared.clone(), members: members.into() };
        Ok((face(callers), face(keepers)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn host(&self) -> &Arc<dyn Host> {
        &self.shared.host
    }

    fn now(&self) -> Moment {
        self.shared.host.now()
    }

    /// Goes on with something that nobody waits for.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.shared.host.spawn(Box::pin(work));
    }

    /// An answer of this store, with its own clock.
    fn answer<T>(&self, result: Result<T, Error>) -> Reply<T> {
        let at = self.state().at(self.now());
        match result {
            Ok(result) => Ok(Answered { at, result }),
            Err(error) => Err(error.on_store(&self.shared.label)),
        }
    }

    /// A server answered something, and may have told its clock.
    fn heard(&self, server: usize, sent: Moment, came: Moment, at: Option<StoreTime>) {
        let mut state = self.state();
        if let Some(at) = at {
            state.clocks.observe(server, sent, came, at);
        }
        state.health.answered(server);
        state.stragglers[server] = 0;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child nothing goes on behind anybody's back.
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

impl State {
    /// This store's own clock: it began with those of the servers, and goes by ours.
    fn at(&mut self, now: Moment) -> StoreTime {
        let (began, at) = match self.anchor {
            Some(anchor) => anchor,
            None => {
                let Some(middle) = self.clocks.middle(now) else { return StoreTime::default() };
                *self.anchor.insert((now, middle))
            }
        };
        at + now.since(began)
    }

    /// A grant goes into the books.
    fn keep(&mut self, now: Moment, request: RequestId, held: Held) {
        if self.holds.len() >= self.sweep_at {
            self.holds.retain(|_, held| held.ends > now);
            self.sweep_at = (self.holds.len() * 2).max(SWEEP_MIN);
        }
        self.holds.insert(request, held);
    }

    /// Who need not be asked now, and why.
    fn left_out(&self, now: Moment) -> PerServer<Option<Option<Error>>> {
        let mut ailing = self.health.ailing(now);
        let mut spare = (ailing.len() - 1) / 2 - ailing.iter().flatten().count().min((ailing.len() - 1) / 2);
        for (server, ailing) in ailing.iter_mut().enumerate() {
            if ailing.is_none() && spare > 0 && self.stragglers[server] > STRAGGLERS {
                *ailing = Some(None);
                spare -= 1;
            }
        }
        ailing
    }
}

fn check(labels: &[Arc<str>], settings: &Settings) -> Result<(), Error> {
    let servers = labels.len();
    if servers < 3 {
        let are = if servers == 1 { "is" } else { "are" };
        let what =
            format!("a quorum needs three servers or more, and {servers} {are} given: with fewer, none may fail");
        return Err(bad(what).with_hint("name more of them, or one server with redis:// instead"));
    }
    if servers.is_multiple_of(2) && !settings.even {
        let what = format!("{servers} servers bear no more losses than {}", servers - 1);
        return Err(bad(what).with_hint("leave one out, or allow it with even=yes"));
    }
    if let Some(twice) = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
        let what = format!("{} is named twice: its vote would count twice", twice.1);
        return Err(bad(what).with_hint("name every server once"));
    }
    Ok(())
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("label", &self.shared.label).finish_non_exhaustive()
    }
}
