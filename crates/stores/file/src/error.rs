//! The errors of this store: settings, location, the file itself, and SQLite's own.

use std::io;
use std::path::Path;

use leasehold_core::reference::RESET_FENCE;
use leasehold_core::{Error, ErrorKind, Fence, Name, Outcome};
use rusqlite::ErrorCode;
use rustix::io::Errno;

/// SQLite's `SQLITE_IOERR_SHMSIZE`.
const SHM_SIZE: i32 = 4874;

/// Why a step failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Another process is writing, and did not finish in time.
    Busy,
    /// The fence would pass the ceiling, which must be raised on disk first.
    Ceiling(Fence),
    /// The file does not even have a database header.
    NoDatabase,
    /// Any other error, ready for the caller.
    Other(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // The last code: another process has a lock that blocks every reader, and SQLite gave up.
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
                Self::Busy
            }
            Some(ErrorCode::NotADatabase) => Self::NoDatabase,
            _ => Self::Other(explained(error)),
        }
    }
}

impl Fault {
    /// The error for the caller.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Other(error) => error,
            Self::Busy => busy(),
            Self::NoDatabase => damaged("it has no database header"),
            Self::Ceiling(_) => Error::new(ErrorKind::Internal, "write", "a fence passed the ceiling twice"),
        }
    }
}

/// A commit that failed may or may not have been written, unless the file was busy.
pub(crate) fn at_commit(error: rusqlite::Error) -> Fault {
    match Fault::from(error) {
        Fault::Other(error) => Fault::Other(error.with_outcome(Outcome::Unknown)),
        fault => fault,
    }
}

fn unfit(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unfit, "open", what)
}

fn bad(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

/// Explains SQLite's error.
fn explained(error: rusqlite::Error) -> Error {
    let (kind, what, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => return too_long(),
        Some(ErrorCode::DatabaseCorrupt) => return damaged(&error.to_string()),
        _ if is_of_contents(&error) => return damaged(&error.to_string()),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => (
            ErrorKind::Unfit,
            format!("the file cannot be written ({error})"),
            "give this user write permission on the file and its folder, or use another one (file:PATH)",
        ),
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Unfit,
            format!("the file cannot be opened ({error})"),
            "check the permissions of the file, its -wal and -shm files, and the folder",
        ),
        // SQLite has no better code for a disk without room for the index of the log.
        Some(ErrorCode::SystemIoFailure)
            if error.sqlite_error().is_some_and(|native| native.extended_code == SHM_SIZE) =>
        {
            (ErrorKind::Unfit, "no space left on the disk".to_owned(), "free some space and try again")
        }
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::Unfit, "no space left on the disk".to_owned(), "free some space and try again")
        }
        Some(ErrorCode::SystemIoFailure) => (
            ErrorKind::Unreachable,
            format!("the disk reported an error ({error})"),
            "check the system log for disk errors",
        ),
        _ => (ErrorKind::Internal, format!("SQLite: {error}"), "please report this as a bug of leasehold"),
    };
    let outcome = if kind == ErrorKind::Unreachable { Outcome::Unknown } else { Outcome::NotApplied };
    Error::new(kind, "write", what).with_hint(hint).with_outcome(outcome).with_source(error)
}

/// Whether the tables are not as we made them, or contain a value that we would never write. Our statements cannot fail
/// for any other reason: tests run each of them on an undamaged file.
fn is_of_contents(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    match error {
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::QueryReturnedNoRows
        | E::SqlInputError { .. }
        | E::Utf8Error(..) => true,
        E::SqliteFailure(native, _) => matches!(
            native.code,
            ErrorCode::Unknown | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
        ),
        _ => false,
    }
}

fn damaged(how: &str) -> Error {
    Error::new(ErrorKind::Unfit, "open", format!("the file is damaged ({how})")).with_hint(
        "move it away together with its -wal and -shm files; its locks are then free, and fences continue from the clock",
    )
}

fn busy() -> Error {
    let what = "another process has kept the file busy for too long";
    Error::new(ErrorKind::Unreachable, "write", what).with_hint(
        "a process may be stopped in the middle of a write, or hold a file lock on it; check with `fuser` and /proc/locks",
    )
}

fn too_long() -> Error {
    let what = "reading the file takes too long";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint(
        "if the machine is not overloaded, the file may be damaged, perhaps on purpose by a user who can write it; \
         leasehold::examine checks it",
    )
}

pub(crate) fn leased() -> Error {
    let what = "another process prevents opening the file or its log (with a lease, F_SETLEASE)";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint("find that process in /proc/locks and end it")
}

