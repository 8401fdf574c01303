//! Opening the file: made if it is missing, refused and left as it is if it is not ours or newer, migrated if it is older.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::{Error, Fence, StoreTime};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};

use crate::database::{self, Epoch};
use crate::error::{self, Fault};
use crate::machine::{self, Machine};
use crate::rows::{signed, unsigned};

/// Marks the file as ours, in SQLite's header.
const APPLICATION_ID: i64 = 0x6c65_6173;
/// What made the file step by step; its format is how many were done.
const MIGRATIONS: &[&str] = &[include_str!("sql/0001-locks.sql"), include_str!("sql/0002-waiters.sql")];
/// How many statements a connection keeps prepared.
const STATEMENTS: usize = 32;
/// The write-ahead log is cut back to this size when it has been copied into the file.
const LOG_BYTES: i64 = 4 << 20;

/// What stands at the path.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Ours { format: i64 },
}

/// The folder beside the file: sockets and liveness files of the processes that use it.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".d");
    folder.into()
}

/// Opens the file, and leaves it ready for use. Busy files are waited for as [`database::give`] says.
pub(crate) fn open(path: &Path) -> Result<Connection, Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(|fault| error::place("the folder cannot be made:", parent, fault))?;
    machine::check_file_system(parent)?;
    let found = {
        let _alone = alone(path)?;
        let found = probe(path)?;
        if found == Found::Nothing {
            make(path)?;
        }
        found
    };
    let connection = connect(path).map_err(|fault| Fault::from(fault).into_error())?;
    let ready = match found {
        Found::Ours { format } if format < latest() => migrate(&connection),
        _ => Ok(()),
    };
    ready.and_then(|()| settle(&connection)).map_err(Fault::into_error)?;
    Ok(connection)
}

fn latest() -> i64 {
    signed(MIGRATIONS.len() as u64)
}

/// Keeps other processes from making the file at the same time, or from seeing it half made.
fn alone(path: &Path) -> Result<File, Error> {
    let folder = folder_of(path);
    fs::create_dir_all(&folder).map_err(|fault| error::place("the folder cannot be made:", &folder, fault))?;
    let lock = folder.join("opening");
    let cannot = |fault| error::place("the file cannot be made:", &lock, fault);
    let open = |options: &mut OpenOptions| options.mode(0o666).open(&lock);
    let file = open(OpenOptions::new().read(true))
        .or_else(|_| open(OpenOptions::new().read(true).write(true).create(true)))
        .map_err(cannot)?;
    for tries in 0.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(fault)) => return Err(cannot(fault)),
            Err(TryLockError::WouldBlock) if database::is_worth_a_try(tries) => {}
            Err(TryLockError::WouldBlock) => return Err(error::stuck_creation()),
        }
    }
    Ok(file)
}

/// Looks at the file without touching it: no lock, no journal, and closed as SQLite closes files that it may have open elsewhere.
fn probe(path: &Path) -> Result<Found, Error> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(error::is_a_folder(path)),
        Ok(found) if !found.is_file() => return Err(error::no_file(path)),
        Ok(_) if machine::is_mount_point(path) => return Err(error::mounted_alone(path)),
        Ok(found) if found.nlink() > 1 => return Err(error::several_names(path)),
        Ok(found) if found.len() == 0 => return Ok(Found::Nothing),
        Ok(_) => {}
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(fault) => return Err(error::place("the file cannot be looked at:", path, fault)),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let header = Connection::open_with_flags(uri(path), flags).and_then(|connection| {
        let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        Ok((number("application_id")?, number("user_version")?))
    });
    match header {
        Ok((APPLICATION_ID, format)) if format > latest() => Err(error::newer(format, latest())),
        Ok((APPLICATION_ID, format)) if format > 0 => Ok(Found::Ours { format }),
        Ok(_) => Err(error::not_ours()),
        Err(fault) if fault.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => Err(error::not_ours()),
        Err(fault) => Err(Fault::from(fault).into_error()),
    }
}

fn uri(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => write!(uri, "%{byte:02x}").expect("a string takes every text"),
        }
    }
    uri + "?immutable=1"
}

/// Makes the file beside its place, whole and synced, and moves it there. Only under [`alone`], where nothing or an empty file is.
fn make(path: &Path) -> Result<(), Error> {
    let new = folder_of(path).join(format!("new-{}", std::process::id()));
    let cannot = |fault| error::place("the file cannot be made:", path, fault);
    let made = (|| {
        fs::remove_file(&new).or_else(|fault| match fault.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(cannot(fault)),
        })?;
        fill(&new).map_err(|fault| Fault::from(fault).into_error())?;
        take_rights(path, &new).map_err(cannot)?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(cannot)?;
        fs::rename(&new, path).map_err(cannot)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(cannot)
    })();
    if made.is_err() {
        let _ = fs::remove_file(&new);
    }
    made
}

