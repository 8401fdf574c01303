//! Finds the directory of the file without trusting other users, and pins it by a descriptor.
//!
//! Every directory and link on the path must belong to this user or to root, and no other user may be able to replace
//! the next component; otherwise the store is refused. After that, files are opened, created and removed relative to
//! the descriptor, never by path.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, fchmod, fchown, fstat, openat, statat};
use rustix::io::Errno;

#[cfg(target_os = "linux")]
use crate::rename_rights::listed_for_group;
use crate::rename_rights::others_can_rename;
use crate::{database, error};

/// Maximum number of symbolic links followed in one path.
const LINKS_MAX: usize = 40;
/// Attempts to open a file that changes meanwhile.
const TRIES_MAX: usize = 16;
/// Rechecks of a file's link count in a directory where other users can add and remove names.
const RECHECKS_MAX: usize = 8;
/// Pause between two attempts to open a file on which another process has a lease.
const LEASED_FILE_PAUSE: Duration = Duration::from_millis(5);
/// Magic numbers of SQLite's log, for either byte order of its checksums.
const LOG_MAGIC: [u32; 2] = [0x377f_0682, 0x377f_0683];
/// First number in the index of SQLite's log.
const INDEX_VERSION: u32 = 3_007_000;

/// Opens the inode itself: links are not followed, nothing is read, and closing it releases no lock of SQLite's.
#[cfg(target_os = "linux")]
const INODE_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A pinned directory: it stays the same even if its path changes.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) open: OwnedFd,
    /// The path it was found at, without links.
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
}

/// Location of the file: a directory, and a name in it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) directory: Directory,
    pub(crate) name: OsString,
    /// Names of the log and its index, which every write checks.
    log: OsString,
    index: OsString,
}

/// Access rights of the files that are created for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) mode: u32,
    pub(crate) group: Option<u32>,
}

impl Rights {
    /// Only the rights of users who may write: no other user needs the files beside the store.
    pub(crate) fn of_writers(self) -> Self {
        let group = if self.mode & 0o060 == 0o060 { 0o060 } else { 0 };
        let others = if self.mode & 0o006 == 0o006 { 0o006 } else { 0 };
        Self { mode: 0o600 | group | others, ..self }
    }

    /// Applies them to a file that this process has just created.
    pub(crate) fn give(self, made: impl AsFd) -> io::Result<()> {
        if self.mode & 0o060 != 0
            && let Some(group) = self.group.filter(|group| fstat(&made).map(|made| made.st_gid) != Ok(*group))
        {
            fchown(&made, None, Some(Gid::from_raw(group)))?;
        }
        Ok(fchmod(&made, Mode::from_raw_mode(self.mode))?)
    }
}

/// Why a file is not opened.
#[derive(Debug)]
pub(crate) enum Refusal {
    System(Errno),
    Unfit(Error),
}

impl From<Errno> for Refusal {
    fn from(fault: Errno) -> Self {
        Self::System(fault)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Unfit(error)
    }
}

/// Resolves a path through trusted links only.
struct Walk {
    /// The directories from the root to here.
    passed: Vec<(Directory, OsString)>,
    /// The components still to resolve, in reverse order.
    rest: Vec<OsString>,
    links: usize,
}

impl Site {
    /// Resolves a path. With `make`, missing directories are created for this user only. Without it, the result is
    /// `None` if one is missing.
    pub(crate) fn find(path: &Path, make: bool) -> Result<Option<Arc<Self>>, Error> {
        let mut walk = Walk { passed: Vec::new(), rest: Vec::new(), links: 0 };
        walk.passed.push((Directory::root()?, OsString::new()));
        walk.push(path);
        walk.run(make)
    }

    /// Path of the file, or of one of SQLite's files beside it.
    pub(crate) fn path(&self, suffix: &str) -> PathBuf {
        self.directory.path.join(self.beside(suffix))
    }

    /// Name of a file beside the store.
    pub(crate) fn beside(&self, suffix: &str) -> OsString {
        joined(&self.name, suffix)
    }

