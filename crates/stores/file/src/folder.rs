//! The folder beside the file, with the sockets and liveness files of the processes that use it. A marker file shows
//! that it is leasehold's.
//!
//! In a folder that a group shares, any member may create any name. So links in it are not followed, and a file that
//! other processes are to reach is completed in a private folder before it gets its name.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use leasehold_core::Error;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::directory::{Rights, Site, errno, identity, kind, open_to_list};
use crate::{database, error};

/// Suffix of the folder's name after that of the file.
pub(crate) const SUFFIX: &str = ".d";
/// The marker file. The process that creates the store locks it.
const MARK: &str = "opening";
/// Name of an incomplete file, in a private folder.
const UNFINISHED: &str = "it";
/// An incomplete file of this age was left behind.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);
/// Prefix and suffix of the temporary name under which the folder is created beside the file.
const ASIDE: (&str, &str) = (".leasehold.", ".new");
/// Maximum number of names beside the file that are scanned for leftovers: the directory may be of any size.
const SCANNED_NAMES_MAX: usize = 4_096;
/// Attempts to create or open the folder while other processes remove it.
const TRIES_MAX: usize = 8;

/// The folder, pinned.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) open: OwnedFd,
    /// For messages, and for systems without /proc.
    pub(crate) path: PathBuf,
    /// Access rights of new files in it.
    rights: Rights,
    stat: Stat,
}

impl Folder {
    /// Opens the folder of a file, and creates it with these rights if it is missing. Another user's folder is refused.
    pub(crate) fn enter(site: &Site, rights: Rights) -> Result<Self, Error> {
        let path = site.path(SUFFIX);
        let cannot = |fault: Errno| error::io_failed("cannot create the folder", &path, fault.into());
        for _ in 0..TRIES_MAX {
            if let Some(folder) = Self::find(site, rights)? {
                return if folder.is_marked() { Ok(folder) } else { Err(error::reserved_folder(&path)) };
            }
            match Self::make(site, rights.of_writers()) {
                Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(fault) => return Err(cannot(fault)),
            }
        }
        Err(error::replaced())
    }

    /// The folder, if it exists.
    pub(crate) fn find(site: &Site, rights: Rights) -> Result<Option<Self>, Error> {
        let path = site.path(SUFFIX);
        let open = match open_to_list(site.directory.open.as_fd(), &site.beside(SUFFIX)) {
            Ok(open) => open,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => return Err(error::reserved_folder(&path)),
            Err(fault) => return Err(error::io_failed("cannot use the folder", &path, fault.into())),
        };
        let stat = fstat(&open).map_err(|fault| error::io_failed("cannot use the folder", &path, fault.into()))?;
        site.check_owner(SUFFIX, &stat)?;
        Ok(Some(Self { open, path, rights: rights.of_writers(), stat }))
    }

