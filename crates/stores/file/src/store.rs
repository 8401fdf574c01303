//! The store port, over one file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::{
    Acquire, Acquired, Answered, BreakOptions, Broken, Call, HintSink, Inspected, Notification, Release, Released,
    Renew, Renewed, Reply,
};
use leasehold_core::reference::{Hints, Record, Reference};
use leasehold_core::{Capability, ClientId, Consistency, Error, Fencing, Identity, Name, Store, StoreOwner, StoreTime};
use rusqlite::{Connection, params, params_from_iter};
use smallvec::SmallVec;

use crate::boot::Boot;
use crate::config::Config;
use crate::database::{Database, Session, Written, check_fence, check_fences, kept_by};
use crate::error::Fault;
use crate::executor::{Executor, WORKER_PATIENCE};
use crate::registry::{Registry, Stamps};
use crate::rows::{self, client_bytes, signed, unsigned};

/// Capabilities and promises of this store.
pub(crate) const CAPABILITY: Capability = {
    let mut capability = Capability::NOTHING;
    capability.consistency = Consistency::Local;
    capability.fencing = Fencing::Always;
    capability.lost_before = true;
    capability.hints = true;
    capability.waiters = true;
    capability.ordered = false;
    capability.shared_reentrance = true;
    capability.server_clock = true;
    capability.outlives_process = true;
    capability.several_names = true;
    capability
};

const RENEW: &str = "UPDATE holds SET expires = max(expires, ?1), lease = ?2 \
     WHERE name = ?3 AND owner = '' AND client = ?4 AND number = ?5 AND given = 0 AND first = ?6 AND expires > ?7 AND NOT broken \
     RETURNING expires";
/// A waiter that asks again does not renew its entry while it lasts at least this long, unless no other process writes.
const ENTRY_LASTS: Duration = Duration::from_millis(10_700);
/// While it lasts this long, the entry is not renewed at all: waiters ask again at least every ten seconds.
const ENTRY_LASTS_LONG: Duration = Duration::from_secs(13);
const IS_WAITING: &str = "SELECT EXISTS (SELECT 1 FROM waiters WHERE name = ?1 AND client = ?2)";
const TAKEN_AFTER: &str = "SELECT name FROM holds WHERE name > ?1 AND given = 0 AND expires > ?2 UNION \
     SELECT name FROM names WHERE name > ?1 AND lingers_until > ?2 ORDER BY name";
/// Maximum number of dead clients removed in one write, which scans every hold once.
const DEAD_CLIENTS_MAX: usize = 200;

/// A store in a file: any number of processes on one machine.
pub struct File {
    label: Arc<str>,
    liveness: bool,
    registry: Arc<Registry>,
    executor: Arc<Executor>,
}

impl File {
    /// Opens the file, and creates a missing one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unfit`](leasehold_core::ErrorKind) if the file is foreign, newer, damaged or not writable, if its
    /// file system is shared between machines, or if the disk is full. The file is left unchanged.
    pub fn connect(config: &Config) -> Result<Arc<Self>, Error> {
        let config = config.resolved();
        let label: Arc<str> = config.label().into();
        Boot::this()
            .and_then(|boot| Self::open(&config, &boot, label.clone()))
            .map_err(|error| error.during("connect").on_store(&label))
    }

    pub(crate) fn open(config: &Config, boot: &Boot, label: Arc<str>) -> Result<Arc<Self>, Error> {
        Registry::check_fork(&config.path)?;
        let database = Database::open(config.clone(), boot.clone(), WORKER_PATIENCE, StoreTime::default())?;
        let registry = Registry::at(config, boot)?;
        let executor = Arc::new(Executor::new(database));
        let store = Self { label, liveness: config.liveness, registry, executor };
        store.clear_up()?;
        Ok(Arc::new(store))
    }