    /// Status of the file. A link is not followed.
    pub(crate) fn stat(&self, suffix: &str) -> Result<Option<Stat>, Errno> {
        let name: Cow<'_, OsStr> = match suffix {
            "" => self.name.as_os_str().into(),
            "-wal" => self.log.as_os_str().into(),
            "-shm" => self.index.as_os_str().into(),
            suffix => self.beside(suffix).into(),
        };
        match statat(&self.directory.open, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Whether the path still leads to this directory.
    pub(crate) fn is_current(&self) -> bool {
        let there = statat(CWD, &self.directory.path, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| identity(&there) == identity(&self.directory.stat))
    }

    /// Rights for a new file: only this user, unless root prepared the directory for a group.
    pub(crate) fn rights(&self) -> Rights {
        let prepared = self.group().is_some() && self.directory.stat.st_mode & 0o2000 != 0;
        let group = self.group().filter(|_| prepared);
        Rights { mode: if prepared { 0o660 } else { 0o600 }, group }
    }

    /// Rights of an existing file. If it has an access list, the group bits of its mode are the maximum for all entries
    /// of the list, and the group has an entry of its own.
    pub(crate) fn rights_of(&self, file: &Stat) -> Rights {
        let (mode, group) = (file.st_mode & 0o666, file.st_mode & 0o060);
        let listed = if group == 0 { 0 } else { self.listed_for_group(file) };
        Rights { mode: (mode & !0o060) | (group & listed), group: Some(file.st_gid) }
    }

    /// Rights of the file's group in its access list; none if another file has that name by now.
    #[cfg(target_os = "linux")]
    fn listed_for_group(&self, file: &Stat) -> u32 {
        let itself = openat(&self.directory.open, &self.name, INODE_ONLY, Mode::empty()).ok();
        let itself = itself.filter(|itself| fstat(itself).is_ok_and(|found| identity(&found) == identity(file)));
        itself.map_or(0, listed_for_group)
    }

    #[cfg(not(target_os = "linux"))]
    fn listed_for_group(&self, _: &Stat) -> u32 {
        0o060
    }

    /// The group that shares the directory: root gave it write access, and no other user has any.
    fn group(&self) -> Option<u32> {
        let Stat { st_uid, st_gid, st_mode, .. } = self.directory.stat;
        (st_uid == 0 && st_mode & 0o022 == 0o020).then_some(st_gid)
    }

    /// Refuses a file of an untrusted user. Trusted are this user, root, and members of a group that shares the
    /// directory.
    pub(crate) fn check_owner(&self, suffix: &str, stat: &Stat) -> Result<(), Error> {
        if is_trusted(stat.st_uid) || self.group() == Some(stat.st_gid) {
            return Ok(());
        }
        Err(error::foreign_file(&self.path(suffix), stat.st_uid))
    }

    /// Refuses an empty file that another user created, even a member of the group: its mode would decide who may use
    /// the store.
    pub(crate) fn check_creator(&self, empty: &Stat) -> Result<(), Error> {
        if is_trusted(empty.st_uid) { Ok(()) } else { Err(error::foreign_file(&self.path(""), empty.st_uid)) }
    }

    /// Opens the file, or one of SQLite's files beside it, and checks it before returning it. A new file gets the
    /// rights of the store file.
    pub(crate) fn open(&self, suffix: &str, flags: OFlags) -> Result<OwnedFd, Refusal> {
        if suffix == "-journal" {
            // An existing journal can name any other file, which SQLite would remove. A new one is certainly ours.
            let made = if flags.contains(OFlags::CREATE) { self.create(suffix) } else { Err(Errno::EXIST.into()) };
            return made.map_err(|_| error::journal(&self.path(suffix)).into());
        }
        for _ in 0..TRIES_MAX {
            match self.reopen(suffix, flags) {
                Err(Refusal::System(Errno::NOENT)) if flags.contains(OFlags::CREATE) => {}
                opened => return opened,
            }
            match self.create(suffix) {
                Err(Refusal::System(Errno::EXIST)) => {}
                made => return made,
            }
        }
        Err(error::replaced().into())
    }

    /// Log and index files left by a file that is gone. SQLite wrote them, so they may be removed; anything else under
    /// these names is refused. No connection to a file here may be open, because this opens and closes them.
    pub(crate) fn leftovers(&self) -> Result<Vec<&'static str>, Error> {
        let cannot =
            |suffix, fault: Errno| error::io_failed("cannot create the file", &self.path(suffix), fault.into());
        let mut left = Vec::new();
        if self.stat("-journal").map_err(|fault| cannot("-journal", fault))?.is_some() {
            return Err(error::journal(&self.path("-journal")));
        }
        for suffix in ["-wal", "-shm"] {
            match self.reopen(suffix, OFlags::RDONLY) {
                Ok(_) => left.push(suffix),
                Err(Refusal::System(Errno::NOENT)) => {}
                Err(Refusal::System(Errno::ACCESS)) => return Err(error::no_log(&self.path(suffix))),
                Err(Refusal::System(fault)) => return Err(cannot(suffix, fault)),
                Err(Refusal::Unfit(error)) => return Err(error),
            }
        }
        Ok(left)
    }

