//! The port of a store, implemented with scripts.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::port::{
    Acquire, Acquired, Answered, Break, BreakOptions, Broken, Busy, Call, HintSink, Inspected, Mode, Notification,
    Release, ReleaseScope, Released, Renew, Renewed, Reply,
};
use leasehold_core::{
    Capability, ClientId, Consistency, Error, ErrorKind, Fence, Fencing, Identity, Name, Names, Outcome, Store,
    StoreOwner, StoreTime,
};
use redis::Cmd;

use crate::batcher::{self, Answer, Batcher};
use crate::config::{Config, Layout};
use crate::connection::{Connection, ConnectionEpoch};
use crate::error;
use crate::keys::{self, Space};
use crate::list;
use crate::reply;
use crate::script::{Script, Scripts};
use crate::subscriptions::Subscriptions;
use crate::thread::Thread;
use crate::waitlist_cache::WaitlistCache;

/// A store on one Redis server.
#[derive(Clone)]
pub struct Redis(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    label: Arc<str>,
    /// The number of its database.
    database: i64,
    pub(crate) layout: Layout,
    pub(crate) space: Space,
    pub(crate) scripts: &'static Scripts,
    pub(crate) connection: Arc<Connection>,
    subscriptions: Arc<Subscriptions>,
    /// The waitlists that clients of this store may be on.
    waitlists: Mutex<WaitlistCache>,
    pub(crate) batcher: Batcher,
    pub(crate) scanned: list::Scanned,
    /// In a quorum: how long the server does not vote after it may have forgotten grants.
    pub(crate) quarantine: Duration,
    /// Whether the server syncs every write, as it said on that connection.
    synced: Mutex<Option<(ConnectionEpoch, bool)>>,
}

impl Redis {
    /// A store on that server, for callers. Nothing is sent yet: the first call connects, on the store's own thread.
    ///
    /// # Errors
    ///
    /// The process can have no more threads or files.
    pub fn new(config: &Config) -> Result<Self, Error> {
        Self::on(config, Thread::Callers)
    }

    /// The same for a keeper: on a thread that never runs user code.
    ///
    /// # Errors
    ///
    /// As [`Redis::new`].
    pub fn for_keeper(config: &Config) -> Result<Self, Error> {
        Self::on(config, Thread::Keepers)
    }

    fn on(config: &Config, thread: Thread) -> Result<Self, Error> {
        // Hints are delivered on the callers' thread, including those that the keeper receives.
        Thread::Callers.start()?;
        thread.start()?;
        let subscriptions = Subscriptions::new(config.layout, config.space.clone());
        let connection = Connection::new(config, thread, subscriptions.clone());
        subscriptions.attach(&connection);
        Ok(Self(Arc::new(Inner {
            label: config.label.as_str().into(),
            database: config.info.redis_settings().db(),
            layout: config.layout,
            space: config.space.clone(),
            scripts: Scripts::of(config.layout),
            connection,
            subscriptions,
            waitlists: Mutex::default(),
            batcher: Batcher::default(),
            scanned: list::Scanned::default(),
            quarantine: config.quarantine,
            synced: Mutex::default(),
        })))
    }

    pub(crate) fn refused<T>(&self, error: Error) -> Call<Reply<T>> {
        Call::done(Err(error.on_store(&self.0.label)))
    }

    /// Releases a hold; if `quietly`, no client is notified.
    pub(crate) fn give_back(&self, request: Release, quietly: bool) -> Call<Reply<Released>> {
        if keys::is_reserved_owner(&request.owner) {
            return self.refused(error::reserved_owner("release"));
        }
        let (inner, request) = (self.0.clone(), Arc::new(request));
        self.call(async move {
            if request.rejoin {
                inner.waitlists().enter(request.client, &request.name, leasehold_clock::now());
            }
            let shared = match !quietly && batcher::can_batch_release(&request) {
                true => inner.batch_release(request.clone()).await,
                false => Answer::Alone(None),
            };
            let answer = match shared {
                Answer::Done { at, waiters, .. } => return Ok((at, Released::Released { waiters })),
                Answer::Whole(answer) => answer,
                Answer::Alone(_going) => {
                    inner.run(&inner.scripts.release, release_command(&inner, &request, quietly)).await
                }
            };
            answer.and_then(reply::released).map_err(|error| error.during("release").on_lock(&request.name))
        })
    }

    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<(StoreTime, T), Error>> + Send + 'static,
    ) -> Call<Reply<T>> {
        let inner = self.0.clone();
        Call::pending(async move {
            match work.await {
                Ok((at, result)) => Ok(Answered { at, result }),
                Err(error) => Err(error.on_store(&inner.label)),
            }
        })
    }
}

