//! One connection to the file, and one atomic write at a time, by the clock of the file.
//!
//! While a connection may be open, the file is only ever opened through SQLite: closing any other descriptor of it
//! would drop the locks of the whole process.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::fence::FENCE_AHEAD_MAX;
use leasehold_core::reference::{Hints, Record, Reference};
use leasehold_core::{ClientId, Error, Fence, Moment, Name, StoreTime};
use rusqlite::Connection;
use smallvec::SmallVec;

use rustix::fs::{AtFlags, CWD, statat};

use crate::boot::Boot;
use crate::config::Config;
use crate::directory::{self, Site};
use crate::error::{self, Fault};
use crate::open;
use crate::rows::{self, Loaded, signed};
use crate::sweeper::Sweeper;

/// Immediate retries on a busy file before the first pause.
const BUSY_YIELDS: i32 = 50;
/// Pause between two retries on a busy file.
const BUSY_PAUSE: Duration = Duration::from_micros(50);
/// How far the fence ceiling is raised ahead of the clock. Each raise costs a disk sync.
pub(crate) const CEILING_AHEAD: Duration = Duration::from_secs(60);
/// How long a waiter's entry lasts without being renewed. A process that ends is noticed and removed when it would be
/// notified. A stopped process costs the other waiters a recheck instead of a hint until its entry expires.
const WAITER_TTL: Duration = Duration::from_secs(22);
/// Attempts to open a file that was just created, or replaced in between.
const OPEN_TRIES_MAX: usize = 4;
/// How long statements may run beyond the patience for a busy file. Ours take milliseconds.
const STATEMENT_LIMIT: Duration = Duration::from_secs(3);
/// SQLite instructions between two calls of the progress handler.
pub(crate) const INSTRUCTIONS_PER_CHECK: i32 = 10_000;
const META: &str = "SELECT epoch FROM meta";

thread_local! {
    /// When this thread gives up on a busy file.
    static GIVE_UP: Cell<Moment> = const { Cell::new(Moment::from_nanos(0)) };
}

/// SQLite's busy handler: whether to try again.
pub(crate) fn should_retry(tries: i32) -> bool {
    if leasehold_clock::now() >= GIVE_UP.get() {
        return false;
    }
    if tries < BUSY_YIELDS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(BUSY_PAUSE);
    }
    true
}

/// Sets how long this thread waits for a busy file, from now.
pub(crate) fn set_patience(patience: Duration) {
    GIVE_UP.set(leasehold_clock::now() + patience);
}

/// SQLite's progress handler: whether a statement on this thread has run for too long. A user who can write the file
/// can turn a few of its pages into a tree that never ends.
pub(crate) fn runs_too_long() -> bool {
    leasehold_clock::now() >= GIVE_UP.get() + STATEMENT_LIMIT
}

/// How much longer this thread waits for a busy file.
pub(crate) fn patience_left() -> Duration {
    GIVE_UP.get().since(leasehold_clock::now())
}

/// The boot whose clock the file uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    pub(crate) number: i64,
    /// Store time at which the clock of this boot was zero.
    pub(crate) base: StoreTime,
}

impl Epoch {
    pub(crate) fn now(&self) -> StoreTime {
        self.base + Duration::from_nanos(leasehold_clock::now().as_nanos())
    }
}

/// The file's clock, readable without opening the file.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> StoreTime {
        Epoch { number: 0, base: StoreTime::from_nanos(self.0.load(Ordering::Acquire)) }.now()
    }
}

/// Device and inode of the directory, the file, its log and its index. They differ if any of them was replaced.
#[derive(PartialEq, Eq)]
struct FileIdentity {
    directory: Option<(u64, u64)>,
    file: Option<(u64, u64)>,
    beside: [Option<(u64, u64)>; 2],
}

impl FileIdentity {
    fn of(site: &Site) -> Self {
        let directory = statat(CWD, &site.directory.path, AtFlags::SYMLINK_NOFOLLOW).ok();
        let identity = |suffix| site.stat(suffix).ok().flatten().as_ref().map(directory::identity);
        Self {
            directory: directory.as_ref().map(directory::identity),
            file: identity(""),
            beside: [identity("-wal"), identity("-shm")],
        }
    }
}

pub(crate) struct Database {
    connection: Connection,
    config: Config,
    site: Arc<Site>,
    boot: Boot,
    standing: FileIdentity,
    epoch: Epoch,
    clock: Arc<Clock>,
    reference: Reference,
    sweeper: Sweeper,
}

/// A write in progress: its input, and the work that it leaves for after the commit.
pub(crate) struct Session<'a> {
    connection: &'a Connection,
    epoch: Epoch,
    pub(crate) now: StoreTime,
    /// The reference store; empty between two writes.
    pub(crate) reference: &'a mut Reference,
    /// Waiters to notify after the commit.
    pub(crate) hints: Hints,
    /// Clients that released something that others wait for.
    pub(crate) given_back: SmallVec<[ClientId; 1]>,
}

