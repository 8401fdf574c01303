//! Opening the file: made if it is missing, refused and left as it is if it is not ours or newer, migrated if it is older.

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

use crate::database::{self, AHEAD, Epoch};
use crate::directory::{Rights, Site, identity, kind, open_to_list};
use crate::error::{self, Fault};
use crate::folder::{Alone, Folder, unique};
use crate::machine::{self, Machine};
use crate::rows::{signed, unsigned};
use crate::{registry, schema, vfs};

/// Marks the file as ours, in SQLite's header.
const APPLICATION_ID: i64 = 0x6c65_6173;
/// What made the file step by step; its format is how many were done.
pub(crate) const MIGRATIONS: &[&str] =
    &[include_str!("sql/0001-locks.sql"), include_str!("sql/0002-waiters.sql"), include_str!("sql/0003-left-by.sql")];
/// How many statements a connection keeps prepared.
const STATEMENTS: usize = 32;
/// The write-ahead log is cut back to this size when it has been copied into the file.
const LOG_BYTES: i64 = 4 << 20;
/// Where SQLite's header says how the file is read and written, and the number for a write-ahead log.
const JOURNAL_VERSIONS: std::ops::Range<usize> = 18..20;
const WITH_LOG: u8 = 2;

/// How long a look through the whole file may take.
const CHECK: Duration = Duration::from_secs(30);

const ODD_FENCES: &str = "SELECT name FROM holds WHERE first < 1 OR len < 1 OR first > ?1 - len UNION \
     SELECT name FROM names WHERE last > ?1 LIMIT 5";

/// What stands at the path.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing, or an empty file, which tells who may use the store.
    Nothing(Option<Box<Stat>>),
    /// A store, with who may use it.
    Ours(Rights),
}

/// The file, open and ready for use.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) folder: Folder,
}