pub(crate) fn no_path() -> Error {
    bad("file: needs a path").with_hint("write it like file:/var/lib/leasehold/locks.db")
}

pub(crate) fn host_in_path(path: &str) -> Error {
    bad(format!("file:{path} names a host, but the file must be on this machine")).with_hint("write file:/path")
}

pub(crate) fn no_such_option(option: &str) -> Error {
    bad(format!("file: has no option {option:?}"))
        .with_hint("its options are liveness=on|off and create=yes|no, and every store has keep and budget")
}

pub(crate) fn bad_liveness(value: &str) -> Error {
    bad(format!("liveness={value} is neither on nor off")).with_hint("write liveness=on or liveness=off")
}

pub(crate) fn bad_create(value: &str) -> Error {
    bad(format!("create={value} is neither yes nor no")).with_hint("write create=yes or create=no")
}

pub(crate) fn no_current_folder(fault: &io::Error) -> Error {
    bad(format!("the current folder is unknown ({fault})")).with_hint("write an absolute path")
}

pub(crate) fn is_a_folder(path: &Path) -> Error {
    unfit(format!("{} is a folder, not a file", path.display())).with_hint("use a file in it, such as locks.db")
}

pub(crate) fn no_file(path: &Path) -> Error {
    unfit(format!("{} is not a regular file", path.display())).with_hint("use a separate file for the locks")
}

pub(crate) fn several_names(path: &Path) -> Error {
    unfit(format!("{} has several hard links, and SQLite keeps a log for each name", path.display()))
        .with_hint("remove the other links, or use a symbolic link")
}

/// Advice about a store that belongs to another user.
const AS_THAT_USER: &str =
    "run the command as that user, or use a file in a folder of your own; docs/file.md explains how to share a file";

pub(crate) fn foreign_folder(path: &Path, user: u32) -> Error {
    let what =
        format!("the folder {} belongs to another user (id {user}), who can replace everything in it", path.display());
    unfit(what).with_hint(AS_THAT_USER)
}

pub(crate) fn open_folder(path: &Path) -> Error {
    let what = format!("every user can replace files in the folder {}", path.display());
    unfit(what).with_hint(
        "set its sticky bit (chmod +t), remove the write permission (chmod o-w), or use a file in a folder of your own",
    )
}

pub(crate) fn replaceable_folder(path: &Path, group: u32) -> Error {
    let what = format!(
        "the path leads through the folder {}, where other users (its group, id {group}, or users in its access list) \
         can replace the next folder",
        path.display()
    );
    unfit(what).with_hint(
        "put the file in that folder itself, set its sticky bit (chmod +t), or remove the write permission (chmod g-w, \
         which also limits its access list)",
    )
}

pub(crate) fn foreign_link(path: &Path, user: u32) -> Error {
    let what =
        format!("{} is an untrusted link: it belongs to user {user}, or other users can move it", path.display());
    unfit(what).with_hint("use the path of its target")
}

pub(crate) fn foreign_file(path: &Path, user: u32) -> Error {
    let what = format!("{} belongs to another user (id {user}); it was left unchanged", path.display());
    unfit(what).with_hint(AS_THAT_USER)
}

pub(crate) fn journal(path: &Path) -> Error {
    let what = format!("{} exists beside the file, but a store has no rollback journal", path.display());
    unfit(what).with_hint("find out who created it, and move it away")
}

pub(crate) fn no_log(path: &Path) -> Error {
    let what = format!("{} is in the place of SQLite's log but is not one; it was left unchanged", path.display());
    unfit(what).with_hint("find out what it is, and move it away")
}

pub(crate) fn foreign_schema(kind: &str, name: &str) -> Error {
    let what = format!(
        "the file contains the {} {:?}, which is not leasehold's; it was left unchanged",
        printable(kind),
        printable(name)
    );
    unfit(what).with_hint("check who can write the file; if you move it away, its locks are free")
}

pub(crate) fn zero_fence(name: &Name) -> Error {
    let what = "the file says that the lock is held with fence 0, which is never granted".to_owned();
    unfit(what).with_hint(RESET_FENCE).on_lock(name)
}

pub(crate) fn far_fence(name: &Name, fence: Fence) -> Error {
    let what = format!("the fence of this lock, {fence}, is more than 8 days ahead of the store's clock");
    unfit(what).with_hint(RESET_FENCE).on_lock(name)
}

pub(crate) fn far_ceiling() -> Error {
    damaged("its fence ceiling is more than 8 days ahead of its clock")
}