/// Result of a write.
pub(crate) struct Written<T> {
    pub(crate) at: StoreTime,
    pub(crate) result: T,
    pub(crate) hints: Hints,
    pub(crate) given_back: SmallVec<[ClientId; 1]>,
}

impl Database {
    /// Opens the file. Its clock starts above `floor`, the latest time that this process saw in a file at this path.
    pub(crate) fn open(config: Config, boot: Boot, patience: Duration, floor: StoreTime) -> Result<Self, Error> {
        set_patience(patience);
        for _ in 0..OPEN_TRIES_MAX {
            let site = Site::find(&config.path, config.create)?.ok_or_else(|| error::no_store(&config.path))?;
            let before = site.stat("").ok().flatten().as_ref().map(directory::identity);
            let opened = open::open(&site, config.create)?;
            let connection = opened.connection;
            let epoch = open::enter(&connection, &boot, &opened.folder, floor).map_err(Fault::into_error)?;
            let standing = FileIdentity::of(&site);
            // If the files are the same before and after, they are the ones that were opened. A new file is opened once
            // more.
            if before.is_some() && before == standing.file {
                let reference = rules();
                let clock = Arc::new(Clock(AtomicU64::new(epoch.base.as_nanos())));
                let sweeper = Sweeper::default();
                return Ok(Self { connection, config, site, boot, standing, epoch, clock, reference, sweeper });
            }
        }
        Err(error::replaced())
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        self.clock.clone()
    }

