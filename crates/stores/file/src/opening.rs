//! Opening the file: made if it is missing, refused and left as it is if it is not ours or newer, migrated if it is older.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::fence::FENCE_UNIT_NANOS;
use leasehold_core::{Error, Fence, StoreTime};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};

use crate::database::{self, AHEAD, Epoch};
use crate::error::{self, Fault};
use crate::folder::{self, Alone};
use crate::machine::{self, Machine};
use crate::place;
use crate::rows::{signed, unsigned};

/// Marks the file as ours, in SQLite's header.
const APPLICATION_ID: i64 = 0x6c65_6173;
/// What made the file step by step; its format is how many were done.
const MIGRATIONS: &[&str] =
    &[include_str!("sql/0001-locks.sql"), include_str!("sql/0002-waiters.sql"), include_str!("sql/0003-left-by.sql")];
/// How many statements a connection keeps prepared.
const STATEMENTS: usize = 32;
/// The write-ahead log is cut back to this size when it has been copied into the file.
const LOG_BYTES: i64 = 4 << 20;

/// What stands at the path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Ours { format: i64 },
}

/// Opens the file, and leaves it ready for use. Busy files are waited for as [`database::give`] says.
pub(crate) fn open(path: &Path) -> Result<Connection, Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(|fault| error::place("the folder cannot be made:", parent, fault))?;
    machine::check_file_system(parent)?;
    let found = match probe(path)? {
        Found::Nothing => {
            folder::ensure(path)?;
            let _alone = Alone::at(path)?;
            match probe(path)? {
                Found::Nothing => make(path).map(|()| Found::Ours { format: latest() })?,
                found => found,
            }
        }
        found => {
            folder::ensure(path)?;
            found
        }
    };
    let connection = connect(path).map_err(|fault| Fault::from(fault).into_error())?;
    // The log may say otherwise than the file's own header.
    check_format(&connection).map_err(Fault::into_error)?;
    let ready = match found {
        Found::Ours { format } if format < latest() => migrate(&connection),
        _ => Ok(()),
    };
    ready.and_then(|()| settle(&connection)).map_err(Fault::into_error)?;
    Ok(connection)
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
pub(crate) fn probe(path: &Path) -> Result<Found, Error> {
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
    let header = match Connection::open_with_flags(uri(path), flags) {
        Ok(connection) => check_format(&connection),
        Err(fault) => Err(fault.into()),
    };
    header.map(|format| Found::Ours { format }).map_err(|fault| match fault {
        Fault::NoDatabase => error::not_ours(),
        fault => fault.into_error(),
    })
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
    let new = folder::of(path).join(format!("new-{}", std::process::id()));
    let cannot = |fault| error::place("the file cannot be made:", path, fault);
    let made = (|| {
        remove(&new).map_err(cannot)?;
        fill(&new).map_err(|fault| Fault::from(fault).into_error())?;
        take_rights(path, &new).map_err(cannot)?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(cannot)?;
        // Of a file that was removed or emptied: it must not be taken for this one's.
        for left in ["-wal", "-shm", "-journal"] {
            remove(&suffixed(path, left)).map_err(cannot)?;
        }
        fs::rename(&new, path).map_err(cannot)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(cannot)
    })();
    if made.is_err() {
        let _ = fs::remove_file(&new);
    }
    made
}

fn remove(path: &Path) -> std::io::Result<()> {
    fs::remove_file(path)
        .or_else(|fault| if fault.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(fault) })
}

/// A file that SQLite keeps beside the file.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn fill(new: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(new)?;
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; BEGIN EXCLUSIVE")?;
    for step in MIGRATIONS {
        connection.execute_batch(step)?;
    }
    connection.execute("INSERT INTO meta VALUES (1, 0, '', '', 0, 0, '')", [])?;
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
    folder::follow(path, &fs::metadata(new)?)
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
pub(crate) fn enter(connection: &Connection, machine: &Machine, path: &Path, floor: StoreTime) -> Result<Epoch, Fault> {
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
        } else if place::somebody_lives(&folder::of(path)) {
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
    let linger = "UPDATE names SET lingers_until = ?1 + lingers_until - ?2 WHERE lingers_until > ?2";
    connection.execute(linger, [now, reached]).map(drop)
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
