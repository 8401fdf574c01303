//! Opens the file: creates a missing one, refuses a foreign or newer one unchanged, and migrates an older one.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::fence::FENCE_UNIT_NANOS;
use leasehold_core::{Error, Fence, StoreTime};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::boot::Boot;
use crate::database::{self, CEILING_AHEAD, Epoch};
use crate::directory::{Rights, Site, identity, kind, open_to_list};
use crate::error::{self, Fault};
use crate::file_system;
use crate::folder::{CreationLock, Folder, unique};
use crate::rows::{signed, unsigned};
use crate::{registry, schema, vfs};

/// Marks the file as ours, in SQLite's header.
const APPLICATION_ID: i64 = 0x6c65_6173;
/// The steps that create the tables. A file's format is the number of steps that were applied.
pub(crate) const MIGRATIONS: &[&str] =
    &[include_str!("sql/0001-locks.sql"), include_str!("sql/0002-waiters.sql"), include_str!("sql/0003-left-by.sql")];
/// Number of prepared statements that a connection caches.
const CACHED_STATEMENTS_MAX: usize = 32;
/// The write-ahead log is truncated to this size after a checkpoint.
const LOG_BYTES_MAX: i64 = 4 << 20;
/// Offset of the read and write version in SQLite's header, and their value for a write-ahead log.
const JOURNAL_VERSIONS: std::ops::Range<usize> = 18..20;
const WITH_LOG: u8 = 2;

/// Time limit of a full integrity check.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

const BAD_FENCES: &str = "SELECT name FROM holds WHERE first < 1 OR len < 1 OR first > ?1 - len UNION \
     SELECT name FROM names WHERE last > ?1 LIMIT 5";

/// What exists at the path.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing, or an empty file whose mode says who may use the store.
    Nothing(Option<Box<Stat>>),
    /// A store, with its access rights.
    Ours(Rights),
}

/// The file, open and ready for use.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) folder: Folder,
}

/// Opens the file and makes it ready for use. Waits for a busy file as [`database::set_patience`] says.
pub(crate) fn open(site: &Arc<Site>, create: bool) -> Result<Opened, Error> {
    file_system::check(&site.directory.open, &site.directory.path)?;
    let folder = match probe(site)? {
        Found::Nothing(_) if !create => return Err(error::no_store(&site.path(""))),
        Found::Nothing(empty) => {
            let rights = empty.as_deref().map_or_else(|| site.rights(), |empty| site.rights_of(empty));
            let folder = Folder::enter(site, rights)?;
            let _alone = CreationLock::at(&folder)?;
            if let Found::Nothing(empty) = probe(site)? {
                make(site, &folder, empty.as_deref())?;
            }
            folder
        }
        Found::Ours(rights) => Folder::enter(site, rights)?,
    };
    let connection = opened(site, |vfs| {
        let connection = connect(&site.path(""), vfs)?;
        // The log may differ from the file's own header. Nothing is written until the content of the file is certain.
        let read = connection.unchecked_transaction()?;
        let format = check_format(&read)?;
        schema::check(&read, format)?;
        drop(read);
        if format < latest() {
            migrate(&connection)?;
        }
        settle(&connection)?;
        Ok(connection)
    })?;
    Ok(Opened { connection, folder })
}

/// Lets SQLite open the files of a site. If one of them was refused, the error says why.
fn opened<T>(site: &Arc<Site>, work: impl FnOnce(&std::ffi::CStr) -> Result<T, Fault>) -> Result<T, Error> {
    let (opened, refused) = vfs::within(site, work)?;
    opened.map_err(|fault| refused.unwrap_or_else(|| fault.into_error()))
}

/// Refuses a file that is foreign or newer; returns its format.
fn check_format(connection: &Connection) -> Result<i64, Fault> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION_ID, format) if format > latest() => Err(error::newer(format, latest()).into()),
        (APPLICATION_ID, format) if format > 0 => Ok(format),
        _ => Err(error::not_ours().into()),
    }
}

