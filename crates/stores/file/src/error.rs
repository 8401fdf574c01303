//! What can go wrong with a file, told apart: settings, the place, the file itself, and SQLite's own errors.

use std::io;
use std::path::Path;

use leasehold_core::reference::RESET_FENCE;
use leasehold_core::{Error, ErrorKind, Fence, Name, Outcome};
use rusqlite::ErrorCode;
use rustix::io::Errno;

/// SQLite's `SQLITE_IOERR_SHMSIZE`.
const SHM_SIZE: i32 = 4874;

/// Why a step was not done.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Another process is writing, and did not end in the time there was.
    Busy,
    /// The fence would pass the ceiling: it must be raised on the disk first.
    Ceiling(Fence),
    /// The file has not even the beginning of a database.
    NoDatabase,
    /// Anything else, ready for the caller.
    Told(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // The last one: another process has a lock that is in the way of every reader, and SQLite gave up.
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
                Self::Busy
            }
            Some(ErrorCode::NotADatabase) => Self::NoDatabase,
            _ => Self::Told(told(error)),
        }
    }
}

impl Fault {
    /// As the caller is told.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Told(error) => error,
            Self::Busy => busy(),
            Self::NoDatabase => damaged("its beginning is that of no database"),
            Self::Ceiling(_) => Error::new(ErrorKind::Internal, "write", "a fence passed the ceiling twice"),
        }
    }
}

/// Whether a commit that failed was written is not known, unless the file was busy.
pub(crate) fn at_commit(error: rusqlite::Error) -> Fault {
    match Fault::from(error) {
        Fault::Told(error) => Fault::Told(error.with_outcome(Outcome::Unknown)),
        fault => fault,
    }
}

fn unfit(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unfit, "open", what)
}

fn bad(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

/// SQLite's error, in our words.
fn told(error: rusqlite::Error) -> Error {
    let (kind, what, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => return too_long(),
        Some(ErrorCode::DatabaseCorrupt) => return damaged(&error.to_string()),
        _ if is_of_contents(&error) => return damaged(&error.to_string()),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => (
            ErrorKind::Unfit,
            format!("the file cannot be written ({error})"),
            "give this user the right to write the file and its folder, or name another as file:PATH",
        ),
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Unfit,
            format!("the file cannot be opened ({error})"),
            "look at the rights of the file, of its -wal and -shm files, and of the folder",
        ),
        // Where there is no room for the index of the log, SQLite has no better word.
        Some(ErrorCode::SystemIoFailure)
            if error.sqlite_error().is_some_and(|native| native.extended_code == SHM_SIZE) =>
        {
            (ErrorKind::Unfit, "there is no room left on the disk".to_owned(), "free some room, and try again")
        }
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::Unfit, "there is no room left on the disk".to_owned(), "free some room, and try again")
        }
        Some(ErrorCode::SystemIoFailure) => (
            ErrorKind::Unreachable,
            format!("the disk did not do what it was asked ({error})"),
            "look into the system's log for errors of the disk",
        ),
        _ => (ErrorKind::Internal, format!("SQLite: {error}"), "please report this as a bug of leasehold"),
    };
    let outcome = if kind == ErrorKind::Unreachable { Outcome::Unknown } else { Outcome::NotApplied };
    Error::new(kind, "write", what).with_hint(hint).with_outcome(outcome).with_source(error)
}

/// Whether the tables are not as we made them, or a value in them is none that we would write. Statements of ours do not fail otherwise:
/// each is run by tests on a file that is whole.
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
        "move it away together with its -wal and -shm files; what was held in it is then free, and fences go on by the clock",
    )
}

fn busy() -> Error {
    let what = "another process has kept the file busy for too long";
    Error::new(ErrorKind::Unreachable, "write", what).with_hint(
        "is a process stopped in the middle of a write, or does one that may read the file hold a lock on it? look with `fuser` \
         and in /proc/locks",
    )
}

fn too_long() -> Error {
    let what = "it takes too long to look through the file";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint(
        "is the machine overloaded? if not, the file may be damaged, and anybody who can write it can do that: leasehold::examine looks \
         through it",
    )
}

pub(crate) fn leased() -> Error {
    let what = "another process keeps the file or its log from being opened (a lease, F_SETLEASE)";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint("look which process that is in /proc/locks, and end it")
}

pub(crate) fn no_path() -> Error {
    bad("file: needs a path").with_hint("write it like file:/var/lib/leasehold/locks.db")
}

