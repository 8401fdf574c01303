//! One connection to the file, and one write to it: inline, atomic, by the clock of the file.
//!
//! It never opens the file except through SQLite while a connection may be open: closing any other descriptor of it would end the
//! locks of the whole process.

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

use crate::config::Config;
use crate::directory::{self, Site};
use crate::error::{self, Fault};
use crate::machine::Machine;
use crate::open;
use crate::rows::{self, Loaded, signed};
use crate::sweeper::Sweeper;

/// How many times a busy file is looked at again at once, before pauses.
const YIELDS: i32 = 50;
/// The pause between two looks at a busy file.
const PAUSE: Duration = Duration::from_micros(50);
/// How far the ceiling of fences is raised ahead of the clock: how often that costs a sync of the disk.
pub(crate) const AHEAD: Duration = Duration::from_secs(60);
/// How long a waiting client stays on the list without writing that it still waits. Those that end are found out and taken off by
/// whoever would tell them; one that is stopped costs the others a recheck instead of a hint for so long.
const ENLISTED_FOR: Duration = Duration::from_secs(22);
/// How many times a file that was replaced meanwhile, or just made, is opened.
const OPENINGS: usize = 4;
/// How long statements may run beyond the time that a busy file is given: ours take milliseconds.
const WORK: Duration = Duration::from_secs(3);
/// How many instructions of SQLite's are run before it asks again whether to go on.
pub(crate) const INSTRUCTIONS: i32 = 10_000;
const META: &str = "SELECT epoch FROM meta";

thread_local! {
    /// When this thread gives up on a busy file.
    static GIVE_UP: Cell<Moment> = const { Cell::new(Moment::from_nanos(0)) };
}

/// SQLite asks here whether to try a busy file again.
pub(crate) fn is_worth_a_try(tries: i32) -> bool {
    if leasehold_clock::now() >= GIVE_UP.get() {
        return false;
    }
    if tries < YIELDS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(PAUSE);
    }
    true
}

/// Gives a busy file so much time, in this thread, from now.
pub(crate) fn give(patience: Duration) {
    GIVE_UP.set(leasehold_clock::now() + patience);
}

/// Whether a statement has run for too long, in this thread: SQLite asks now and then. Somebody who can write the file can make a few
/// pages of it a tree that takes for ever to walk.
pub(crate) fn runs_too_long() -> bool {
    leasehold_clock::now() >= GIVE_UP.get() + WORK
}

/// How long this thread waits for a busy file still.
pub(crate) fn patience_left() -> Duration {
    GIVE_UP.get().since(leasehold_clock::now())
}

/// Which boot's clock the file goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    pub(crate) number: i64,
    /// The store's time where the clock of this boot read zero.
    pub(crate) base: StoreTime,
}

impl Epoch {
    pub(crate) fn now(&self) -> StoreTime {
        self.base + Duration::from_nanos(leasehold_clock::now().as_nanos())
    }
}

/// The file's clock, to be read without the file.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> StoreTime {
        Epoch { number: 0, base: StoreTime::from_nanos(self.0.load(Ordering::Acquire)) }.now()
    }
}

/// The directory at the path, the file in it and what SQLite keeps beside it, by device and number: others may come to stand there.
#[derive(PartialEq, Eq)]
struct Standing {
    directory: Option<(u64, u64)>,
    file: Option<(u64, u64)>,
    beside: [Option<(u64, u64)>; 2],
}

impl Standing {
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
    machine: Machine,
    standing: Standing,
    epoch: Epoch,
    clock: Arc<Clock>,
    reference: Reference,
    sweeper: Sweeper,
}

/// A write under way: what it sees and what it leaves to be done after it.
pub(crate) struct Session<'a> {
    connection: &'a Connection,
    epoch: Epoch,
    pub(crate) now: StoreTime,
    /// The rules; empty between two writes.
    pub(crate) reference: &'a mut Reference,
    /// Who is to be told once it is written.
    pub(crate) hints: Hints,
    /// Whose holds others waited behind until now.
    pub(crate) given_back: SmallVec<[ClientId; 1]>,
}