    /// Creates the folder with its marker and rights where no other user can reach it, then renames it into place. An
    /// existing one is never changed: a member of the group may have moved another folder of this user there.
    fn make(site: &Site, rights: Rights) -> Result<(), Errno> {
        let aside = TempFolder::locked(&site.directory.open)?;
        mkdirat(&aside.open, UNFINISHED, Mode::RWXU)?;
        let made = Self::prepare(&aside, rights).and_then(|()| {
            let (from, to) = (&aside.open, &site.directory.open);
            match renameat_with(from, UNFINISHED, to, site.beside(SUFFIX), RenameFlags::NOREPLACE) {
                // Not every file system supports this flag.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if site.stat(SUFFIX)?.is_none() => {
                    renameat(from, UNFINISHED, to, site.beside(SUFFIX))
                }
                moved => moved,
            }
        });
        if made.is_err() {
            aside.remove_folder();
        }
        made
    }

    /// Removes what processes left beside the file when they ended while creating the folder: only this user's entries
    /// that no process is using. A process in the middle of this has the folder locked; on file systems without such
    /// locks, the folder must be old.
    pub(crate) fn clear_beside(site: &Site) {
        let within = &site.directory.open;
        // The directory may be pinned without the right to list it.
        let Ok(listed) = open_to_list(within.as_fd(), OsStr::new(".")) else { return };
        let entries = Dir::read_from(&listed).into_iter().flatten().flatten().take(SCANNED_NAMES_MAX);
        for name in entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned)) {
            if !is_aside(&name) {
                continue;
            }
            let Ok(open) = open_to_list(within.as_fd(), OsStr::new(&name)) else { continue };
            let Ok(found) = fstat(&open) else { continue };
            let is_left = match flock(&open, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(Errno::WOULDBLOCK) => false,
                Err(_) => is_old(&found),
            };
            if is_left && found.st_uid == rustix::process::geteuid().as_raw() {
                TempFolder { within, name, open }.remove_folder();
            }
        }
    }

    fn prepare(aside: &TempFolder<'_>, rights: Rights) -> Result<(), Errno> {
        let folder = open_to_list(aside.open.as_fd(), OsStr::new(UNFINISHED))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = openat(&folder, MARK, flags, Mode::RUSR | Mode::WUSR)?;
        // If this user is not in the group, it stays with the user's own group.
        let give = |made: &OwnedFd, mode, own| {
            Rights { mode, ..rights }.give(made).or_else(|_| Rights { mode: own, group: None }.give(made))
        };
        give(&mark, rights.mode, 0o600).map_err(|fault| errno(&fault))?;
        give(&folder, mode(rights.mode), 0o700).map_err(|fault| errno(&fault))
    }

    fn is_marked(&self) -> bool {
        self.stat_of(MARK).is_some_and(|mark| kind(&mark) == FileType::RegularFile)
    }

    fn stat_of(&self, name: &str) -> Option<Stat> {
        statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Whether it is still the folder beside the file.
    pub(crate) fn is_current(&self, site: &Site) -> bool {
        site.stat(SUFFIX).ok().flatten().is_some_and(|there| identity(&there) == identity(&self.stat))
    }

    /// Names in it that are valid UTF-8, as ours are.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<> {
        let entries = Dir::read_from(&self.open).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
    }

    /// Path of an entry.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn way(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens an entry of this kind. A link is not followed, and opening a pipe does not wait for its other end.
    pub(crate) fn look(&self, name: &str, wanted: FileType) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&self.open, name, flags, Mode::empty())?;
        match kind(&fstat(&open)?) == wanted {
            true => Ok(open.into()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.open, name, AtFlags::empty());
    }

    /// Starts a new file, which no other user can reach until it is finished.
    pub(crate) fn begin(&self, id: impl std::fmt::Display) -> io::Result<Unfinished<'_>> {
        Ok(Unfinished { folder: self, aside: TempFolder::new(&self.open, format!("{id}.new"))? })
    }

    /// Removes files that processes left incomplete: names of our own only.
    pub(crate) fn clear_leftovers(&self) {
        for name in self.names() {
            if is_orphaned(&name, |live| self.stat_of(live).is_some()) {
                self.remove(&name);
            }
            if is_unfinished(&name) && self.stat_of(&name).is_some_and(|left| is_old(&left)) {
                if let Ok(open) = open_to_list(self.open.as_fd(), OsStr::new(&name)) {
                    drop(Unfinished { folder: self, aside: TempFolder { within: &self.open, name, open } });
                } else {
                    self.remove(&name);
                }
            }
        }
    }
}

/// A private temporary folder, removed at the end.
struct TempFolder<'a> {
    within: &'a OwnedFd,
    name: String,
    open: OwnedFd,
}

impl<'a> TempFolder<'a> {
    fn new(within: &'a OwnedFd, name: String) -> Result<Self, Errno> {
        mkdirat(within, &name, Mode::RWXU)?;
        let open = open_to_list(within.as_fd(), OsStr::new(&name));
        let open = open.inspect_err(|_| {
            let _ = unlinkat(within, &name, AtFlags::REMOVEDIR);
        })?;
        let aside = Self { within, name, open };
        let Stat { st_uid, st_mode, .. } = fstat(&aside.open)?;
        // A member of the group may have replaced it.
        if st_uid != rustix::process::geteuid().as_raw() || st_mode & 0o077 != 0 {
            return Err(Errno::ACCESS);
        }
        Ok(aside)
    }