    /// Ends what dead processes kept, then removes their files: a client with a row keeps its file.
    fn clear_up(&self) -> Result<(), Error> {
        self.registry.clear_leftovers();
        for dead in self.registry.dead().chunks(DEAD_CLIENTS_MAX) {
            let buried = self
                .executor
                .database()
                .write(WORKER_PATIENCE, &|session| remove_dead(session, dead))
                .map_err(Fault::into_error)?;
            buried.result.into_iter().for_each(|client| self.registry.clear(client));
        }
        Ok(())
    }

    /// One write, and the hints that result from it.
    fn step<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Fn(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Call<Reply<T>> {
        self.work_then(operation, move |database, patience| database.write(patience, &work), |_| ())
    }

    /// The write, what is done with its result, and the hints that result from it.
    fn work_then<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Fn(&mut Database, Duration) -> Result<Written<T>, Fault> + Send + 'static,
        then: impl FnOnce(&mut T) + Send + 'static,
    ) -> Call<Reply<T>> {
        let (registry, executor, label) = (self.registry.clone(), self.executor.clone(), self.label.clone());
        let told = label.clone();
        let answer = move |done: Result<Written<T>, Error>| {
            let Written { at, mut result, hints, given_back } =
                done.map_err(|error| error.during(operation).on_store(&label))?;
            then(&mut result);
            // Before the hints are sent: if this process ends in between, followers see the stamp.
            registry.stamp(&given_back);
            tell(&registry, &executor, hints);
            Ok(Answered { at, result })
        };
        self.executor.work(work, answer, move |error| Err(error.during(operation).on_store(&told)))
    }

    fn look<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Fn(&Connection, StoreTime) -> rusqlite::Result<T> + Send + 'static,
    ) -> Call<Reply<T>> {
        let (label, told) = (self.label.clone(), self.label.clone());
        self.executor.work(
            move |database, patience| database.read(patience, &work),
            move |read| match read {
                Ok((at, result)) => Ok(Answered { at, result }),
                Err(error) => Err(error.during(operation).on_store(&label)),
            },
            move |error| Err(error.during(operation).on_store(&told)),
        )
    }
}

/// Notifies waiters. Those that are gone leave the waitlist, and the next one is notified.
fn tell(registry: &Arc<Registry>, executor: &Arc<Executor>, hints: Hints) {
    for (client, name) in registry.tell(hints) {
        let (next, again) = (registry.clone(), executor.clone());
        let told = move |left: Result<Written<()>, Error>| {
            tell(&next, &again, left.map(|done| done.hints).unwrap_or_default());
        };
        // No caller waits for this. If it fails, the waiters find out by their recheck.
        drop(executor.write(move |session| leave(session, client, &name), told, drop));
    }
}