    fn create(&self, suffix: &str) -> Result<OwnedFd, Refusal> {
        let file = self.stat("")?.ok_or(Errno::NOENT)?;
        self.check_owner("", &file)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&self.directory.open, self.beside(suffix), flags, Mode::RUSR | Mode::WUSR)?;
        let rights = Rights { group: self.group().or(Some(file.st_gid)), ..self.rights_of(&file) };
        // If this user is not in the group, the file stays with the user's own group, as far as the mode allows.
        rights.give(&made).or_else(|_| Rights { group: None, ..rights }.give(&made)).map_err(|fault| errno(&fault))?;
        Ok(made)
    }

    /// Opens an existing file if it passes the checks.
    #[cfg(target_os = "linux")]
    fn reopen(&self, suffix: &str, flags: OFlags) -> Result<OwnedFd, Refusal> {
        let seen = openat(&self.directory.open, self.beside(suffix), INODE_ONLY, Mode::empty())?;
        let stat = fstat(&seen)?;
        self.check(suffix, &stat)?;
        // Through the descriptor: this is the file that was checked, even if its name now refers to another.
        let itself = format!("/proc/self/fd/{}", seen.as_raw_fd());
        let flags = (flags & OFlags::RWMODE) | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = patiently(|| rustix::fs::open(&itself, flags, Mode::empty()))?;
        self.check_content(suffix, &open)?;
        Ok(open)
    }

    /// Other systems have no descriptor without read access: the file is opened first and checked afterwards.
    #[cfg(not(target_os = "linux"))]
    fn reopen(&self, suffix: &str, flags: OFlags) -> Result<OwnedFd, Refusal> {
        let flags = (flags & OFlags::RWMODE) | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = patiently(|| openat(&self.directory.open, self.beside(suffix), flags, Mode::empty()))?;
        self.check(suffix, &fstat(&open)?)?;
        self.check_content(suffix, &open)?;
        Ok(open)
    }

    /// Refuses links, anything but regular files, files of untrusted users, and files with a second hard link.
    fn check(&self, suffix: &str, stat: &Stat) -> Result<(), Refusal> {
        if kind(stat) != FileType::RegularFile {
            return Err(error::no_file(&self.path(suffix)).into());
        }
        self.check_owner(suffix, stat)?;
        // In a directory that other users can write, one of them may hide a second link during the check.
        let others_write = self.directory.stat.st_mode & 0o022 != 0;
        let mut now = *stat;
        for _ in 0..if others_write { RECHECKS_MAX } else { 1 } {
            if now.st_nlink > 1 {
                return Err(error::several_names(&self.path(suffix)).into());
            }
            now = self.stat(suffix)?.ok_or(Errno::NOENT)?;
            if identity(&now) != identity(stat) {
                return Err(error::replaced().into());
            }
        }
        Ok(())
    }

    /// Refuses content that SQLite did not write but would overwrite. A log whose tail was lost in a power failure may
    /// be zeros, and an unused index is truncated to its first three bytes.
    fn check_content(&self, suffix: &str, open: &OwnedFd) -> Result<(), Refusal> {
        let known: &[[u8; 4]] = match suffix {
            "-wal" => &[LOG_MAGIC[0].to_be_bytes(), LOG_MAGIC[1].to_be_bytes(), [0; 4]],
            "-shm" => &[INDEX_VERSION.to_ne_bytes(), [0; 4]],
            _ => return Ok(()),
        };
        let mut start = [0; 4];
        let read = rustix::io::pread(open, &mut start, 0)?;
        if known.iter().any(|known| known[..read] == start[..read]) {
            return Ok(());
        }
        Err(error::no_log(&self.path(suffix)).into())
    }
}