/// Opens the file, and leaves it ready for use. Busy files are waited for as [`database::give`] says.
pub(crate) fn open(site: &Arc<Site>, create: bool) -> Result<Opened, Error> {
    machine::check_file_system(&site.directory.open, &site.directory.path)?;
    let folder = match probe(site)? {
        Found::Nothing(_) if !create => return Err(error::no_store(&site.path(""))),
        Found::Nothing(empty) => {
            let rights = empty.as_deref().map_or_else(|| site.rights(), |empty| site.rights_of(empty));
            let folder = Folder::enter(site, rights)?;
            let _alone = Alone::at(&folder)?;
            if let Found::Nothing(empty) = probe(site)? {
                make(site, &folder, empty.as_deref())?;
            }
            folder
        }
        Found::Ours(rights) => Folder::enter(site, rights)?,
    };
    let connection = opened(site, |vfs| {
        let connection = connect(&site.path(""), vfs)?;
        // The log may say otherwise than the file's own header. Nothing is written before it is certain what is in the file.
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

/// Lets SQLite open the files of a site. Where one of them was refused, that is why.
fn opened<T>(site: &Arc<Site>, work: impl FnOnce(&std::ffi::CStr) -> Result<T, Fault>) -> Result<T, Error> {
    let (opened, refused) = vfs::within(site, work)?;
    opened.map_err(|fault| refused.unwrap_or_else(|| fault.into_error()))
}

/// Refuses a file that is not ours or newer; answers its format.
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

/// Looks at the file without touching it: no lock, no journal, and closed as SQLite closes files that it may have open elsewhere.
pub(crate) fn probe(site: &Arc<Site>) -> Result<Found, Error> {
    let path = site.path("");
    let found = site.stat("").map_err(|fault| error::place("the file cannot be looked at:", &path, fault.into()))?;
    let Some(found) = found else { return Ok(Found::Nothing(None)) };
    match kind(&found) {
        FileType::Directory => return Err(error::is_a_folder(&path)),
        FileType::RegularFile => {}
        _ => return Err(error::no_file(&path)),
    }
    if machine::is_mount_point(&path) {
        return Err(error::mounted_alone(&path));
    }
    site.check_owner("", &found)?;
    if found.st_nlink > 1 {
        return Err(error::several_names(&path));
    }
    if found.st_size == 0 {
        site.check_maker(&found)?;
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

/// What SQLite finds when it looks through the file: "ok", or the first damage.
pub(crate) fn quick_check(site: &Arc<Site>) -> Result<String, Error> {
    database::give(CHECK);
    opened(site, |vfs| {
        let connection = connect_to_read(&site.path(""), vfs)?;
        Ok(connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?)
    })
}

/// Names whose fences this store never gave out, some of them.
pub(crate) fn odd_fences(site: &Arc<Site>, machine: &Machine) -> Result<Vec<String>, Error> {
    database::give(CHECK);
    read(site, |connection| {
        let Clockwork::Ours(epoch) = clockwork(connection, machine)? else { return Ok(Vec::new()) };
        let mut odd = connection.prepare(ODD_FENCES)?;
        let names = odd.query_map([signed(database::furthest(epoch.now()).get())], |row| row.get::<_, String>(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    })
}

/// Reads a file that is as new as this version, and writes nothing.
pub(crate) fn read<T>(site: &Arc<Site>, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Error> {
    machine::check_file_system(&site.directory.open, &site.directory.path)?;
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
    connection.busy_handler(Some(database::is_worth_a_try))?;
    connection.progress_handler(database::INSTRUCTIONS, Some(database::runs_too_long))?;
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

/// Makes the file where nobody else can reach it, whole and synced, and moves it to its place. Only under [`Alone`], where nothing or
/// an empty file is.
fn make(site: &Site, folder: &Folder, empty: Option<&Stat>) -> Result<(), Error> {
    let cannot = |fault: std::io::Error| error::place("the file cannot be made:", &site.path(""), fault);
    let left = site.leftovers()?;
    let content = content().map_err(|fault| Fault::from(fault).into_error())?;
    let unfinished = folder.begin(unique()).map_err(cannot)?;
    let (place, it) = unfinished.place();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut new: File = openat(place, it, flags, Mode::RUSR | Mode::WUSR).map_err(|fault| cannot(fault.into()))?.into();
    new.write_all(&content).map_err(cannot)?;
    empty.map_or_else(|| site.rights(), |empty| site.rights_of(empty)).give(&new).map_err(cannot)?;
    new.sync_all().map_err(cannot)?;
    // Of a file that was removed or emptied: it must not be taken for this one's.
    for suffix in left {
        match unlinkat(&site.directory.open, site.beside(suffix), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(fault) => return Err(error::place("the file cannot be made:", &site.path(suffix), fault.into())),
        }
    }
    move_to(site, place, it, empty).map_err(|fault| cannot(fault.into()))?;
    match open_to_list(site.directory.open.as_fd(), std::ffi::OsStr::new(".")) {
        Ok(open) => File::from(open).sync_all().map_err(cannot),
        // Who may not read the directory may not sync it.
        Err(Errno::ACCESS) => Ok(()),
        Err(fault) => Err(cannot(fault.into())),
    }
}

/// Takes the place of nothing, or of the empty file that was found there.
fn move_to(site: &Site, place: impl AsFd, it: &str, empty: Option<&Stat>) -> Result<(), Errno> {
    let there = site.stat("")?;
    if there.as_ref().map(identity) != empty.map(identity) || there.is_some_and(|there| there.st_size > 0) {
        return Err(Errno::EXIST);
    }
    if empty.is_none() {
        match renameat_with(&place, it, &site.directory.open, &site.name, RenameFlags::NOREPLACE) {
            // Not every file system knows it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            moved => return moved,
        }
    }
    renameat(place, it, &site.directory.open, &site.name)
}

/// A new file, byte for byte. It is made in memory: SQLite opens nothing for it.
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
    connection.busy_handler(Some(database::is_worth_a_try))?;
    connection.progress_handler(database::INSTRUCTIONS, Some(database::runs_too_long))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    schema::distrust(&connection)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    Ok(connection)
}

/// Brings an older file up to now, in one step: all or nothing.
fn migrate(connection: &Connection) -> Result<(), Fault> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done: Result<(), Fault> = (|| {
        // Another process may have been faster.
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

/// Makes the file's clock that of this boot, where it is not yet.
///
/// After a restart of the same machine every holder is dead. The holders of another machine may live: each gets its whole lease.
///
/// `floor` is the time that a file at this path had reached, where this process knows.
pub(crate) fn enter(
    connection: &Connection,
    machine: &Machine,
    folder: &Folder,
    floor: StoreTime,
) -> Result<Epoch, Fault> {
    if let Some(epoch) = epoch_of(connection, machine)? {
        return Ok(epoch);
    }
    synced(connection, |connection| {
        if epoch_of(connection, machine)?.is_some() {
            return Ok(());
        }
        let (known, ceiling): (String, i64) =
            connection.query_row("SELECT machine, ceiling FROM meta", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let uptime = Duration::from_nanos(leasehold_clock::now().as_nanos());
        let ceiling = StoreTime::from_nanos(unsigned(ceiling).saturating_add(1).saturating_mul(FENCE_UNIT_NANOS));
        let now = machine.wall().max(ceiling).max(floor).max(StoreTime::default() + uptime);
        if !machine.is_same(&known) {
            inherit(connection, now, ceiling - AHEAD)?;
        } else if registry::somebody_lives(folder) {
            return Err(error::not_a_new_boot().into());
        } else {
            connection.execute("DELETE FROM holds", [])?;
        }
        connection.execute("DELETE FROM waiters", [])?;
        let base = signed((now - uptime).as_nanos());
        let entered = params![machine.boot, machine.id, base, signed(Fence::at(now + AHEAD).get())];
        connection
            .execute("UPDATE meta SET epoch = epoch + 1, boot = ?1, machine = ?2, base = ?3, ceiling = ?4", entered)?;
        Ok(())
    })?;
    epoch_of(connection, machine)?.ok_or_else(|| error::taken_over().into())
}

/// Takes over what another machine has in the file. It had reached `reached` at the least: what ended before that has ended; all
/// else gets its whole time from now.
fn inherit(connection: &Connection, now: StoreTime, reached: StoreTime) -> rusqlite::Result<()> {
    let (now, reached) = (signed(now.as_nanos()), signed(reached.as_nanos()));
    connection.execute("DELETE FROM holds WHERE given = 0 AND expires <= ?1", [reached])?;
    connection.execute("UPDATE holds SET expires = ?1 + lease, kept = 0 WHERE given = 0", [now])?;
    let cooldown = "UPDATE names SET lingers_until = ?1 + lingers_until - ?2 WHERE lingers_until > ?2";
    connection.execute(cooldown, [now, reached]).map(drop)
}

/// By which clock the file goes.
pub(crate) enum Clockwork {
    /// That of this boot.
    Ours(Epoch),
    /// That of an earlier boot of this machine: whoever held something is dead.
    BeforeRestart,
    OtherMachine,
}

pub(crate) fn clockwork(connection: &Connection, machine: &Machine) -> Result<Clockwork, Fault> {
    let read = |row: &rusqlite::Row<'_>| {
        let epoch = Epoch { number: row.get(0)?, base: StoreTime::from_nanos(unsigned(row.get(1)?)) };
        Ok((epoch, row.get::<_, String>(2)?, row.get::<_, String>(3)?, Fence::new(unsigned(row.get(4)?))))
    };
    let (epoch, boot, known, ceiling) =
        connection.query_row("SELECT epoch, base, boot, machine, ceiling FROM meta", [], read)?;
    if boot != machine.boot {
        return Ok(if machine.is_same(&known) { Clockwork::BeforeRestart } else { Clockwork::OtherMachine });
    }
    // It is raised by twice this above a fence that may be as far ahead.
    if ceiling > database::furthest(epoch.now() + AHEAD * 3) {
        return Err(error::far_ceiling().into());
    }
    Ok(Clockwork::Ours(epoch))
}

fn epoch_of(connection: &Connection, machine: &Machine) -> Result<Option<Epoch>, Fault> {
    Ok(match clockwork(connection, machine)? {
        Clockwork::Ours(epoch) => Some(epoch),
        Clockwork::BeforeRestart | Clockwork::OtherMachine => None,
    })
}

/// A write that is on the disk when this returns.
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