/// Ends what dead clients kept; returns the clients without any rows left. A fence ahead of the clock keeps its row.
fn remove_dead(session: &mut Session<'_>, dead: &[ClientId]) -> Result<Vec<ClientId>, Fault> {
    let file = session.file()?;
    let clients: Vec<[u8; 16]> = dead.iter().map(|client| client_bytes(*client)).collect();
    let marks = vec!["?"; clients.len()].join(", ");
    let fence = signed(leasehold_core::Fence::at(session.now).get());
    let holds = format!("DELETE FROM holds WHERE kept AND first + len - 1 < {fence} AND client IN ({marks})");
    file.execute(&holds, params_from_iter(&clients))?;
    file.execute(&format!("DELETE FROM waiters WHERE client IN ({marks})"), params_from_iter(&clients))?;
    let mut left = file.prepare(&format!("SELECT DISTINCT client FROM holds WHERE kept AND client IN ({marks})"))?;
    let left: Vec<[u8; 16]> =
        left.query_map(params_from_iter(&clients), |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(dead.iter().copied().filter(|client| !left.contains(&client_bytes(*client))).collect())
}

fn leave(session: &mut Session<'_>, client: ClientId, name: &Name) -> Result<(), Fault> {
    let before = session.load(name)?;
    let hints = session.reference.leave(session.now, client, name);
    session.hints.extend(hints);
    session.save(name, &before)
}

/// Most clients leave the waitlist when the name is granted: then there is nothing to write. A client that waits again
/// by now stays: it asks once more after it starts to watch, and that call follows this one on the same connection.
fn leave_the_list(
    database: &mut Database,
    patience: Duration,
    registry: &Registry,
    client: ClientId,
    name: &Name,
) -> Result<Hints, Fault> {
    if registry.is_watching(client, name) {
        return Ok(Hints::new());
    }
    let waits = |connection: &Connection, _| {
        let mut statement = connection.prepare_cached(IS_WAITING)?;
        statement.query_row(params![name.as_str(), client_bytes(client)], |row| row.get(0))
    };
    match database.read(patience, waits)? {
        (_, true) => Ok(database.write(patience, &|session| leave(session, client, name))?.hints),
        (_, false) => Ok(Hints::new()),
    }
}

/// Result of an acquire, and the holders to follow if it has to wait.
struct AcquireResult {
    acquired: Acquired,
    holders: SmallVec<[ClientId; 1]>,
}

/// The answer to a waiter that asks again, if it needs no write: another live client holds the name, and the waiter's
/// entry lasts a while. The flag says whether it lasts long enough to skip the renewal.
fn still_busy(
    database: &mut Database,
    patience: Duration,
    registry: &Registry,
    request: &Acquire,
) -> Result<Option<(Written<AcquireResult>, bool)>, Fault> {
    let [name] = request.names.as_slice() else { return Ok(None) };
    let client = request.request.client;
    if !request.enlist || !registry.is_watching(client, name) {
        return Ok(None);
    }
    let (at, record) = database.peek(patience, client, name)?;
    check_fences(name, &record, at)?;
    let listed = record.waiters.iter().find(|waiter| waiter.client == client).map_or(at, |waiter| waiter.until);
    let holders = kept_by(&record);
    if listed <= at + ENTRY_LASTS || holders.iter().any(|holder| registry.is_gone(*holder)) {
        return Ok(None);
    }
    let mut reference = Reference::new(0, Duration::ZERO);
    reference.put(name.clone(), record);
    let acquired = reference.acquire(at, &Acquire { enlist: false, ..request.clone() })?;
    let busy = matches!(acquired, Acquired::Busy(_));
    let asked = AcquireResult { acquired, holders };
    let done = Written { at, result: asked, hints: Hints::new(), given_back: SmallVec::new() };
    Ok(busy.then_some((done, listed > at + ENTRY_LASTS_LONG)))
}

fn acquire(session: &mut Session<'_>, registry: &Registry, request: &Acquire) -> Result<AcquireResult, Fault> {
    let names = request.names.as_slice();
    let mut before = SmallVec::<[_; 1]>::new();
    for name in names {
        let loaded = session.load(name)?;
        check_fences(name, loaded.record(), session.now)?;
        let client = request.request.client;
        let foreign = loaded.record().rows.iter().any(|row| {
            row.kept && row.expires > session.now && row.holds.iter().any(|hold| hold.request.client != client)
        });
        if foreign {
            let mut record = loaded.record().clone();
            record.bury(|holder| holder != client && registry.is_gone(holder));
            session.reference.put(name.clone(), record);
        }
        before.push(loaded);
    }
    let acquired = session.reference.acquire(session.now, request)?;
    if let Acquired::Granted(grants) = &acquired {
        // Fences that a client has seen elsewhere count too.
        for (name, granted) in names.iter().zip(grants) {
            check_fence(name, granted.block.last(), session.now)?;
        }
    }
    let mut holders = SmallVec::new();
    if let (Acquired::Busy(busy), true) = (&acquired, request.enlist)
        && let Some(at) = names.iter().position(|name| *name == busy.name)
    {
        holders = kept_by(before[at].record());
    }
    for (name, before) in names.iter().zip(&before) {
        session.save(name, before)?;
    }
    Ok(AcquireResult { acquired, holders })
}

fn renew_by_reference(session: &mut Session<'_>, renew: &Renew) -> Result<Renewed, Fault> {
    let before = session.load(&renew.lease.name)?;
    let renewed = session.reference.renew(session.now, std::slice::from_ref(renew))[0];
    session.save(&renew.lease.name, &before)?;
    Ok(renewed)
}

fn renew(session: &mut Session<'_>, file: &Connection, renew: &Renew) -> Result<Renewed, Fault> {
    let lease = &renew.lease;
    let only_hold = match lease.owner {
        // If it is not kept any more, waiters must see that.
        StoreOwner::Private(request) if renew.hold == Some(request) && renew.kept => Some(request),
        _ => None,
    };
    let Some(request) = only_hold else { return renew_by_reference(session, renew) };
    let (now, term) = (session.now, u64::try_from(renew.term.as_nanos()).unwrap_or(u64::MAX));
    let mut statement = file.prepare_cached(RENEW)?;
    let mut rows = statement.query(params![
        signed((now + renew.term).as_nanos()),
        signed(term),
        lease.name.as_str(),
        client_bytes(request.client),
        signed(request.number),
        signed(lease.fence.get()),
        signed(now.as_nanos()),
    ])?;
    match rows.next()? {
        Some(row) => Ok(Renewed::Kept { left: Duration::from_nanos(unsigned(row.get(0)?) - now.as_nanos()) }),
        // Gone or broken: the reference store knows which.
        None => Ok(renew_by_reference(session, renew)?),
    }
}

impl Store for File {
    fn label(&self) -> &Arc<str> {
        &self.label
    }

    fn capability(&self) -> Capability {
        CAPABILITY
    }

    /// The file, whatever path leads to it.
    fn identity(&self) -> Call<Result<Identity, Error>> {
        let identity = self.registry.identity().map_err(|error| error.during("identity").on_store(&self.label));
        Call::done(identity.map(|(device, number)| Identity::new(crate::config::SCHEME, format!("{device}:{number}"))))
    }

    fn clock(&self) -> Call<Reply<()>> {
        Call::done(Ok(Answered { at: self.executor.now(), result: () }))
    }

    fn acquire(&self, mut request: Acquire) -> Call<Reply<Acquired>> {
        let client = request.request.client;
        request.kept &= self.liveness;
        if let Err(error) = if request.kept { self.registry.join(client) } else { Ok(()) } {
            return Call::done(Err(error.during("acquire").on_store(&self.label)));
        }
        let (registry, follower) = (self.registry.clone(), self.registry.clone());
        let stamps = match request.names.as_slice() {
            [name] if request.enlist => self.registry.stamps(client, name),
            _ => Stamps::new(),
        };
        let follow = move |asked: &mut AcquireResult| {
            if let Acquired::Busy(busy) = &mut asked.acquired
                && follower.follow(client, &busy.name, &asked.holders, stamps)
            {
                busy.notification = Notification::Sure;
            }
        };
        let work = move |database: &mut Database, patience| {
            let write = |database: &mut Database, patience| {
                database.write(patience, &|session| acquire(session, &registry, &request))
            };
            // Most rechecks find what they found before: then nothing is written.
            match still_busy(database, patience, &registry, &request)? {
                Some((done, true)) => Ok(done),
                // Many waiters would block each other: there is time to try again.
                Some((done, false)) => match write(database, Duration::ZERO) {
                    Err(Fault::Busy) => Ok(done),
                    written => written,
                },
                None => write(database, patience),
            }
        };
        let asked = self.work_then("acquire", work, follow);
        map(asked, |asked| asked.acquired)
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        // In the order of names, as on disk: neighbours share a page.
        let mut order: Vec<usize> = (0..leases.len()).collect();
        order.sort_by(|a, b| leases[*a].lease.name.cmp(&leases[*b].lease.name));
        self.step("renew", move |session| {
            let file = session.file()?;
            let mut results = vec![Renewed::Lost; leases.len()];
            for index in &order {
                results[*index] = renew(session, file, &leases[*index])?;
            }
            Ok(results)
        })
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.step("release", move |session| {
            let before = session.load(&request.name)?;
            let (released, hints) = session.reference.release(session.now, &request);
            session.hints.extend(hints);
            session.save(&request.name, &before)?;
            Ok(released)
        })
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        match self.registry.watch(client, name, sink) {
            Ok(()) => Call::done(Ok(())),
            Err(error) => Call::done(Err(error.during("watch").on_store(&self.label))),
        }
    }

    fn watch_held(&self, client: ClientId, sink: HintSink) {
        self.registry.watch_held(client, sink);
    }

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        self.registry.unwatch(client, &name);
        let (registry, executor) = (self.registry.clone(), self.executor.clone());
        // Not at once: this is called under the client's mutex, and no client may be notified before it returns.
        Call::pending(async move {
            let left = executor.work(
                {
                    let registry = registry.clone();
                    move |database, patience| leave_the_list(database, patience, &registry, client, &name)
                },
                Result::unwrap_or_default,
                |_| Hints::new(),
            );
            tell(&registry, &executor, left.await);
        })
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        self.look("look-up", move |connection, now| inspect(connection, now, &name))
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        self.look("list", move |connection, now| list(connection, now, &prefix, after.as_ref(), limit))
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        let (registry, broken_name) = (self.registry.clone(), name.clone());
        let step = move |session: &mut Session<'_>| {
            let before = session.load(&name)?;
            let (broken, hints) = session.reference.break_lock(session.now, &name, options);
            session.hints.extend(hints);
            session.save(&name, &before)?;
            let taken = broken.refused.is_none().then(|| holders(before.record()));
            Ok((broken, taken.unwrap_or_default()))
        };
        let told = self.work_then(
            "break",
            move |database, patience| database.write(patience, &step),
            move |(_, holders)| holders.iter().for_each(|holder| registry.notify_holder(*holder, &broken_name)),
        );
        map(told, |(broken, _)| broken)
    }

    fn close(&self, client: ClientId) -> Call<()> {
        self.registry.leave(client);
        Call::done(())
    }
}