impl Directory {
    fn root() -> Result<Self, Error> {
        let path = PathBuf::from("/");
        let open = open_directory(CWD, path.as_os_str()).map_err(|fault| cannot_look(&path, fault))?;
        let stat = fstat(&open).map_err(|fault| cannot_look(&path, fault))?;
        let root = Self { open, path, stat };
        root.check_replaceable()?;
        Ok(root)
    }

    /// Whether the next component may be looked up here: only this user and root can replace it.
    fn check_replaceable(&self) -> Result<(), Error> {
        let Stat { st_uid, st_mode, .. } = self.stat;
        if is_stranger(st_uid) {
            return Err(error::foreign_folder(&self.path, st_uid));
        }
        if st_mode & 0o002 != 0 && st_mode & 0o1000 == 0 {
            return Err(error::open_folder(&self.path));
        }
        Ok(())
    }

    /// Whether a directory found here is the one that the path means: no other user can put a different directory of
    /// this user's under its name. The file's own directory needs no such check, because each file in it is checked
    /// when it is used.
    fn check_passage(&self) -> Result<(), Error> {
        match others_can_rename(&self.open, &self.stat) {
            true => Err(error::replaceable_folder(&self.path, self.stat.st_gid)),
            false => Ok(()),
        }
    }

    /// Whether a link found here is the one its creator made: the creator is this user or root, and no other user can
    /// move it.
    fn check_link(&self, name: &OsStr, link: &Stat) -> Result<(), Error> {
        let trusted = is_trusted(link.st_uid) && !others_can_rename(&self.open, &self.stat);
        if trusted { Ok(()) } else { Err(error::foreign_link(&self.path.join(name), link.st_uid)) }
    }
}