fn latest() -> i64 {
    signed(MIGRATIONS.len() as u64)
}

/// Inspects the file without touching it: no lock, no journal, and it is closed in the way that keeps SQLite's locks on
/// it.
pub(crate) fn probe(site: &Arc<Site>) -> Result<Found, Error> {
    let path = site.path("");
    let found = site.stat("").map_err(|fault| error::io_failed("cannot read the file", &path, fault.into()))?;
    let Some(found) = found else { return Ok(Found::Nothing(None)) };
    match kind(&found) {
        FileType::Directory => return Err(error::is_a_folder(&path)),
        FileType::RegularFile => {}
        _ => return Err(error::no_file(&path)),
    }
    if file_system::is_mount_point(&path) {
        return Err(error::mounted_alone(&path));
    }
    site.check_owner("", &found)?;
    if found.st_nlink > 1 {
        return Err(error::several_names(&path));
    }
    if found.st_size == 0 {
        site.check_creator(&found)?;
        return Ok(Found::Nothing(Some(Box::new(found))));
    }
    opened(site, |vfs| {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let flags = flags | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let header = match Connection::open_with_flags_and_vfs(uri(&path), flags, vfs) {
            Ok(connection) => check_format(&connection),
            Err(fault) => Err(fault.into()),
        };
        header.map_err(|fault| match fault {
            Fault::NoDatabase => error::not_ours().into(),
            fault => fault,
        })
    })?;
    Ok(Found::Ours(site.rights_of(&found)))
}

/// Result of SQLite's quick check: "ok", or the first damage.
pub(crate) fn quick_check(site: &Arc<Site>) -> Result<String, Error> {
    database::set_patience(CHECK_LIMIT);
    opened(site, |vfs| {
        let connection = connect_to_read(&site.path(""), vfs)?;
        Ok(connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?)
    })
}