/// What a write came to.
pub(crate) struct Done<T> {
    pub(crate) at: StoreTime,
    pub(crate) result: T,
    pub(crate) hints: Hints,
    pub(crate) given_back: SmallVec<[ClientId; 1]>,
}

impl Database {
    /// Opens the file. Its clock starts above `floor`, where this process knows that a file there had reached that.
    pub(crate) fn open(config: Config, machine: Machine, patience: Duration, floor: StoreTime) -> Result<Self, Error> {
        give(patience);
        for _ in 0..OPENINGS {
            let site = Site::find(&config.path, config.create)?.ok_or_else(|| error::no_store(&config.path))?;
            let before = site.stat("").ok().flatten().as_ref().map(directory::identity);
            let opened = open::open(&site, config.create)?;
            let connection = opened.connection;
            let epoch = open::enter(&connection, &machine, &opened.folder, floor).map_err(Fault::into_error)?;
            let standing = Standing::of(&site);
            // What stood there before and after is what was opened in between. One that was just made is opened once more.
            if before.is_some() && before == standing.file {
                let reference = rules();
                let clock = Arc::new(Clock(AtomicU64::new(epoch.base.as_nanos())));
                let sweeper = Sweeper::default();
                return Ok(Self { connection, config, site, machine, standing, epoch, clock, reference, sweeper });
            }
        }
        Err(error::replaced())
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        self.clock.clone()
    }

