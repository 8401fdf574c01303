//! A quorum as a store: every call goes to all servers, and a majority decides.
//!
//! The decisions are in `leasehold_core::quorum`; here they meet real servers. The caller drives a call up to its
//! verdict, and the rest continues in the background.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::port::{
    Acquire, Acquired, Answered, BreakOptions, Broken, Call, HintSink, Inspected, Release, Released, Renew, Renewed,
    Reply,
};
use leasehold_core::quorum::{Member, Rules};
use leasehold_core::task_tracker::TaskTracker;
use leasehold_core::{
    Capability, ClientId, Consistency, Error, Fencing, Identity, Moment, Name, Outcome, Store, StoreTime,
};

use crate::config::{SCHEME, Settings};
use crate::error;
use crate::host::{Host, Machine};
use crate::majority::{CALL_LIMIT, LISTING_LIMIT};
use crate::state::State;

/// Several independent servers as one store.
#[derive(Clone)]
pub struct Quorum {
    pub(crate) shared: Arc<Shared>,
    pub(crate) members: Arc<[Arc<dyn Member>]>,
}

/// What callers and keeper share.
pub(crate) struct Shared {
    label: Arc<str>,
    pub(crate) rules: Rules,
    host: Arc<dyn Host>,
    process: u32,
    state: Mutex<State>,
    /// Releases that closing waits for.
    pub(crate) releases: TaskTracker,
}

impl Quorum {
    /// Creates a store over these servers: one handle for callers, and one with its own connections for the keeper.
    /// Both lists name the same servers in the same order.
    ///
    /// # Errors
    ///
    /// [`BadArgument`](leasehold_core::ErrorKind::BadArgument) if there are fewer than three servers, an even number
    /// without `even`, or one that is named twice.
    pub fn new(
        callers: Vec<Arc<dyn Member>>,
        keepers: Vec<Arc<dyn Member>>,
        settings: &Settings,
    ) -> Result<(Self, Self), Error> {
        let labels: Vec<Arc<str>> = callers.iter().map(|member| member.label().clone()).collect();
        settings.check(&labels)?;
        let rules = Rules { servers: labels.into(), limit: settings.limit, quarantine: settings.quarantine };
        Self::hosted(callers, keepers, rules, Arc::new(Machine))
    }