/// Some of the names whose fences this store never granted.
pub(crate) fn bad_fences(site: &Arc<Site>, boot: &Boot) -> Result<Vec<String>, Error> {
    database::set_patience(CHECK_LIMIT);
    read(site, |connection| {
        let ClockSource::Ours(epoch) = clock_source(connection, boot)? else { return Ok(Vec::new()) };
        let mut odd = connection.prepare(BAD_FENCES)?;
        let names = odd.query_map([signed(database::furthest(epoch.now()).get())], |row| row.get::<_, String>(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    })
}

/// Reads a file of this version's format, and writes nothing.
pub(crate) fn read<T>(site: &Arc<Site>, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Error> {
    file_system::check(&site.directory.open, &site.directory.path)?;
    opened(site, |vfs| {
        let connection = connect_to_read(&site.path(""), vfs)?;
        match check_format(&connection)? {
            format if format < latest() => return Err(error::older(format, latest()).into()),
            format => schema::check(&connection, format)?,
        }
        work(&connection)
    })
}

fn connect_to_read(path: &Path, vfs: &std::ffi::CStr) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags_and_vfs(path, flags | OpenFlags::SQLITE_OPEN_EXRESCODE, vfs)?;
    connection.busy_handler(Some(database::should_retry))?;
    connection.progress_handler(database::INSTRUCTIONS_PER_CHECK, Some(database::runs_too_long))?;
    schema::distrust(&connection)?;
    Ok(connection)
}

fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri + "?immutable=1"
}

/// Creates the file where no other user can reach it, complete and synced, and moves it into place. Only under
/// [`CreationLock`], where there is no file or an empty one.
fn make(site: &Site, folder: &Folder, empty: Option<&Stat>) -> Result<(), Error> {
    let cannot = |fault: std::io::Error| error::io_failed("cannot create the file", &site.path(""), fault);
    let left = site.leftovers()?;
    let content = content().map_err(|fault| Fault::from(fault).into_error())?;
    let unfinished = folder.begin(unique()).map_err(cannot)?;
    let (directory, temp_name) = unfinished.location();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut new: File =
        openat(directory, temp_name, flags, Mode::RUSR | Mode::WUSR).map_err(|fault| cannot(fault.into()))?.into();
    new.write_all(&content).map_err(cannot)?;
    empty.map_or_else(|| site.rights(), |empty| site.rights_of(empty)).give(&new).map_err(cannot)?;
    new.sync_all().map_err(cannot)?;
    // Left by a file that was removed or emptied: they must not be taken for this one's.
    for suffix in left {
        match unlinkat(&site.directory.open, site.beside(suffix), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(fault) => return Err(error::io_failed("cannot create the file", &site.path(suffix), fault.into())),
        }
    }
    move_to(site, directory, temp_name, empty).map_err(|fault| cannot(fault.into()))?;
    match open_to_list(site.directory.open.as_fd(), std::ffi::OsStr::new(".")) {
        Ok(open) => File::from(open).sync_all().map_err(cannot),
        // A user who may not read the directory may not sync it.
        Err(Errno::ACCESS) => Ok(()),
        Err(fault) => Err(cannot(fault.into())),
    }
}

/// Replaces nothing, or the empty file that was found there.
fn move_to(site: &Site, from: impl AsFd, temp_name: &str, empty: Option<&Stat>) -> Result<(), Errno> {
    let there = site.stat("")?;
    if there.as_ref().map(identity) != empty.map(identity) || there.is_some_and(|there| there.st_size > 0) {
        return Err(Errno::EXIST);
    }
    if empty.is_none() {
        match renameat_with(&from, temp_name, &site.directory.open, &site.name, RenameFlags::NOREPLACE) {
            // Not every file system supports it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            moved => return moved,
        }
    }
    renameat(from, temp_name, &site.directory.open, &site.name)
}

/// The bytes of a new file. It is built in memory, so SQLite opens no file for it.
fn content() -> rusqlite::Result<Vec<u8>> {
    #[allow(unused_mut, reason = "rusqlite wants it from 0.41 on")]
    let mut connection = Connection::open_in_memory()?;
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; BEGIN EXCLUSIVE")?;
    for step in MIGRATIONS {
        connection.execute_batch(step)?;
    }
    connection.execute("INSERT INTO meta VALUES (1, 0, '', '', 0, 0, '')", [])?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", latest())?;
    connection.execute_batch("COMMIT")?;
    let mut content = connection.serialize("main")?.to_vec();
    if let Some(versions) = content.get_mut(JOURNAL_VERSIONS) {
        versions.fill(WITH_LOG);
    }
    Ok(content)
}

fn connect(path: &Path, vfs: &std::ffi::CStr) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags_and_vfs(path, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW, vfs)?;
    connection.busy_handler(Some(database::should_retry))?;
    connection.progress_handler(database::INSTRUCTIONS_PER_CHECK, Some(database::runs_too_long))?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS_MAX);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    schema::distrust(&connection)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    Ok(connection)
}

/// Migrates an older file in one step: all or nothing.
fn migrate(connection: &Connection) -> Result<(), Fault> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done: Result<(), Fault> = (|| {
        // Another process may have done it first.
        let format = check_format(connection)?;
        for step in MIGRATIONS.iter().skip(usize::try_from(format).unwrap_or(usize::MAX)) {
            connection.execute_batch(step)?;
        }
        connection.pragma_update(None, "user_version", latest())?;
        Ok(connection.execute_batch("COMMIT")?)
    })();
    if done.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    done
}

fn settle(connection: &Connection) -> Result<(), Fault> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(error::wrong_journal(&mode).into());
    }
    if connection.is_readonly("main")? {
        return Err(error::read_only().into());
    }
    Ok(())
}