pub(crate) fn no_table(name: &str) -> Error {
    damaged(&format!("its table {name:?} is missing"))
}

/// Text from the file, safe for a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ').take(64).collect()
}

pub(crate) fn no_store(path: &Path) -> Error {
    unfit(format!("there is no store at {}, and create=no is set", path.display()))
        .with_hint("check the path; without create=no, the first lock creates the file")
}

pub(crate) fn mounted_alone(path: &Path) -> Error {
    unfit(format!("{} is mounted here without its folder, which contains its log", path.display()))
        .with_hint("mount the folder of the file instead")
}

pub(crate) fn io_failed(doing: &str, path: &Path, fault: io::Error) -> Error {
    let what = format!("{doing} {}: {fault}", path.display());
    let hint = match Errno::from_io_error(&fault) {
        Some(Errno::AGAIN) => "check the limit on threads and processes (ulimit -u)",
        Some(Errno::MFILE | Errno::NFILE) => "check the limit on open files (ulimit -n)",
        Some(Errno::NOMEM) => "there is too little memory; check its limit too (ulimit -v)",
        _ => "check the permissions of the folder, or use another file (file:PATH)",
    };
    unfit(what).with_hint(hint).with_source(fault)
}

pub(crate) fn not_ours() -> Error {
    unfit("the file is not a leasehold store; it was left unchanged").with_hint("use another file (file:PATH)")
}

pub(crate) fn newer(found: i64, known: i64) -> Error {
    unfit(format!(
        "the file was created by a newer leasehold (format {found}; this version knows {known}); it was left unchanged"
    ))
    .with_hint("use that version, or another file (file:PATH)")
}

pub(crate) fn older(found: i64, known: i64) -> Error {
    unfit(format!(
        "the file was created by an older leasehold (format {found}; this version has {known}), and this user may only read it"
    ))
    .with_hint("let a user with write permission use it once")
}

pub(crate) fn not_entered() -> Error {
    unfit("the file comes from another machine and has not been used on this one yet, and this user may only read it")
        .with_hint("let a user with write permission use it once")
}

pub(crate) fn read_only() -> Error {
    unfit("the file cannot be written by this user")
        .with_hint("give this user write permission on the file and its folder, or use another one (file:PATH)")
}

/// Whether this is a limit of the process, for which SQLite has no code of its own.
pub(crate) fn is_limit(fault: Errno) -> bool {
    matches!(fault, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

pub(crate) fn wrong_journal(found: &str) -> Error {
    unfit(format!("several processes cannot share the file here (journal mode {found:?} instead of \"wal\")"))
        .with_hint("put it on a local disk")
}

pub(crate) fn shared_file_system(kind: &str) -> Error {
    unfit(format!("the file is on {kind}, where file locks are not reliable between machines"))
        .with_hint("put it on a local disk; for several machines use a store with a server")
}

pub(crate) fn shifted_time() -> Error {
    unfit("this process is in a time namespace with an offset, so its clock differs from that of other processes")
        .with_hint("run it without --boottime, or use a store with a server")
}

pub(crate) fn no_boot(fault: io::Error) -> Error {
    unfit(format!("cannot read the system's boot id ({fault}), so leases could outlive a restart")).with_source(fault)
}

pub(crate) fn taken_over() -> Error {
    unfit("the file was taken over by another machine, or by this one after a restart")
        .with_hint("use one file per machine; for several machines use a store with a server")
}

pub(crate) fn replaced() -> Error {
    let what = "the file was removed while it was being opened";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint("try again")
}

pub(crate) fn log_removed() -> Error {
    unfit("the file's log (its -wal and -shm files) was removed or replaced while it was in use")
        .with_hint("restart the program; the locks that it held are lost")
}

pub(crate) fn stuck_creation() -> Error {
    let what = "another process has been creating the file for too long";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint("check with `fuser` whether it is stopped")
}

pub(crate) fn not_a_new_boot() -> Error {
    unfit("the boot id differs from that of the file, but processes of the file's boot are alive and use it")
        .with_hint("check whether /proc/sys/kernel/random/boot_id is mounted over in this container")
}

pub(crate) fn reserved_folder(folder: &Path) -> Error {
    unfit(format!("{} is needed for the processes that use the file, but is not leasehold's", folder.display()))
        .with_hint("use another file (file:PATH), or remove the folder if it is empty (rmdir)")
}

pub(crate) fn forked() -> Error {
    let what = "this process was forked from one that has the file open";
    Error::new(ErrorKind::Forked, "connect", what)
        .with_hint("connect only after the fork, or start the child with exec")
}
