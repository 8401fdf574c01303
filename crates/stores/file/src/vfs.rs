//! How SQLite opens files for this store: through [`Site::open`], so that it never opens, or changes the rights of,
//! files that another user put at its paths.
//!
//! SQLite opens by path. As root it gives the log and its index to the owner of the file. It also gives both the file's
//! mode, which with an access list is more than the group has. SQLite lets programs replace these system calls for the
//! whole process. Ours act only inside [`within`], on that thread and for those paths, and pass every other call on.
//! The store has its own entry in SQLite's list of file systems: its pauses end with the caller's patience, and it
//! ignores a journal that another user put beside the file.
//!
//! The only module of this crate with `unsafe`: see docs/decisions/0014-opening-files.md.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use rusqlite::ffi;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::directory::{Refusal, Site};
use crate::{database, error};

/// Name in SQLite's list of file systems.
const NAME: &CStr = c"leasehold";
/// What SQLite appends to the path of the file for the files beside it.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", JOURNAL];
const JOURNAL: &str = "-journal";

type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type ChangeOwner = unsafe extern "C" fn(c_int, libc::uid_t, libc::gid_t) -> c_int;
type ChangeMode = unsafe extern "C" fn(c_int, libc::mode_t) -> c_int;
type Look = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int;

/// The original functions.
struct System {
    open: Open,
    change_owner: ChangeOwner,
    change_mode: ChangeMode,
    look: Look,
}

static SYSTEM: OnceLock<System> = OnceLock::new();
static IS_INSTALLED: OnceLock<bool> = OnceLock::new();

thread_local! {
    static OPENING: RefCell<Option<Opening>> = const { RefCell::new(None) };
}

/// What this thread is opening.
struct Opening {
    site: Arc<Site>,
    path: Vec<u8>,
    /// Why a file was not opened.
    refused: Option<Error>,
}

/// Lets SQLite open the files of a site on this thread. Returns the result, and why a file was refused, if one was.
pub(crate) fn within<T>(site: &Arc<Site>, work: impl FnOnce(&CStr) -> T) -> Result<(T, Option<Error>), Error> {
    if !IS_INSTALLED.get_or_init(|| install().is_some()) {
        return Err(Error::new(ErrorKind::Internal, "open", "cannot replace SQLite's system calls")
            .with_hint("please report this as a bug of leasehold"));
    }
    let path = site.path("").as_os_str().as_bytes().to_owned();
    let opening = Opening { site: site.clone(), path, refused: None };
    let outer = OPENING.replace(Some(opening));
    let restore = Restore(outer);
    let done = work(NAME);
    let refused = OPENING.with_borrow_mut(|opening| opening.as_mut().and_then(|opening| opening.refused.take()));
    drop(restore);
    Ok((done, refused))
}

/// Restores the previous value, even after a panic.
struct Restore(Option<Opening>);

impl Drop for Restore {
    fn drop(&mut self) {
        OPENING.set(self.0.take());
    }
}

#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
fn install() -> Option<()> {
    // SAFETY: SQLite is linked into this program. The result of `sqlite3_vfs_find` lives as long as the process, and so
    // does the registered copy. The types of the system calls are those in SQLite's documentation and source.
    unsafe {
        let unix = ffi::sqlite3_vfs_find(c"unix".as_ptr()).as_mut()?;
        let (get, set) = (unix.xGetSystemCall?, unix.xSetSystemCall?);
        let system = System {
            open: std::mem::transmute::<unsafe extern "C" fn(), Open>(get(unix, c"open".as_ptr())?),
            change_owner: std::mem::transmute::<unsafe extern "C" fn(), ChangeOwner>(get(unix, c"fchown".as_ptr())?),
            change_mode: std::mem::transmute::<unsafe extern "C" fn(), ChangeMode>(get(unix, c"fchmod".as_ptr())?),
            look: unix.xAccess?,
        };
        // Before they are replaced: another thread may call them at once.
        SYSTEM.set(system).ok()?;
        let new_open = std::mem::transmute::<Open, unsafe extern "C" fn()>(open);
        let new_change_owner = std::mem::transmute::<ChangeOwner, unsafe extern "C" fn()>(change_owner);
        let new_change_mode = std::mem::transmute::<ChangeMode, unsafe extern "C" fn()>(change_mode);
        let own = ffi::sqlite3_vfs {
            zName: NAME.as_ptr(),
            pNext: std::ptr::null_mut(),
            xSleep: Some(pause),
            xAccess: Some(look),
            ..*unix
        };
        let done = [
            set(unix, c"open".as_ptr(), Some(new_open)),
            set(unix, c"fchown".as_ptr(), Some(new_change_owner)),
            set(unix, c"fchmod".as_ptr(), Some(new_change_mode)),
            ffi::sqlite3_vfs_register(Box::leak(Box::new(own)), 0),
        ];
        done.iter().all(|code| *code == ffi::SQLITE_OK).then_some(())
    }
}