/// Switches the file to the clock of this boot, if it is on another.
///
/// After a restart of the same machine every holder is dead. Holders on another machine may be alive, so each gets its
/// whole lease.
///
/// `floor` is the latest time that this process saw in a file at this path.
pub(crate) fn enter(connection: &Connection, boot: &Boot, folder: &Folder, floor: StoreTime) -> Result<Epoch, Fault> {
    if let Some(epoch) = epoch_of(connection, boot)? {
        return Ok(epoch);
    }
    synced(connection, |connection| {
        if epoch_of(connection, boot)?.is_some() {
            return Ok(());
        }
        let (known, ceiling): (String, i64) =
            connection.query_row("SELECT machine, ceiling FROM meta", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let uptime = Duration::from_nanos(leasehold_clock::now().as_nanos());
        let ceiling = StoreTime::from_nanos(unsigned(ceiling).saturating_add(1).saturating_mul(FENCE_UNIT_NANOS));
        let now = boot.wall().max(ceiling).max(floor).max(StoreTime::default() + uptime);
        if !boot.is_same(&known) {
            inherit(connection, now, ceiling - CEILING_AHEAD)?;
        } else if registry::any_alive(folder) {
            return Err(error::not_a_new_boot().into());
        } else {
            connection.execute("DELETE FROM holds", [])?;
        }
        connection.execute("DELETE FROM waiters", [])?;
        let base = signed((now - uptime).as_nanos());
        let entered = params![boot.boot_id, boot.machine_id, base, signed(Fence::at(now + CEILING_AHEAD).get())];
        connection
            .execute("UPDATE meta SET epoch = epoch + 1, boot = ?1, machine = ?2, base = ?3, ceiling = ?4", entered)?;
        Ok(())
    })?;
    epoch_of(connection, boot)?.ok_or_else(|| error::taken_over().into())
}

/// Takes over the leases of another machine. Its clock had reached at least `reached`: what ended before that has
/// ended, and all other leases get their whole time from now.
fn inherit(connection: &Connection, now: StoreTime, reached: StoreTime) -> rusqlite::Result<()> {
    let (now, reached) = (signed(now.as_nanos()), signed(reached.as_nanos()));
    connection.execute("DELETE FROM holds WHERE given = 0 AND expires <= ?1", [reached])?;
    connection.execute("UPDATE holds SET expires = ?1 + lease, kept = 0 WHERE given = 0", [now])?;
    let cooldown = "UPDATE names SET lingers_until = ?1 + lingers_until - ?2 WHERE lingers_until > ?2";
    connection.execute(cooldown, [now, reached]).map(drop)
}

/// The clock that the file uses.
pub(crate) enum ClockSource {
    /// That of this boot.
    Ours(Epoch),
    /// That of an earlier boot of this machine: every holder is dead.
    BeforeRestart,
    OtherMachine,
}

pub(crate) fn clock_source(connection: &Connection, boot: &Boot) -> Result<ClockSource, Fault> {
    let read = |row: &rusqlite::Row<'_>| {
        let epoch = Epoch { number: row.get(0)?, base: StoreTime::from_nanos(unsigned(row.get(1)?)) };
        Ok((epoch, row.get::<_, String>(2)?, row.get::<_, String>(3)?, Fence::new(unsigned(row.get(4)?))))
    };
    let (epoch, known_boot, known, ceiling) =
        connection.query_row("SELECT epoch, base, boot, machine, ceiling FROM meta", [], read)?;
    if known_boot != boot.boot_id {
        return Ok(if boot.is_same(&known) { ClockSource::BeforeRestart } else { ClockSource::OtherMachine });
    }
    // A raise sets it to twice this above a fence, and the fence may be as far ahead itself.
    if ceiling > database::furthest(epoch.now() + CEILING_AHEAD * 3) {
        return Err(error::far_ceiling().into());
    }
    Ok(ClockSource::Ours(epoch))
}

fn epoch_of(connection: &Connection, boot: &Boot) -> Result<Option<Epoch>, Fault> {
    Ok(match clock_source(connection, boot)? {
        ClockSource::Ours(epoch) => Some(epoch),
        ClockSource::BeforeRestart | ClockSource::OtherMachine => None,
    })
}

/// A write that is on disk when this returns.
pub(crate) fn synced(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<(), Fault>,
) -> Result<(), Fault> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let done = (|| {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        work(connection)?;
        connection.execute_batch("COMMIT").map_err(error::at_commit)
    })();
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    done
}