    /// A temporary folder beside the file, which other processes do not remove while it is open.
    fn locked(within: &'a OwnedFd) -> Result<Self, Errno> {
        for _ in 0..TRIES_MAX {
            let name = format!("{}{}{}", ASIDE.0, unique(), ASIDE.1);
            let aside = match Self::new(within, name) {
                // Another process took it for a leftover before it was locked.
                Err(Errno::NOENT) => continue,
                aside => aside?,
            };
            // Not every file system supports it. A process that has the lock is about to remove the folder.
            let is_taken = flock(&aside.open, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
            let there = statat(within, &aside.name, AtFlags::SYMLINK_NOFOLLOW).map(|there| identity(&there));
            if !is_taken && there.is_ok() && there == fstat(&aside.open).map(|open| identity(&open)) {
                return Ok(aside);
            }
        }
        Err(Errno::NOENT)
    }

    /// Removes an incomplete folder and its marker.
    fn remove_folder(&self) {
        if let Ok(unfinished) = open_to_list(self.open.as_fd(), OsStr::new(UNFINISHED)) {
            let _ = unlinkat(&unfinished, MARK, AtFlags::empty());
        }
        let _ = unlinkat(&self.open, UNFINISHED, AtFlags::REMOVEDIR);
    }
}

impl Drop for TempFolder<'_> {
    fn drop(&mut self) {
        let _ = unlinkat(self.within, &self.name, AtFlags::REMOVEDIR);
    }
}

/// A new file for the folder, not finished yet.
pub(crate) struct Unfinished<'a> {
    folder: &'a Folder,
    aside: TempFolder<'a>,
}

impl Unfinished<'_> {
    /// Where it is made: a folder and a name in it.
    pub(crate) fn location(&self) -> (&OwnedFd, &'static str) {
        (&self.aside.open, UNFINISHED)
    }

    /// A path short enough for a socket's address, which is limited to about a hundred bytes.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.aside.open, &self.folder.path.join(&self.aside.name)).join(UNFINISHED)
    }

    /// Its access rights.
    pub(crate) fn rights(&self) -> Rights {
        self.folder.rights
    }

    /// Gives it its name in the folder.
    pub(crate) fn finish(self, name: &str) -> io::Result<()> {
        Ok(renameat(&self.aside.open, UNFINISHED, &self.folder.open, name)?)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let _ = unlinkat(&self.aside.open, UNFINISHED, AtFlags::empty());
    }
}

fn way(open: &OwnedFd, path: &Path) -> PathBuf {
    if cfg!(target_os = "linux") { format!("/proc/self/fd/{}", open.as_raw_fd()).into() } else { path.to_owned() }
}

/// Users who may read and write the file may enter and change the folder. New files in it belong to its group.
fn mode(file: u32) -> u32 {
    let rights = file & 0o666;
    let group = if rights & 0o060 == 0 { 0 } else { 0o2000 };
    group | rights | ((rights & 0o444) >> 2)
}

/// A unique name, as long as a client's.
pub(crate) fn unique() -> String {
    use std::hash::BuildHasher;
    let part = |salt: u8| {
        std::hash::RandomState::new().hash_one((salt, std::process::id(), leasehold_clock::now().as_nanos()))
    };
    format!("{:016x}{:016x}", part(1), part(2))
}

/// Keeps other processes from creating the file at the same time. It is unlocked explicitly, because a child forked
/// meanwhile has the descriptor too.
pub(crate) struct CreationLock(File);

impl CreationLock {
    pub(crate) fn at(folder: &Folder) -> Result<Self, Error> {
        let mark = folder.path.join(MARK);
        let cannot = |fault| error::io_failed("cannot create the file", &mark, fault);
        let file = folder.look(MARK, FileType::RegularFile).map_err(cannot)?;
        for tries in 0.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(fault)) => return Err(cannot(fault)),
                Err(TryLockError::WouldBlock) if database::should_retry(tries) => {}
                Err(TryLockError::WouldBlock) => return Err(error::stuck_creation()),
            }
        }
        Ok(Self(file))
    }
}

impl Drop for CreationLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn is_old(left: &Stat) -> bool {
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(left.st_mtime).unwrap_or_default());
    made.elapsed().is_ok_and(|age| age > LEFTOVER_AGE)
}

fn is_unfinished(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_suffix(".new").is_some_and(is_client) || name.strip_prefix("new-").is_some_and(digits)
}

fn is_aside(name: &str) -> bool {
    name.strip_prefix(ASIDE.0).and_then(|rest| rest.strip_suffix(ASIDE.1)).is_some_and(is_client)
}

/// A socket exists only as long as its liveness file.
fn is_orphaned(name: &str, is_there: impl Fn(&str) -> bool) -> bool {
    let alone = |client: &str| is_client(client) && !is_there(&format!("{client}.live"));
    name.strip_suffix(".sock").is_some_and(alone)
}

fn is_client(hex: &str) -> bool {
    hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}