    /// One atomic step. `work` may be run more than once, each time on the file as it then is; only the last counts.
    pub(crate) fn write<T>(
        &mut self,
        patience: Duration,
        work: &dyn Fn(&mut Session<'_>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Fault> {
        self.stand_on_the_file(patience)?;
        give(patience);
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

    fn attempt<T>(&mut self, work: &dyn Fn(&mut Session<'_>) -> Result<T, Fault>) -> Result<Done<T>, Fault> {
        let Self { connection, epoch, reference, .. } = self;
        if !connection.is_autocommit() {
            // Something panicked in the middle of the last write.
            connection.execute_batch("ROLLBACK")?;
        }
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = in_transaction(connection, *epoch, reference, work);
        if done.is_err() {
            *reference = rules();
        }
        if done.is_err() && !connection.is_autocommit() {
            // It only fails where there is nothing to roll back.
            let _ = connection.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.execute([]));
        }
        done
    }

    /// Reads without a write: what is seen is as of one moment.
    pub(crate) fn read<T>(
        &mut self,
        patience: Duration,
        work: impl Fn(&Connection, StoreTime) -> rusqlite::Result<T>,
    ) -> Result<(StoreTime, T), Fault> {
        self.stand_on_the_file(patience)?;
        give(patience);
        let transaction = self.connection.unchecked_transaction()?;
        let epoch: i64 = transaction.prepare_cached(META)?.query_row([], |row| row.get(0))?;
        if epoch != self.epoch.number {
            return Err(error::taken_over().into());
        }
        let now = self.epoch.now();
        let result = work(&transaction, now)?;
        Ok((now, result))
    }

    /// Reads one name, in one statement, for a client that waits: without the others who wait.
    pub(crate) fn peek(
        &mut self,
        patience: Duration,
        client: ClientId,
        name: &Name,
    ) -> Result<(StoreTime, Record), Fault> {
        self.stand_on_the_file(patience)?;
        give(patience);
        let (meta, record) = rows::load_for(&self.connection, client, name)?;
        if meta.epoch != self.epoch.number {
            return Err(error::taken_over().into());
        }
        Ok((self.epoch.now(), record))
    }

    /// Puts a higher ceiling on the disk, with a sync: a fence below it never comes again, whatever the power does.
    fn raise_ceiling(&self, needed: Fence) -> Result<(), Fault> {
        let ceiling =
            Fence::at(self.epoch.now() + AHEAD).max(needed.plus(Fence::at(StoreTime::default() + AHEAD).get()));
        open::synced(&self.connection, |connection| {
            connection.execute("UPDATE meta SET ceiling = max(ceiling, ?1)", [signed(ceiling.get())])?;
            Ok(())
        })
    }

    /// Makes sure that the open file is the one at the path. A file that was removed or replaced is like a server that came back
    /// empty: what was held there is lost, and what is asked now is asked of the file that stands there.
    fn stand_on_the_file(&mut self, patience: Duration) -> Result<(), Fault> {
        let standing = Standing::of(&self.site);
        if standing == self.standing {
            return Ok(());
        }
        if (standing.directory, standing.file) == (self.standing.directory, self.standing.file) {
            // Every connection of this process to that file goes by the old log, as would a new one.
            return Err(error::log_removed().into());
        }
        let (clock, floor) = (self.clock.clone(), self.epoch.now() + AHEAD);
        *self = Self { clock, ..Self::open(self.config.clone(), self.machine.clone(), patience, floor)? };
        self.clock.0.store(self.epoch.base.as_nanos(), Ordering::Release);
        Ok(())
    }
}

/// The rules, before a name is handed to them.
fn rules() -> Reference {
    Reference::new(0, Duration::ZERO).enlisting_for(ENLISTED_FOR)
}

fn in_transaction<T>(
    connection: &Connection,
    epoch: Epoch,
    reference: &mut Reference,
    work: &dyn Fn(&mut Session<'_>) -> Result<T, Fault>,
) -> Result<Done<T>, Fault> {
    // The clock is read under the file's write lock: a step that waited for it must not act on an old time.
    let now = epoch.now();
    let mut session = Session { connection, epoch, now, reference, hints: Hints::new(), given_back: SmallVec::new() };
    let result = work(&mut session)?;
    let Session { hints, given_back, .. } = session;
    connection.prepare_cached("COMMIT")?.execute([]).map_err(error::at_commit)?;
    Ok(Done { at: now, result, hints, given_back })
}

impl<'a> Session<'a> {
    /// The file itself, once it is certain that it still goes by this boot's clock.
    pub(crate) fn file(&self) -> Result<&'a Connection, Fault> {
        let epoch: i64 = self.connection.prepare_cached(META)?.query_row([], |row| row.get(0))?;
        self.check(epoch)?;
        Ok(self.connection)
    }

    fn check(&self, epoch: i64) -> Result<(), Fault> {
        if epoch == self.epoch.number { Ok(()) } else { Err(error::taken_over().into()) }
    }

    /// Hands the record of a name to the rules.
    pub(crate) fn load(&mut self, name: &Name) -> Result<Before, Fault> {
        let (meta, loaded) = rows::load(self.connection, name)?;
        self.check(meta.epoch)?;
        self.reference.put(name.clone(), loaded.record.clone());
        Ok(Before { loaded, ceiling: meta.ceiling })
    }

    /// Takes the record of a name back from the rules, and writes what they changed.
    pub(crate) fn save(&mut self, name: &Name, before: &Before) -> Result<(), Fault> {
        let after = self.reference.take(name).unwrap_or_default();
        if after.last >= before.ceiling && after.last > before.record().last {
            return Err(Fault::Ceiling(after.last));
        }
        // Those who wait follow whom they found: where these are others now, or end otherwise, they are to ask again.
        let (then, now) = (kept_by(before.record()), kept_by(&after));
        if then != now && !(before.record().waiters.is_empty() && after.waiters.is_empty()) {
            self.given_back.extend(then);
        }
        rows::save(self.connection, self.now, name, &before.loaded, &after)?;
        Ok(())
    }
}

/// A name as it was before the rules changed it.
pub(crate) struct Before {
    loaded: Loaded,
    ceiling: Fence,
}

impl Before {
    pub(crate) fn record(&self) -> &Record {
        &self.loaded.record
    }
}

/// Refuses a record with fences that this store never gave out: a grant after it would carry them on.
pub(crate) fn check_fences(name: &Name, record: &Record, now: StoreTime) -> Result<(), Error> {
    if record.rows.iter().any(|row| row.block.first == Fence::NONE || row.block.len == 0) {
        return Err(error::zero_fence(name));
    }
    let last = record.rows.iter().map(|row| row.block.last()).chain([record.last]).max().unwrap_or_default();
    check_fence(name, last, now)
}

/// The largest fence that is believed.
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