impl Inner {
    pub(crate) fn synced(&self) -> MutexGuard<'_, Option<(ConnectionEpoch, bool)>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waitlists(&self) -> MutexGuard<'_, WaitlistCache> {
        self.waitlists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn run(&self, script: &Script, command: Cmd) -> Result<redis::Value, Error> {
        // Boxed: most calls do not come here, and their futures would be larger.
        Box::pin(self.connection.call(script, command)).await
    }
}

const ARGUMENTS: usize = 16;
const KEY_BYTES: usize = 64;
const ARGUMENT_BYTES: usize = 384;

/// A call of a script, with this many keys.
pub(crate) fn calling(script: &Script, keys: usize) -> Cmd {
    // Capacity for an ordinary call: growing the buffers step by step costs more than the call.
    let mut command = Cmd::with_capacity(keys + ARGUMENTS, keys * KEY_BYTES + ARGUMENT_BYTES);
    command.arg("EVALSHA").arg(&script.digest).arg(keys);
    command
}

/// The number of keys of a name.
pub(crate) fn parts(layout: Layout) -> usize {
    match layout {
        Layout::Redisson => 7,
        Layout::Plain => 5,
    }
}

/// All keys of a name, in the order of the scripts.
pub(crate) fn add_keys(command: &mut Cmd, inner: &Inner, name: &Name) {
    let keys = inner.space.keys(name);
    command.arg(keys.lock()).arg(keys.fence()).arg(keys.record()).arg(keys.waitlist()).arg(keys.waiter_expiries());
    if inner.layout == Layout::Redisson {
        command.arg(keys.token()).arg(keys.channel());
    }
}

/// The keys of a renewal: the lock, and its record, which is at the fence's key unless several clients share the owner.
pub(crate) fn add_lease_keys(command: &mut Cmd, inner: &Inner, leases: &[Renew]) {
    for renew in leases {
        let keys = inner.space.keys(&renew.lease.name);
        let is_shared = inner.layout == Layout::Redisson && matches!(renew.lease.owner, StoreOwner::Shared(_));
        command.arg(keys.lock()).arg(if is_shared { keys.record() } else { keys.fence() });
    }
}

/// The leases to renew, and their terms.
pub(crate) fn add_leases(command: &mut Cmd, leases: &[Renew]) {
    for renew in leases {
        command
            .arg(keys::tag(&renew.lease.owner))
            .arg(renew.lease.fence.get())
            .arg(renew.hold.map(keys::request).unwrap_or_default())
            .arg(reply::millis(renew.term));
    }
}

pub(crate) fn acquire_command(inner: &Inner, request: &Acquire) -> Cmd {
    let names = request.names.as_slice();
    let mut command = calling(&inner.scripts.acquire, names.len() * parts(inner.layout));
    names.iter().for_each(|name| add_keys(&mut command, inner, name));
    command
        .arg(keys::tag(&request.owner))
        .arg(keys::request(request.request))
        .arg(reply::millis(request.lease))
        .arg(request.block.max(1))
        .arg(request.seen.get())
        .arg(reply::micros(request.not_after))
        .arg(&keys::client(request.request.client))
        .arg(u8::from(request.enlist))
        .arg(reply::about(&request.about))
        .arg(Fence::at(request.clock.floor).get())
        .arg(Fence::at(request.clock.ceiling).get());
    command
}

/// The subscriptions of a client before an acquire.
struct Listening(Option<(Vec<String>, ConnectionEpoch)>);

impl Listening {
    /// Whether it is subscribed to every channel that a release of this lock uses.
    fn before(inner: &Inner, request: &Acquire) -> Self {
        let (Names::One(name), true) = (&request.names, request.enlist) else { return Self(None) };
        let client = request.request.client;
        if !inner.subscriptions.knows(client) {
            return Self(None);
        }
        let channels = inner.subscriptions.channels_of(client, name);
        Self(inner.connection.subscribed(&channels).map(|mark| (channels, mark)))
    }