/// SQLite opens a file.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite passes a NUL-terminated string.
    let wanted = unsafe { CStr::from_ptr(path) };
    match open_here(wanted.to_bytes(), flags) {
        Some(Ok(open)) => open,
        Some(Err(fault)) => {
            set_errno(fault);
            -1
        }
        None => match SYSTEM.get() {
            // SAFETY: the original function, with its own arguments.
            Some(system) => unsafe { (system.open)(path, flags, mode) },
            None => -1,
        },
    }
}

/// Opens a path of the site that this thread is opening.
fn open_here(wanted: &[u8], flags: c_int) -> Option<Result<c_int, Errno>> {
    let here = |opening: &RefCell<Option<Opening>>| {
        let mut opening = opening.try_borrow_mut().ok()?;
        let opening = opening.as_mut()?;
        let rest = wanted.strip_prefix(opening.path.as_slice())?;
        let suffix = SUFFIXES.into_iter().find(|suffix| suffix.as_bytes() == rest)?;
        Some(match opening.site.open(suffix, OFlags::from_bits_retain(flags.cast_unsigned())) {
            Ok(open) => Ok(open.into_raw_fd()),
            Err(Refusal::System(fault)) => {
                if error::is_limit(fault) {
                    let path = opening.site.path(suffix);
                    opening.refused.get_or_insert(error::io_failed("cannot open the file", &path, fault.into()));
                }
                Err(fault)
            }
            Err(Refusal::Unfit(error)) => {
                opening.refused.get_or_insert(error);
                // After this error SQLite does not retry for reading what it could not write.
                Err(Errno::ISDIR)
            }
        })
    };
    OPENING.try_with(here).ok().flatten()
}

/// SQLite checks whether a file exists.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn look(vfs: *mut ffi::sqlite3_vfs, path: *const c_char, what: c_int, found: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a NUL-terminated string.
    let wanted = unsafe { CStr::from_ptr(path) };
    match SYSTEM.get() {
        Some(_) if is_strangers_journal(wanted.to_bytes()) => {
            // SAFETY: SQLite passes where to store the result.
            unsafe { *found = 0 };
            ffi::SQLITE_OK
        }
        // SAFETY: the original function, with its own arguments.
        Some(system) => unsafe { (system.look)(vfs, path, what, found) },
        None => ffi::SQLITE_IOERR_ACCESS,
    }
}

/// Whether this is a journal beside the site's file that cannot be SQLite's. If that is unknown, it may be.
fn is_strangers_journal(wanted: &[u8]) -> bool {
    let here = |opening: &RefCell<Option<Opening>>| {
        let opening = opening.try_borrow().ok()?;
        let opening = opening.as_ref()?;
        let rest = wanted.strip_prefix(opening.path.as_slice()).filter(|rest| *rest == JOURNAL.as_bytes());
        let journal = rest.and_then(|_| opening.site.stat(JOURNAL).ok().flatten())?;
        Some(opening.site.check_owner(JOURNAL, &journal).is_err())
    };
    OPENING.try_with(here).ok().flatten().unwrap_or(false)
}

/// SQLite gives a file to the owner of another one. Ours keep their owner.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn change_owner(file: c_int, user: libc::uid_t, group: libc::gid_t) -> c_int {
    match SYSTEM.get() {
        // SAFETY: the original function, with its own arguments.
        Some(system) if !is_opening() => unsafe { (system.change_owner)(file, user, group) },
        _ => 0,
    }
}

/// SQLite gives a new file the mode of another one. Ours have theirs from [`Site::open`].
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn change_mode(file: c_int, mode: libc::mode_t) -> c_int {
    match SYSTEM.get() {
        // SAFETY: the original function, with its own arguments.
        Some(system) if !is_opening() => unsafe { (system.change_mode)(file, mode) },
        _ => 0,
    }
}

/// Whether this thread is opening files of a site.
fn is_opening() -> bool {
    OPENING.try_with(|opening| opening.try_borrow().is_ok_and(|opening| opening.is_some())).unwrap_or(false)
}

/// SQLite waits for other processes. It cannot be made to give up, but without pauses it gives up by itself.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn pause(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    let wanted = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
    std::thread::sleep(wanted.min(database::patience_left()));
    micros
}

#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
fn set_errno(fault: Errno) {
    // SAFETY: the address of this thread's own `errno`.
    unsafe {
        #[cfg(target_os = "linux")]
        let errno = libc::__errno_location();
        #[cfg(not(target_os = "linux"))]
        let errno = libc::__error();
        *errno = fault.raw_os_error();
    }
}