pub(crate) fn host_in_path(path: &str) -> Error {
    bad(format!("file:{path} names a host, but the file must be on this machine")).with_hint("write file:/path")
}

pub(crate) fn no_such_option(option: &str) -> Error {
    bad(format!("file: has no option {option:?}"))
        .with_hint("it has liveness=on|off, create=yes|no, and keep and budget as every store")
}

pub(crate) fn bad_liveness(value: &str) -> Error {
    bad(format!("liveness={value} is neither on nor off")).with_hint("write liveness=on or liveness=off")
}

pub(crate) fn bad_create(value: &str) -> Error {
    bad(format!("create={value} is neither yes nor no")).with_hint("write create=yes or create=no")
}

pub(crate) fn no_current_folder(fault: &io::Error) -> Error {
    bad(format!("the current folder is not known ({fault})")).with_hint("write the path from the root")
}

pub(crate) fn is_a_folder(path: &Path) -> Error {
    unfit(format!("{} is a folder, not a file", path.display())).with_hint("name a file in it, such as locks.db")
}

pub(crate) fn no_file(path: &Path) -> Error {
    unfit(format!("{} is not a regular file", path.display())).with_hint("name a file of its own for the locks")
}

pub(crate) fn several_names(path: &Path) -> Error {
    unfit(format!("{} has several names (hard links), and SQLite keeps a log for each", path.display()))
        .with_hint("remove the other names, or use a symbolic link")
}

/// What this user could do about a store that belongs to a stranger.
const AS_THAT_USER: &str =
    "run the command as that user, or name a file in a folder of your own; docs/file.md says how users share a file";

pub(crate) fn foreign_folder(path: &Path, user: u32) -> Error {
    let what =
        format!("the folder {} belongs to another user (id {user}), who can replace everything in it", path.display());
    unfit(what).with_hint(AS_THAT_USER)
}

pub(crate) fn open_folder(path: &Path) -> Error {
    let what = format!("every user can replace what is in the folder {}", path.display());
    unfit(what).with_hint(
        "set its sticky bit (chmod +t), take the right away (chmod o-w), or name a file in a folder of your own",
    )
}

pub(crate) fn group_on_the_way(path: &Path, group: u32) -> Error {
    let what = format!(
        "the path leads through the folder {}, where others (its group, id {group}, or an access list's users) can put \
         another folder in the place of the next one",
        path.display()
    );
    unfit(what).with_hint(
        "name a file in that folder itself, set its sticky bit (chmod +t), or take the right away (chmod g-w, for all of an access list too)",
    )
}

pub(crate) fn foreign_link(path: &Path, user: u32) -> Error {
    let what = format!(
        "{} is a link that this user cannot trust: it belongs to user {user}, or others can move it",
        path.display()
    );
    unfit(what).with_hint("name the file that it leads to")
}

pub(crate) fn foreign_file(path: &Path, user: u32) -> Error {
    let what = format!("{} belongs to another user (id {user}), and was left as it is", path.display());
    unfit(what).with_hint(AS_THAT_USER)
}

pub(crate) fn journal(path: &Path) -> Error {
    let what = format!("{} stands beside the file, which has no journal but its log", path.display());
    unfit(what).with_hint("look who put it there, and move it away")
}

pub(crate) fn no_log(path: &Path) -> Error {
    let what = format!("{} is in the way of SQLite's log, and was left as it is", path.display());
    unfit(what).with_hint("look what it is, and move it away")
}

pub(crate) fn odd_schema(kind: &str, name: &str) -> Error {
    let what = format!(
        "the file has a {} {:?} that is not leasehold's, and was left as it is",
        printable(kind),
        printable(name)
    );
    unfit(what).with_hint("look who can write the file; move it away, and what was held in it is free")
}

pub(crate) fn zero_fence(name: &Name) -> Error {
    let what = "the file says that the lock is held under fence 0, which is never given out".to_owned();
    unfit(what).with_hint(RESET_FENCE).on_lock(name)
}

pub(crate) fn far_fence(name: &Name, fence: Fence) -> Error {
    let what = format!("the fence of this lock, {fence}, is more than 8 days ahead of the store's clock");
    unfit(what).with_hint(RESET_FENCE).on_lock(name)
}

pub(crate) fn far_ceiling() -> Error {
    damaged("its limit of fences is more than 8 days ahead of its clock")
}

pub(crate) fn no_table(name: &str) -> Error {
    damaged(&format!("its table {name:?} is missing"))
}