    /// If it was subscribed before the acquire and still is, on the same connection, it cannot miss a release.
    fn notification(&self, inner: &Inner, client: ClientId, busy: &Busy) -> Notification {
        if releases_silently(inner, busy) {
            return Notification::Never;
        }
        let Some((channels, before)) = &self.0 else { return Notification::WhenWatched };
        inner.subscriptions.add_again(client, &busy.name);
        if inner.connection.subscribed(channels).as_ref() == Some(before) {
            return Notification::Coming;
        }
        Notification::WhenWatched
    }
}

/// Whether the holder notifies no client of its release: in the plain layout, a holder of another library.
pub(crate) fn releases_silently(inner: &Inner, busy: &Busy) -> bool {
    inner.layout == Layout::Plain && busy.holder.as_ref().is_some_and(|holder| holder.fence.is_none())
}

/// A fence for a script; empty if there is none.
pub(crate) fn number_of(fence: Option<Fence>) -> String {
    fence.map(|fence| fence.get().to_string()).unwrap_or_default()
}

pub(crate) fn release_command(inner: &Inner, request: &Release, quietly: bool) -> Cmd {
    let (give, id) = match request.scope {
        ReleaseScope::Hold(id) => ("hold", keys::request(id)),
        ReleaseScope::One(id) => ("one", keys::request(id)),
        ReleaseScope::All => ("all", String::new()),
    };
    let mut command = calling(&inner.scripts.release, parts(inner.layout));
    add_keys(&mut command, inner, &request.name);
    command
        .arg(request.name.as_str())
        .arg(keys::tag(&request.owner))
        .arg(id)
        .arg(give)
        .arg(number_of(request.fence))
        .arg(number_of(request.last_used))
        .arg(reply::millis(request.cooldown))
        .arg(&keys::client(request.client))
        .arg(u8::from(request.rejoin))
        .arg(u8::from(quietly));
    command
}

impl Store for Redis {
    fn label(&self) -> &Arc<str> {
        &self.0.label
    }

    fn capability(&self) -> Capability {
        let mut capability = Capability::NOTHING;
        capability.consistency = Consistency::Ap;
        capability.fencing = Fencing::ByClock;
        capability.lost_before = true;
        capability.hints = true;
        capability.waiters = true;
        capability.shared_reentrance = self.0.layout == Layout::Redisson;
        capability.server_clock = true;
        capability.outlives_process = true;
        capability.several_names = true;
        capability
    }

    /// The prefix in a database of a server, at whatever address. A server has a new run id after every start.
    fn identity(&self) -> Call<Result<Identity, Error>> {
        let inner = self.0.clone();
        let kind = crate::config::SCHEMES[0];
        Call::pending(async move {
            let server = inner.connection.server().await;
            match server.map_err(|error| error.during("identity").on_store(&inner.label))? {
                Some(id) => Ok(Identity::new(kind, format!("{id}/{}/{}", inner.database, inner.space.0))),
                None => Ok(Identity::unknown(kind)),
            }
        })
    }