fn fill(new: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(new)?;
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; BEGIN EXCLUSIVE")?;
    for step in MIGRATIONS {
        connection.execute_batch(step)?;
    }
    connection.execute("INSERT INTO meta VALUES (1, 0, '', '', 0, 0)", [])?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", latest())?;
    connection.execute_batch("COMMIT")?;
    connection.close().map_err(|(_, fault)| fault)
}

/// An empty file that was put there tells who may use the store; the folder beside it follows.
fn take_rights(path: &Path, new: &Path) -> std::io::Result<()> {
    if let Ok(there) = fs::metadata(path) {
        fs::set_permissions(new, there.permissions())?;
        let made = fs::metadata(new)?;
        if (there.uid(), there.gid()) != (made.uid(), made.gid()) {
            // Only root can give a file away; the group is what those who share it go by.
            chown(new, Some(there.uid()), Some(there.gid())).or_else(|_| chown(new, None, Some(there.gid())))?;
        }
    }
    let file = fs::metadata(new)?;
    let folder = folder_of(path);
    if fs::metadata(&folder)?.uid() == rustix::process::geteuid().as_raw() {
        // Only the group matters to those who share it; where it cannot be given, the folder stays with its maker.
        let _ = chown(&folder, None, Some(file.gid()));
        fs::set_permissions(&folder, fs::Permissions::from_mode(folder_mode(file.mode())))?;
    }
    Ok(())
}

/// Who may read and write the file may enter and change the folder.
pub(crate) fn folder_mode(file: u32) -> u32 {
    let rights = file & 0o666;
    // What is made in it belongs to its group, whoever makes it.
    let group = if rights & 0o060 == 0 { 0 } else { 0o2000 };
    group | rights | ((rights & 0o444) >> 2)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(database::is_worth_a_try))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    Ok(connection)
}

/// Brings an older file up to now, in one step: all or nothing.
fn migrate(connection: &Connection) -> Result<(), Fault> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = (|| {
        // Another process may have been faster.
        let format: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for step in MIGRATIONS.iter().skip(usize::try_from(format).unwrap_or(usize::MAX)) {
            connection.execute_batch(step)?;
        }
        connection.pragma_update(None, "user_version", latest())?;
        connection.execute_batch("COMMIT")
    })();
    if done.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    Ok(done?)
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
pub(crate) fn enter(connection: &Connection, machine: &Machine) -> Result<Epoch, Fault> {
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
        let passed = StoreTime::from_nanos(
            unsigned(ceiling).saturating_add(1).saturating_mul(leasehold_core::fence::FENCE_UNIT_NANOS),
        );
        let now = machine.wall().max(passed).max(StoreTime::default() + uptime);
        if machine.is_same(&known) {
            connection.execute("DELETE FROM holds", [])?;
        } else {
            let now = signed(now.as_nanos());
            connection.execute("UPDATE holds SET expires = ?1 + lease, kept = 0 WHERE given = 0", [now])?;
        }
        connection.execute("DELETE FROM waiters", [])?;
        let base = signed((now - uptime).as_nanos());
        let entered = params![machine.boot, machine.id, base, signed(Fence::at(now + database::AHEAD).get())];
        connection
            .execute("UPDATE meta SET epoch = epoch + 1, boot = ?1, machine = ?2, base = ?3, ceiling = ?4", entered)?;
        Ok(())
    })?;
    epoch_of(connection, machine)?.ok_or_else(|| error::taken_over().into())
}

fn epoch_of(connection: &Connection, machine: &Machine) -> rusqlite::Result<Option<Epoch>> {
    connection.query_row("SELECT epoch, base, boot FROM meta", [], |row| {
        let epoch = Epoch { number: row.get(0)?, base: StoreTime::from_nanos(unsigned(row.get(1)?)) };
        let boot: String = row.get(2)?;
        Ok((boot == machine.boot).then_some(epoch))
    })
}

/// A write that is on the disk when this returns.
pub(crate) fn synced(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), Fault> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let done = connection.execute_batch("BEGIN IMMEDIATE").and_then(|()| {
        work(connection).and_then(|()| connection.execute_batch("COMMIT")).inspect_err(|_| {
            let _ = connection.execute_batch("ROLLBACK");
        })
    });
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(done?)
}