/// What a file says, as far as a terminal is to see it.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ').take(64).collect()
}

pub(crate) fn no_store(path: &Path) -> Error {
    unfit(format!("there is no store at {}, and create=no is set", path.display()))
        .with_hint("check the path; without create=no, the first lock creates the file")
}

pub(crate) fn mounted_alone(path: &Path) -> Error {
    unfit(format!("{} is mounted here without its folder, where its log is", path.display()))
        .with_hint("mount the folder that the file is in")
}

pub(crate) fn place(doing: &str, path: &Path, fault: io::Error) -> Error {
    let what = format!("{doing} {}: {fault}", path.display());
    let hint = match Errno::from_io_error(&fault) {
        Some(Errno::AGAIN) => "look at the limit of threads and processes (ulimit -u)",
        Some(Errno::MFILE | Errno::NFILE) => "look at the limit of open files (ulimit -n)",
        Some(Errno::NOMEM) => "there is too little memory; look at its limits too (ulimit -v)",
        _ => "look at the rights of the folder, or name another file as file:PATH",
    };
    unfit(what).with_hint(hint).with_source(fault)
}

pub(crate) fn not_ours() -> Error {
    unfit("the file is not a leasehold store, and was left as it is").with_hint("name another file as file:PATH")
}

pub(crate) fn newer(found: i64, known: i64) -> Error {
    unfit(format!(
        "the file was made by a newer leasehold (format {found}, this one knows {known}), and was left as it is"
    ))
    .with_hint("use that version, or name another file as file:PATH")
}

pub(crate) fn older(found: i64, known: i64) -> Error {
    unfit(format!(
        "the file is of an older leasehold (format {found}, this one has {known}), and this user may only read it"
    ))
    .with_hint("let a user that may write the file use it once")
}

pub(crate) fn not_entered() -> Error {
    unfit("the file came from another machine and was not used on this one yet, and this user may only read it")
        .with_hint("let a user that may write the file use it once")
}

pub(crate) fn read_only() -> Error {
    unfit("the file cannot be written by this user")
        .with_hint("give this user the right to write it and its folder, or name another as file:PATH")
}

/// A limit of this process, for which SQLite has no word of its own.
pub(crate) fn is_limit(fault: Errno) -> bool {
    matches!(fault, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

pub(crate) fn wrong_journal(found: &str) -> Error {
    unfit(format!("the file cannot be used by several processes here (journal mode {found:?} instead of \"wal\")"))
        .with_hint("put it on a local disk")
}

pub(crate) fn shared_file_system(kind: &str) -> Error {
    unfit(format!("the file is on {kind}, where locks of files cannot be trusted between machines"))
        .with_hint("put it on a local disk; for several machines use a store with a server")
}

pub(crate) fn shifted_time() -> Error {
    unfit("this process is in a time namespace with an offset, so its clock is not that of the others")
        .with_hint("run it without --boottime, or use a store with a server")
}

pub(crate) fn no_boot(fault: io::Error) -> Error {
    unfit(format!("the system does not tell its boot id ({fault}), so leases could outlive a restart"))
        .with_source(fault)
}

pub(crate) fn taken_over() -> Error {
    unfit("the file was taken over by another machine, or by this one after a restart")
        .with_hint("use a file a machine; for several machines use a store with a server")
}

pub(crate) fn replaced() -> Error {
    let what = "the file was removed while it was being opened";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint("try again")
}

pub(crate) fn log_removed() -> Error {
    unfit("the file's log (its -wal and -shm files) was removed or replaced while it was in use")
        .with_hint("start the program again; what it held is lost")
}

pub(crate) fn stuck_creation() -> Error {
    let what = "another process has been making the file for too long";
    Error::new(ErrorKind::Unreachable, "open", what).with_hint("is it stopped? look with `fuser`")
}

pub(crate) fn not_a_new_boot() -> Error {
    unfit("the boot id is not the one that the file goes by, but processes of that boot live and use it")
        .with_hint("is /proc/sys/kernel/random/boot_id mounted over in this container?")
}

pub(crate) fn somebodys_folder(folder: &Path) -> Error {
    unfit(format!("{} is needed for the processes that use the file, but is somebody else's", folder.display()))
        .with_hint("name another file as file:PATH, or remove the folder if it is empty (rmdir)")
}

pub(crate) fn forked() -> Error {
    let what = "this process was forked from one that has the file open";
    Error::new(ErrorKind::Forked, "connect", what)
        .with_hint("connect after the fork only, or start the child with exec")
}
