//! How SQLite opens files for this store: through [`Site::open`], so that it never opens, and never gives away, what others put at
//! the paths it uses.
//!
//! SQLite opens by path. As root it gives the log and its index to the owner of the file, and it gives both the file's mode, which with an
//! access list is more than the group has. SQLite lets programs replace these system calls, for the whole process: ours act only inside
//! [`within`], on that thread and for those paths, and pass every other call on. The store has an entry of its own in SQLite's list of file systems, whose pauses end with the caller's patience, and which
//! passes over a journal that a stranger put beside the file: nobody without rights on a file can have written to it.
//!
//! The only place in this crate with `unsafe`: docs/decisions/0014-opening-files.md says why.

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

/// The name in SQLite's list of file systems.
const NAME: &CStr = c"leasehold";
/// What SQLite puts behind the path of a file, for those that it opens beside it.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", JOURNAL];
const JOURNAL: &str = "-journal";

type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type ChangeOwner = unsafe extern "C" fn(c_int, libc::uid_t, libc::gid_t) -> c_int;
type ChangeMode = unsafe extern "C" fn(c_int, libc::mode_t) -> c_int;
type Look = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int;

/// What was there before.
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

/// What this thread opens just now.
struct Opening {
    site: Arc<Site>,
    path: Vec<u8>,
    /// Why a file was not opened.
    refused: Option<Error>,
}

/// Lets SQLite open the files of a site, on this thread; answers what came of it, and why a file was refused, if one was.
pub(crate) fn within<T>(site: &Arc<Site>, work: impl FnOnce(&CStr) -> T) -> Result<(T, Option<Error>), Error> {
    if !IS_INSTALLED.get_or_init(|| install().is_some()) {
        return Err(Error::new(ErrorKind::Internal, "open", "SQLite does not let its system calls be replaced")
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

/// Puts back what was there, also where the work panics.
struct Restore(Option<Opening>);

impl Drop for Restore {
    fn drop(&mut self) {
        OPENING.set(self.0.take());
    }
}

#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
fn install() -> Option<()> {
    // SAFETY: SQLite is linked into this program. What `sqlite3_vfs_find` answers lives as long as the process, and so does the copy
    // that is registered. The types of the system calls are those that SQLite's documentation and source give them.
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
    // SAFETY: SQLite hands over a text that ends in zero.
    let wanted = unsafe { CStr::from_ptr(path) };
    match open_here(wanted.to_bytes(), flags) {
        Some(Ok(open)) => open,
        Some(Err(fault)) => {
            set_errno(fault);
            -1
        }
        None => match SYSTEM.get() {
            // SAFETY: the call that was there before, with what it was to get.
            Some(system) => unsafe { (system.open)(path, flags, mode) },
            None => -1,
        },
    }
}

/// Opens what is ours to open now: a path of the site on this thread.
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
                    opening.refused.get_or_insert(error::place("the file cannot be opened:", &path, fault.into()));
                }
                Err(fault)
            }
            Err(Refusal::Unfit(error)) => {
                opening.refused.get_or_insert(error);
                // With this one SQLite does not try again to read what it could not write.
                Err(Errno::ISDIR)
            }
        })
    };
    OPENING.try_with(here).ok().flatten()
}

/// SQLite looks whether a file is there.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn look(vfs: *mut ffi::sqlite3_vfs, path: *const c_char, what: c_int, found: *mut c_int) -> c_int {
    // SAFETY: SQLite hands over a text that ends in zero.
    let wanted = unsafe { CStr::from_ptr(path) };
    match SYSTEM.get() {
        Some(_) if is_strangers_journal(wanted.to_bytes()) => {
            // SAFETY: SQLite hands over where the answer goes.
            unsafe { *found = 0 };
            ffi::SQLITE_OK
        }
        // SAFETY: the call that was there before, with what it was to get.
        Some(system) => unsafe { (system.look)(vfs, path, what, found) },
        None => ffi::SQLITE_IOERR_ACCESS,
    }
}

/// Whether it is a journal beside the file of this thread's site that cannot be SQLite's. Where that is not known, it may be.
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

/// SQLite gives a file to the owner of another one. Ours stay whose they are.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn change_owner(file: c_int, user: libc::uid_t, group: libc::gid_t) -> c_int {
    match SYSTEM.get() {
        // SAFETY: the call that was there before, with what it was to get.
        Some(system) if !is_opening() => unsafe { (system.change_owner)(file, user, group) },
        _ => 0,
    }
}

/// SQLite gives a new file the mode of another one. Ours have theirs from [`Site::open`].
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn change_mode(file: c_int, mode: libc::mode_t) -> c_int {
    match SYSTEM.get() {
        // SAFETY: the call that was there before, with what it was to get.
        Some(system) if !is_opening() => unsafe { (system.change_mode)(file, mode) },
        _ => 0,
    }
}

/// Whether this thread opens files of a site just now.
fn is_opening() -> bool {
    OPENING.try_with(|opening| opening.try_borrow().is_ok_and(|opening| opening.is_some())).unwrap_or(false)
}

/// SQLite waits for others. It cannot be told to give up, but not to wait any longer: then it gives up by itself.
#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
unsafe extern "C" fn pause(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    let wanted = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
    std::thread::sleep(wanted.min(database::patience_left()));
    micros
}

#[allow(unsafe_code, reason = "docs/decisions/0014-opening-files.md")]
fn set_errno(fault: Errno) {
    // SAFETY: the address of this thread's own number.
    unsafe {
        #[cfg(target_os = "linux")]
        let errno = libc::__errno_location();
        #[cfg(not(target_os = "linux"))]
        let errno = libc::__error();
        *errno = fault.raw_os_error();
    }
}