pub(crate) fn inspect(connection: &Connection, now: StoreTime, name: &Name) -> rusqlite::Result<Inspected> {
    Ok(rows::load(connection, name)?.1.record.inspect(now, name))
}

pub(crate) fn list(
    connection: &Connection,
    now: StoreTime,
    prefix: &str,
    after: Option<&Name>,
    limit: usize,
) -> rusqlite::Result<Vec<Inspected>> {
    let from = after.map_or("", Name::as_str).max(before(prefix));
    let mut statement = connection.prepare_cached(TAKEN_AFTER)?;
    let mut found = statement.query(params![from, signed(now.as_nanos())])?;
    let mut list = Vec::new();
    while let (true, Some(row)) = (list.len() < limit, found.next()?) {
        let text = row.get_ref(0)?.as_str()?;
        if !text.starts_with(prefix) {
            if text > prefix { break } else { continue }
        }
        // The names in the file were checked before they were written.
        let Ok(name) = Name::new(text) else { continue };
        list.push(inspect(connection, now, &name)?);
    }
    Ok(list)
}

/// The clients that hold it.
fn holders(record: &Record) -> SmallVec<[ClientId; 1]> {
    let mut clients: SmallVec<[ClientId; 1]> =
        record.rows.iter().flat_map(|row| row.holds.iter().map(|hold| hold.request.client)).collect();
    clients.sort_unstable_by_key(|client| client.0);
    clients.dedup();
    clients
}

/// A text that sorts before everything with this prefix, and not far before.
fn before(prefix: &str) -> &str {
    match prefix.char_indices().last() {
        Some((at, _)) => &prefix[..at],
        None => "",
    }
}

fn map<T: Send + 'static, R: Send + 'static>(call: Call<Reply<T>>, change: fn(T) -> R) -> Call<Reply<R>> {
    let changed = move |reply: Reply<T>| reply.map(|Answered { at, result }| Answered { at, result: change(result) });
    match call {
        Call::Done(reply) => Call::Done(reply.map(changed)),
        Call::Pending(future) => Call::pending(async move { changed(future.await) }),
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("label", &self.label).finish_non_exhaustive()
    }
}