    /// One atomic step. `work` may run more than once, each time on the current file; only the last run counts.
    pub(crate) fn write<T>(
        &mut self,
        patience: Duration,
        work: &dyn Fn(&mut Session<'_>) -> Result<T, Fault>,
    ) -> Result<Written<T>, Fault> {
        self.reopen_if_replaced(patience)?;
        set_patience(patience);
        let done = match self.attempt(work) {
            Err(Fault::Ceiling(needed)) => {
                self.raise_ceiling(needed)?;
                self.attempt(work)
            }
            other => other,
        };
        if done.is_ok() {
            self.sweeper.step(&self.connection, self.epoch);
        }
        done
    }

    fn attempt<T>(&mut self, work: &dyn Fn(&mut Session<'_>) -> Result<T, Fault>) -> Result<Written<T>, Fault> {
        let Self { connection, epoch, reference, .. } = self;
        if !connection.is_autocommit() {
            // The last write panicked halfway.
            connection.execute_batch("ROLLBACK")?;
        }
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = in_transaction(connection, *epoch, reference, work);
        if done.is_err() {
            *reference = rules();
        }
        if done.is_err() && !connection.is_autocommit() {
            // Fails only if there is no transaction to roll back.
            let _ = connection.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.execute([]));
        }
        done
    }

    /// Reads a consistent snapshot, without a write.
    pub(crate) fn read<T>(
        &mut self,
        patience: Duration,
        work: impl Fn(&Connection, StoreTime) -> rusqlite::Result<T>,
    ) -> Result<(StoreTime, T), Fault> {
        self.reopen_if_replaced(patience)?;
        set_patience(patience);
        let transaction = self.connection.unchecked_transaction()?;
        let epoch: i64 = transaction.prepare_cached(META)?.query_row([], |row| row.get(0))?;
        if epoch != self.epoch.number {
            return Err(error::taken_over().into());
        }
        let now = self.epoch.now();
        let result = work(&transaction, now)?;
        Ok((now, result))
    }

    /// Reads one name for a waiting client in one statement, without the other waiters.
    pub(crate) fn peek(
        &mut self,
        patience: Duration,
        client: ClientId,
        name: &Name,
    ) -> Result<(StoreTime, Record), Fault> {
        self.reopen_if_replaced(patience)?;
        set_patience(patience);
        let (meta, record) = rows::load_for(&self.connection, client, name)?;
        if meta.epoch != self.epoch.number {
            return Err(error::taken_over().into());
        }
        Ok((self.epoch.now(), record))
    }

    /// Writes a higher ceiling to disk and syncs it. A fence below the ceiling is never granted twice, even after power
    /// loss.
    fn raise_ceiling(&self, needed: Fence) -> Result<(), Fault> {
        let ceiling = Fence::at(self.epoch.now() + CEILING_AHEAD)
            .max(needed.plus(Fence::at(StoreTime::default() + CEILING_AHEAD).get()));
        open::synced(&self.connection, |connection| {
            connection.execute("UPDATE meta SET ceiling = max(ceiling, ?1)", [signed(ceiling.get())])?;
            Ok(())
        })
    }

    /// Makes sure that the open file is the one at the path. A file that was removed or replaced is treated like a
    /// server that came back empty: its locks are lost, and calls go to the file that is there now.
    fn reopen_if_replaced(&mut self, patience: Duration) -> Result<(), Fault> {
        let standing = FileIdentity::of(&self.site);
        if standing == self.standing {
            return Ok(());
        }
        if (standing.directory, standing.file) == (self.standing.directory, self.standing.file) {
            // Every connection of this process to that file uses the old log, and so would a new one.
            return Err(error::log_removed().into());
        }
        let (clock, floor) = (self.clock.clone(), self.epoch.now() + CEILING_AHEAD);
        *self = Self { clock, ..Self::open(self.config.clone(), self.boot.clone(), patience, floor)? };
        self.clock.0.store(self.epoch.base.as_nanos(), Ordering::Release);
        Ok(())
    }
}

/// The reference store, before a record is loaded into it.
fn rules() -> Reference {
    Reference::new(0, Duration::ZERO).enlisting_for(WAITER_TTL)
}

fn in_transaction<T>(
    connection: &Connection,
    epoch: Epoch,
    reference: &mut Reference,
    work: &dyn Fn(&mut Session<'_>) -> Result<T, Fault>,
) -> Result<Written<T>, Fault> {
    // The clock is read under the file's write lock: a step that waited for it must not act on an old time.
    let now = epoch.now();
    let mut session = Session { connection, epoch, now, reference, hints: Hints::new(), given_back: SmallVec::new() };
    let result = work(&mut session)?;
    let Session { hints, given_back, .. } = session;
    connection.prepare_cached("COMMIT")?.execute([]).map_err(error::at_commit)?;
    Ok(Written { at: now, result, hints, given_back })
}

impl<'a> Session<'a> {
    /// The connection, once it is certain that the file still uses this boot's clock.
    pub(crate) fn file(&self) -> Result<&'a Connection, Fault> {
        let epoch: i64 = self.connection.prepare_cached(META)?.query_row([], |row| row.get(0))?;
        self.check(epoch)?;
        Ok(self.connection)
    }

    fn check(&self, epoch: i64) -> Result<(), Fault> {
        if epoch == self.epoch.number { Ok(()) } else { Err(error::taken_over().into()) }
    }

    /// Loads the record of a name into the reference store.
    pub(crate) fn load(&mut self, name: &Name) -> Result<Before, Fault> {
        let (meta, loaded) = rows::load(self.connection, name)?;
        self.check(meta.epoch)?;
        self.reference.put(name.clone(), loaded.record.clone());
        Ok(Before { loaded, ceiling: meta.ceiling })
    }

    /// Takes the record of a name back from the reference store, and writes what changed.
    pub(crate) fn save(&mut self, name: &Name, before: &Before) -> Result<(), Fault> {
        let after = self.reference.take(name).unwrap_or_default();
        if after.last >= before.ceiling && after.last > before.record().last {
            return Err(Fault::Ceiling(after.last));
        }
        // Waiters follow the holders that they found. If the holders or their leases changed, the waiters must ask
        // again.
        let (then, now) = (kept_by(before.record()), kept_by(&after));
        if then != now && !(before.record().waiters.is_empty() && after.waiters.is_empty()) {
            self.given_back.extend(then);
        }
        rows::save(self.connection, self.now, name, &before.loaded, &after)?;
        Ok(())
    }
}

/// A record as it was before the reference store changed it.
pub(crate) struct Before {
    loaded: Loaded,
    ceiling: Fence,
}

impl Before {
    pub(crate) fn record(&self) -> &Record {
        &self.loaded.record
    }
}

/// Refuses a record with fences that this store cannot have granted: the next grant would continue from them.
pub(crate) fn check_fences(name: &Name, record: &Record, now: StoreTime) -> Result<(), Error> {
    if record.rows.iter().any(|row| row.block.first == Fence::NONE || row.block.len == 0) {
        return Err(error::zero_fence(name));
    }
    let last = record.rows.iter().map(|row| row.block.last()).chain([record.last]).max().unwrap_or_default();
    check_fence(name, last, now)
}

/// The largest plausible fence.
pub(crate) fn furthest(now: StoreTime) -> Fence {
    Fence::at(now).plus(FENCE_AHEAD_MAX)
}

/// Refuses a fence that is too far ahead of the clock.
pub(crate) fn check_fence(name: &Name, fence: Fence, now: StoreTime) -> Result<(), Error> {
    if fence > furthest(now) { Err(error::far_fence(name, fence)) } else { Ok(()) }
}

/// The clients whose processes keep it.
pub(crate) fn kept_by(record: &Record) -> SmallVec<[ClientId; 1]> {
    let kept = record.rows.iter().filter(|row| row.kept);
    kept.flat_map(|row| row.holds.iter().map(|hold| hold.request.client)).collect()
}