impl Walk {
    fn push(&mut self, path: &Path) {
        if path.is_absolute() {
            self.passed.truncate(1);
        }
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.rest.push(name.to_owned()),
                Component::ParentDir => self.rest.push(OsString::from("..")),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn run(mut self, make: bool) -> Result<Option<Arc<Site>>, Error> {
        while let Some(part) = self.rest.pop() {
            if part == ".." {
                self.passed.truncate(self.passed.len().saturating_sub(1).max(1));
                continue;
            }
            let is_last = self.rest.is_empty();
            let (here, _) = self.passed.last().ok_or_else(error::no_path)?;
            let path = here.path.join(&part);
            let found = match look_up(&here.open, &part) {
                Ok(found) => found,
                Err(Errno::NOENT) if is_last => return self.end(part),
                Err(Errno::NOENT) if make => {
                    here.check_passage()?;
                    make_directory(&here.open, &part)
                        .map_err(|fault| error::io_failed("cannot create the folder", &path, fault.into()))?;
                    self.rest.push(part);
                    continue;
                }
                Err(Errno::NOENT) => return Ok(None),
                Err(fault) => return Err(cannot_look(&path, fault)),
            };
            match (kind(&found.stat), found.open) {
                (FileType::Symlink, open) => {
                    here.check_link(&part, &found.stat)?;
                    let target = read_link(&here.open, &part, open).map_err(|fault| cannot_look(&path, fault))?;
                    self.links += 1;
                    if self.links > LINKS_MAX {
                        return Err(cannot_look(&path, Errno::LOOP));
                    }
                    self.push(&target);
                }
                _ if is_last => return self.end(part),
                (FileType::Directory, Some(open)) => {
                    here.check_passage()?;
                    let next = Directory { open, path, stat: found.stat };
                    next.check_replaceable()?;
                    self.passed.push((next, part));
                }
                _ => return Err(cannot_look(&path, Errno::NOTDIR)),
            }
        }
        // The path is the root itself, or ends in "..".
        let (here, name) = self.passed.pop().ok_or_else(error::no_path)?;
        match self.passed.is_empty() {
            true => Err(error::is_a_folder(&here.path)),
            false => self.end(name),
        }
    }

    fn end(mut self, name: OsString) -> Result<Option<Arc<Site>>, Error> {
        let (directory, _) = self.passed.pop().ok_or_else(error::no_path)?;
        if !is_trusted(directory.stat.st_uid) {
            return Err(error::foreign_folder(&directory.path, directory.stat.st_uid));
        }
        let [log, index] = ["-wal", "-shm"].map(|suffix| joined(&name, suffix));
        Ok(Some(Arc::new(Site { directory, name, log, index })))
    }
}

struct Found {
    stat: Stat,
    /// Descriptor of the entry; always present for a directory.
    open: Option<OwnedFd>,
}

/// Looks up a name.
#[cfg(target_os = "linux")]
fn look_up(here: &OwnedFd, name: &OsStr) -> Result<Found, Errno> {
    let open = openat(here, name, INODE_ONLY, Mode::empty())?;
    Ok(Found { stat: fstat(&open)?, open: Some(open) })
}

#[cfg(not(target_os = "linux"))]
fn look_up(here: &OwnedFd, name: &OsStr) -> Result<Found, Errno> {
    let stat = statat(here, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if kind(&stat) != FileType::Directory {
        return Ok(Found { stat, open: None });
    }
    let open = open_directory(here, name)?;
    let stat = fstat(&open)?;
    Ok(Found { stat, open: Some(open) })
}

/// Target of a link: of the one that was checked, if it is open.
fn read_link(here: &OwnedFd, name: &OsStr, open: Option<OwnedFd>) -> Result<PathBuf, Errno> {
    let target = match open {
        Some(link) => rustix::fs::readlinkat(&link, "", Vec::new())?,
        None => rustix::fs::readlinkat(here, name, Vec::new())?,
    };
    Ok(OsString::from_vec(target.into_bytes()).into())
}

#[cfg(target_os = "linux")]
pub(crate) fn open_directory(here: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(here, name, INODE_ONLY | OFlags::DIRECTORY, Mode::empty())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open_directory(here: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    open_to_list(here.as_fd(), name)
}

/// Opens a directory itself, also for reading the names in it.
pub(crate) fn open_to_list(here: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(here, name, flags, Mode::empty())
}

/// Opens a file. If another process has a lease on it (`F_SETLEASE`), retries until this thread's patience ends: the
/// kernel would wait for up to 45 seconds.
fn patiently(open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Refusal> {
    loop {
        match open() {
            Err(Errno::AGAIN) if database::patience_left().is_zero() => return Err(error::leased().into()),
            Err(Errno::AGAIN) => std::thread::sleep(LEASED_FILE_PAUSE.min(database::patience_left())),
            opened => return Ok(opened?),
        }
    }
}

/// Creates a directory for this user only. Another process may create it first.
fn make_directory(here: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::mkdirat(here, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn joined(name: &OsStr, suffix: &str) -> OsString {
    let mut joined = name.to_owned();
    joined.push(suffix);
    joined
}

fn cannot_look(path: &Path, fault: Errno) -> Error {
    error::io_failed("cannot resolve the path", path, fault.into())
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Device and inode.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the types differ between systems")]
    (stat.st_dev as u64, stat.st_ino as u64)
}

pub(crate) fn errno(fault: &io::Error) -> Errno {
    Errno::from_io_error(fault).unwrap_or(Errno::IO)
}

/// Whether this is the current user or root. In a user namespace that does not map this user, the user cannot be told
/// from other unmapped users, so only root is trusted.
#[must_use]
pub fn is_trusted(user: u32) -> bool {
    user == 0 || (user == rustix::process::geteuid().as_raw() && !is_outside(user))
}

/// Whether a file or folder belongs to an untrusted user: not this user, not root, and not the user who created the enclosing user
/// namespace.
#[must_use]
pub fn is_stranger(user: u32) -> bool {
    !is_trusted(user) && !is_outside(user)
}

/// Whether a user has no number in this user namespace. Such a directory belongs to the creator of the namespace, or to
/// the system around it.
fn is_outside(user: u32) -> bool {
    let read = |path: &str| {
        let mut text = String::new();
        File::open(path).and_then(|mut file| file.read_to_string(&mut text)).ok().map(|_| text)
    };
    let unknown = read("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok());
    let Some(known) = read("/proc/self/uid_map").filter(|_| unknown == Some(user)) else { return false };
    !known.lines().any(|range| {
        let numbers: Vec<u64> = range.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let (Some(first), Some(count)) = (numbers.first(), numbers.get(2)) else { return true };
        (*first..first.saturating_add(*count)).contains(&u64::from(user))
    })
}