    /// Like [`Quorum::new`], with given rules, which name the servers in the same order, and on a given host.
    ///
    /// # Errors
    ///
    /// [`BadArgument`](leasehold_core::ErrorKind::BadArgument) unless there is one handle of each kind for each server.
    pub fn hosted(
        callers: Vec<Arc<dyn Member>>,
        keepers: Vec<Arc<dyn Member>>,
        rules: Rules,
        host: Arc<dyn Host>,
    ) -> Result<(Self, Self), Error> {
        let servers = rules.servers();
        if callers.len() != servers || keepers.len() != servers {
            return Err(error::keeper_unconnected());
        }
        let place = |label: &'_ Arc<str>| label.split_once("//").map_or(&**label, |parts| parts.1).to_owned();
        let places: Vec<String> = rules.servers.iter().map(place).collect();
        let shared = Arc::new(Shared {
            label: format!("{SCHEME}://{}", places.join(",")).into(),
            rules,
            process: std::process::id(),
            releases: TaskTracker::default(),
            state: Mutex::new(State::new(servers, &*host)?),
            host,
        });
        let face = |members: Vec<Arc<dyn Member>>| Self { shared: shared.clone(), members: members.into() };
        Ok((face(callers), face(keepers)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.shared.host
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.host.now()
    }

    /// Runs something that no caller waits for.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.shared.host.spawn(Box::pin(work));
    }

    /// An answer of this store, with its own clock.
    pub(crate) fn answer<T>(&self, result: Result<T, Error>) -> Reply<T> {
        let at = self.state().at(self.now());
        match result {
            Ok(result) => Ok(Answered { at, result }),
            Err(error) => Err(error.on_store(&self.shared.label)),
        }
    }

    /// Processes the answer of a server, which may include its clock.
    pub(crate) fn heard(&self, server: usize, sent: Moment, came: Moment, at: Option<StoreTime>) {
        let mut state = self.state();
        if let Some(at) = at {
            state.clocks.observe(server, sent, came, at);
        }
        state.health.answered(server);
        state.stragglers[server] = 0;
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A forked child does no work in the background.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// Connects to the servers of a URL: once for callers, once for the keeper.
///
/// # Errors
///
/// As [`Quorum::new`]; or the process can have no more threads or files.
#[cfg(feature = "redis")]
pub fn connect(config: &crate::Config) -> Result<(Quorum, Quorum), Error> {
    use leasehold_redis::Redis;
    let mut callers: Vec<Arc<dyn Member>> = Vec::new();
    let mut keepers = callers.clone();
    for server in config.servers() {
        callers.push(Arc::new(Redis::new(server)?));
        keepers.push(Arc::new(Redis::for_keeper(server)?));
    }
    Quorum::new(callers, keepers, config.settings())
}

const LONGER_LEASES: &str = "no lease may be longer than the quarantine (?quarantine=), which must be the same for all clients of these \
     servers; docs/redlock.md says how to change it";

impl Store for Quorum {
    fn label(&self) -> &Arc<str> {
        &self.shared.label
    }

    fn capability(&self) -> Capability {
        let all = self.members.iter().map(|member| member.capability());
        let every = |has: fn(&Capability) -> bool| self.members.iter().all(|member| has(&member.capability()));
        let quarantine = self.shared.rules.quarantine;
        let longest = all.map(|one| one.lease_max).min().unwrap_or(Capability::NOTHING.lease_max);
        let mut capability = Capability::NOTHING;
        capability.consistency = Consistency::Ap;
        capability.fencing = Fencing::ByClock;
        capability.lost_before = every(|one| one.lost_before);
        capability.hints = every(|one| one.hints);
        capability.waiters = every(|one| one.waiters);
        capability.server_clock = true;
        capability.outlives_process = every(|one| one.outlives_process);
        capability.several_names = every(|one| one.several_names);
        // A server that forgot must not vote for as long as any lease lasts.
        capability.lease_max = if quarantine.is_zero() { longest } else { longest.min(quarantine) };
        capability.longer_leases = (!quarantine.is_zero() && quarantine < longest).then_some(LONGER_LEASES);
        capability
    }

    /// The servers it consists of, in any order. Unknown if one of them does not identify itself.
    fn identity(&self) -> Call<Result<Identity, Error>> {
        let calls: Vec<_> = self.members.iter().map(|member| member.identity()).collect();
        Call::pending(async move {
            let mut servers = Vec::new();
            for call in calls {
                match call.await {
                    Ok(server) if server.is_known() => servers.push(format!("{server:?}")),
                    _ => return Ok(Identity::unknown(SCHEME)),
                }
            }
            servers.sort();
            Ok(Identity::new(SCHEME, servers.join(",")))
        })
    }

    fn clock(&self) -> Call<Reply<()>> {
        let quorum = self.clone();
        Call::pending(async move {
            let found = quorum.gather("connect", CALL_LIMIT, false, |member| member.clock()).await;
            let checked = match found {
                Ok(found) => quorum.are_different(found.into_iter().map(|(server, _)| server).collect()).await,
                Err(error) => Err(error),
            };
            quorum.answer(checked)
        })
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        Call::pending(self.clone().take(request))
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        Call::pending(self.clone().uphold(leases))
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        Call::pending(self.clone().give(request))
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        let quorum = self.clone();
        Call::pending(async move {
            let watch = |member: &Arc<dyn Member>| member.watch(client, name.clone(), sink.clone());
            let found = quorum.gather("watch", CALL_LIMIT, false, watch).await;
            found.map(drop).map_err(|error| error.on_store(&quorum.shared.label))
        })
    }

    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        let calls: Vec<Call<()>> = self.members.iter().map(|member| member.unwatch(client, name.clone())).collect();
        let quorum = self.clone();
        Call::pending(async move {
            for call in calls {
                quorum.spawn(call);
            }
        })
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        let quorum = self.clone();
        Call::pending(async move {
            let found = quorum.gather("inspect", CALL_LIMIT, false, |member| member.inspect(name.clone())).await;
            quorum.answer(found.map(|found| {
                let unheard = quorum.members.len() - found.len();
                quorum.combined(&name, found.into_iter().map(|(_, found)| found.result).collect(), unheard)
            }))
        })
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        let quorum = self.clone();
        Call::pending(async move {
            let (mut all, mut after) = (Vec::new(), after);
            loop {
                let list = |member: &Arc<dyn Member>| member.list(prefix.clone(), after.clone(), limit);
                let pages = match quorum.gather("list", LISTING_LIMIT, false, list).await {
                    Ok(pages) => pages.into_iter().map(|(_, page)| page.result).collect(),
                    Err(error) => return quorum.answer(Err(error)),
                };
                let (found, end) = quorum.merged(pages, limit);
                all.extend(found);
                if end.is_none() || all.len() >= limit {
                    all.truncate(limit);
                    return quorum.answer(Ok(all));
                }
                after = end;
            }
        })
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        let quorum = self.clone();
        Call::pending(async move {
            let found =
                quorum.gather("break", CALL_LIMIT, true, |member| member.break_lock(name.clone(), options)).await;
            let found = found.map_err(|error| error.with_outcome(Outcome::Unknown));
            quorum.answer(found.map(|found| {
                let unheard = quorum.members.len() - found.len();
                // A majority is enough: what only a minority has was never granted.
                let mut refusals = found.iter().filter_map(|(_, found)| found.result.refused);
                let is_done = found.len() - refusals.clone().count() >= quorum.shared.rules.majority();
                let refused = refusals.next().filter(|_| !is_done);
                let was = found.into_iter().map(|(_, found)| found.result.was).collect();
                Broken { was: quorum.combined(&name, was, unheard), refused }
            }))
        })
    }

    fn close(&self, client: ClientId) -> Call<()> {
        let quorum = self.clone();
        Call::pending(async move {
            quorum.finish_releases().await;
            let calls: Vec<Call<()>> = quorum.members.iter().map(|member| member.close(client)).collect();
            for call in calls {
                call.await;
            }
        })
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("label", &self.shared.label).finish_non_exhaustive()
    }
}