    fn clock(&self) -> Call<Reply<()>> {
        let inner = self.0.clone();
        self.call(async move {
            let answer = inner.connection.query(&redis::cmd("TIME")).await?;
            let mut parts = reply::Parts::of(answer)?;
            let mut number = || parts.text()?.parse::<u64>().map_err(|_| error::unreadable("no time"));
            Ok((reply::store_time(number()?.saturating_mul(1_000_000).saturating_add(number()?)), ()))
        })
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        if request.mode != Mode::Exclusive {
            let what = "this store keeps exclusive locks only";
            return Call::done(Err(Error::new(ErrorKind::Unfit, "acquire", what).on_store(&self.0.label)));
        }
        if let Some(name) = request.names.as_slice().iter().find(|name| keys::is_reserved(name)) {
            return Call::done(Err(error::reserved(name).on_store(&self.0.label)));
        }
        if keys::is_reserved_owner(&request.owner) {
            return Call::done(Err(error::reserved_owner("acquire").on_store(&self.0.label)));
        }
        let (inner, request) = (self.0.clone(), Arc::new(request));
        self.call(async move {
            let client = request.request.client;
            let listening = Listening::before(&inner, &request);
            let shared = match batcher::can_batch_acquire(&inner, &request) {
                true => inner.batch_acquire(request.clone()).await,
                false => Answer::Alone(None),
            };
            let answer = match shared {
                Answer::Done { at, first, is_jump, .. } => {
                    return Ok((at, reply::granted_as_asked(&request, first, is_jump)?));
                }
                Answer::Whole(answer) => answer,
                Answer::Alone(_going) => inner.run(&inner.scripts.acquire, acquire_command(&inner, &request)).await,
            };
            let mut acquired = answer.and_then(|value| reply::acquired(value, request.names.as_slice()));
            match &mut acquired {
                Ok((_, Acquired::Busy(busy))) if request.enlist => {
                    inner.waitlists().enter(client, &busy.name, leasehold_clock::now());
                    busy.notification = listening.notification(&inner, client, busy);
                }
                Err(error) if request.enlist && error.outcome() == Outcome::Unknown => {
                    let (mut waitlists, now) = (inner.waitlists(), leasehold_clock::now());
                    request.names.as_slice().iter().for_each(|name| waitlists.enter(client, name, now));
                }
                Ok((_, Acquired::Granted(_))) => {
                    let mut waitlists = inner.waitlists();
                    for name in request.names.as_slice() {
                        waitlists.leave(client, name);
                    }
                }
                _ => {}
            }
            acquired.map_err(|error| error.during("acquire"))
        })
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        if leases.iter().any(|renew| keys::is_reserved_owner(&renew.lease.owner)) {
            return self.refused(error::reserved_owner("renew"));
        }
        let inner = self.0.clone();
        let script = &inner.scripts.renew;
        let mut command = calling(script, leases.len() * 2);
        add_lease_keys(&mut command, &inner, &leases);
        add_leases(&mut command, &leases);
        self.call(async move {
            let answer = inner.run(&inner.scripts.renew, command).await.map_err(|error| error.during("renew"))?;
            reply::renewed(answer)
        })
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.give_back(request, false)
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        let inner = self.0.clone();
        inner.subscriptions.add(client, &name, &sink);
        let channels = inner.subscriptions.channels_of(client, &name);
        Call::pending(async move {
            let subscribed = inner.connection.subscribe(channels).await;
            subscribed.map_err(|error| error.during("watch").on_store(&inner.label).on_lock(&name))
        })
    }

    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        let inner = self.0.clone();
        let idle = inner.subscriptions.remove(client, &name);
        let is_waiting = inner.waitlists().leave(client, &name);
        if !is_waiting && !idle {
            return Call::done(());
        }
        Call::pending(async move {
            if is_waiting {
                let script = &inner.scripts.leave;
                let keys = inner.space.keys(&name);
                let mut command = calling(script, 3);
                command.arg(keys.lock()).arg(keys.waitlist()).arg(keys.waiter_expiries());
                command.arg(name.as_str()).arg(&keys::client(client));
                // If this fails, the entry expires in three seconds.
                let _ = inner.run(script, command).await;
            }
            inner.subscriptions.sweep_later();
        })
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        let inner = self.0.clone();
        self.call(async move {
            let (at, mut found) = list::inspect(&inner, vec![name.clone()], list::Which::One).await?;
            found.pop().map(|found| (at, found)).ok_or_else(|| error::unreadable("it is empty").on_lock(&name))
        })
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        let inner = self.0.clone();
        self.call(async move { list::page(&inner, prefix, after, limit).await })
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        let inner = self.0.clone();
        let script = &inner.scripts.break_lock;
        let mut command = calling(script, parts(inner.layout));
        add_keys(&mut command, &inner, &name);
        command.arg(name.as_str()).arg(match options.how {
            Break::AtLeaseEnd => "end",
            Break::Now => "now",
        });
        command.arg(number_of(options.fence)).arg(u8::from(options.foreign)).arg(u8::from(options.reset_fence));
        self.call(async move {
            let answer = inner.run(&inner.scripts.break_lock, command).await;
            answer
                .and_then(|value| reply::broken(value, name.clone()))
                .map_err(|error| error::of_break(error).during("break").on_lock(&name))
        })
    }

    fn close(&self, client: ClientId) -> Call<()> {
        let inner = self.0.clone();
        inner.subscriptions.remove_all(client);
        inner.connection.close();
        Call::done(())
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("label", &self.0.label).field("layout", &self.0.layout).finish_non_exhaustive()
    }
}
