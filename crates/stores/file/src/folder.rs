//! The folder beside the file: sockets and liveness files of the processes that use it. It is ours only with our mark in it.
//!
//! Where a group shares it, a member may put anything there under any name: nothing in it is followed, and what others are to reach is
//! finished in a folder of this user's own before it gets its name.

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

/// What stands behind the name of the file in that of the folder.
pub(crate) const SUFFIX: &str = ".d";
/// Marks the folder as ours; locked by whoever makes the file.
const MARK: &str = "opening";
/// The name of what is not finished, in a folder of its own.
const UNFINISHED: &str = "it";
/// What is unfinished for this long was left behind.
const LEFTOVER: Duration = Duration::from_secs(60 * 60);
/// A folder that is being made stands beside the file under a name of its own, between these.
const ASIDE: (&str, &str) = (".leasehold.", ".new");
/// How many names beside the file are looked at for what was left there: the file may stand in a folder with any number of others.
const LOOK_MAX: usize = 4_096;
/// How many times the folder is made or opened while others remove it.
const TRIES: usize = 8;

/// The folder, pinned.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) open: OwnedFd,
    /// For messages, and for systems without /proc.
    pub(crate) path: PathBuf,
    /// Who may use what is made in it.
    rights: Rights,
    stat: Stat,
}

impl Folder {
    /// Enters the folder of a file with these rights, and makes it where there is none. One that is somebody else's is refused.
    pub(crate) fn enter(site: &Site, rights: Rights) -> Result<Self, Error> {
        let path = site.path(SUFFIX);
        let cannot = |fault: Errno| error::place("the folder cannot be made:", &path, fault.into());
        for _ in 0..TRIES {
            if let Some(folder) = Self::find(site, rights)? {
                return if folder.is_marked() { Ok(folder) } else { Err(error::somebodys_folder(&path)) };
            }
            match Self::make(site, rights.of_writers()) {
                Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(fault) => return Err(cannot(fault)),
            }
        }
        Err(error::replaced())
    }

    /// The folder, if it is there.
    pub(crate) fn find(site: &Site, rights: Rights) -> Result<Option<Self>, Error> {
        let path = site.path(SUFFIX);
        let open = match open_to_list(site.directory.open.as_fd(), &site.beside(SUFFIX)) {
            Ok(open) => open,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => return Err(error::somebodys_folder(&path)),
            Err(fault) => return Err(error::place("the folder cannot be used:", &path, fault.into())),
        };
        let stat = fstat(&open).map_err(|fault| error::place("the folder cannot be used:", &path, fault.into()))?;
        site.check_owner(SUFFIX, &stat)?;
        Ok(Some(Self { open, path, rights: rights.of_writers(), stat }))
    }

    /// Makes the folder, with its mark and its rights, where nobody else can reach it, and moves it to its place. One that is there
    /// already is never changed: a member of the group may have put another folder of this user under that name.
    fn make(site: &Site, rights: Rights) -> Result<(), Errno> {
        let aside = Aside::locked(&site.directory.open)?;
        mkdirat(&aside.open, UNFINISHED, Mode::RWXU)?;
        let made = Self::prepare(&aside, rights).and_then(|()| {
            let (from, to) = (&aside.open, &site.directory.open);
            match renameat_with(from, UNFINISHED, to, site.beside(SUFFIX), RenameFlags::NOREPLACE) {
                // Not every file system knows it.
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

    /// Removes what processes left beside the file that ended while they were making the folder: what this user made, and nobody is
    /// making now. Who makes one has it locked; where a file system knows no such lock, it must be old.
    pub(crate) fn clear_beside(site: &Site) {
        let within = &site.directory.open;
        // It may be pinned without the right to list it.
        let Ok(listed) = open_to_list(within.as_fd(), OsStr::new(".")) else { return };
        let entries = Dir::read_from(&listed).into_iter().flatten().flatten().take(LOOK_MAX);
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
                Aside { within, name, open }.remove_folder();
            }
        }
    }

    fn prepare(aside: &Aside<'_>, rights: Rights) -> Result<(), Errno> {
        let folder = open_to_list(aside.open.as_fd(), OsStr::new(UNFINISHED))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = openat(&folder, MARK, flags, Mode::RUSR | Mode::WUSR)?;
        // Of a group that this user is not in: then it stays with its maker.
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

    /// Whether it is still the one beside the file.
    pub(crate) fn is_current(&self, site: &Site) -> bool {
        site.stat(SUFFIX).ok().flatten().is_some_and(|there| identity(&there) == identity(&self.stat))
    }

    /// The names in it that are text: ours are.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<> {
        let entries = Dir::read_from(&self.open).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
    }

    /// The path of something in it.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn way(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens what stands there, if it is of this kind. A link is not followed, and the other end of a pipe not waited for.
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

    /// Begins to make something: until it is done, nobody else can reach it.
    pub(crate) fn begin(&self, id: impl std::fmt::Display) -> io::Result<Unfinished<'_>> {
        Ok(Unfinished { folder: self, aside: Aside::new(&self.open, format!("{id}.new"))? })
    }

    /// Removes what processes left that ended while they were making it: names of our own only.
    pub(crate) fn clear_leftovers(&self) {
        for name in self.names() {
            if is_orphaned(&name, |live| self.stat_of(live).is_some()) {
                self.remove(&name);
            }
            if is_unfinished(&name) && self.stat_of(&name).is_some_and(|left| is_old(&left)) {
                if let Ok(open) = open_to_list(self.open.as_fd(), OsStr::new(&name)) {
                    drop(Unfinished { folder: self, aside: Aside { within: &self.open, name, open } });
                } else {
                    self.remove(&name);
                }
            }
        }
    }
}

/// A folder that is this user's alone, for making something in it. It is removed in the end.
struct Aside<'a> {
    within: &'a OwnedFd,
    name: String,
    open: OwnedFd,
}

impl<'a> Aside<'a> {
    fn new(within: &'a OwnedFd, name: String) -> Result<Self, Errno> {
        mkdirat(within, &name, Mode::RWXU)?;
        let open = open_to_list(within.as_fd(), OsStr::new(&name));
        let open = open.inspect_err(|_| {
            let _ = unlinkat(within, &name, AtFlags::REMOVEDIR);
        })?;
        let aside = Self { within, name, open };
        let Stat { st_uid, st_mode, .. } = fstat(&aside.open)?;
        // A member of the group may have put another one in its place.
        if st_uid != rustix::process::geteuid().as_raw() || st_mode & 0o077 != 0 {
            return Err(Errno::ACCESS);
        }
        Ok(aside)
    }

    /// One beside the file, which others do not remove while it is open.
    fn locked(within: &'a OwnedFd) -> Result<Self, Errno> {
        for _ in 0..TRIES {
            let name = format!("{}{}{}", ASIDE.0, unique(), ASIDE.1);
            let aside = match Self::new(within, name) {
                // Taken for a leftover before it was opened.
                Err(Errno::NOENT) => continue,
                aside => aside?,
            };
            // Not every file system knows it. One who has it is about to remove it.
            let is_taken = flock(&aside.open, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
            let there = statat(within, &aside.name, AtFlags::SYMLINK_NOFOLLOW).map(|there| identity(&there));
            if !is_taken && there.is_ok() && there == fstat(&aside.open).map(|open| identity(&open)) {
                return Ok(aside);
            }
        }
        Err(Errno::NOENT)
    }

    /// Removes a folder with its mark that was not finished.
    fn remove_folder(&self) {
        if let Ok(unfinished) = open_to_list(self.open.as_fd(), OsStr::new(UNFINISHED)) {
            let _ = unlinkat(&unfinished, MARK, AtFlags::empty());
        }
        let _ = unlinkat(&self.open, UNFINISHED, AtFlags::REMOVEDIR);
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let _ = unlinkat(self.within, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Something that is being made for the folder.
pub(crate) struct Unfinished<'a> {
    folder: &'a Folder,
    aside: Aside<'a>,
}

impl Unfinished<'_> {
    /// Where it is made: a folder and a name in it.
    pub(crate) fn place(&self) -> (&OwnedFd, &'static str) {
        (&self.aside.open, UNFINISHED)
    }

    /// A way to it that is short enough for a socket's address, which has room for some hundred bytes only.
    pub(crate) fn way(&self) -> PathBuf {
        way(&self.aside.open, &self.folder.path.join(&self.aside.name)).join(UNFINISHED)
    }

    /// Who may use it.
    pub(crate) fn rights(&self) -> Rights {
        self.folder.rights
    }

    /// It is done, and gets its name in the folder.
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

/// Who may read and write the file may enter and change the folder. What is made in it belongs to its group, whoever makes it.
fn mode(file: u32) -> u32 {
    let rights = file & 0o666;
    let group = if rights & 0o060 == 0 { 0 } else { 0o2000 };
    group | rights | ((rights & 0o444) >> 2)
}

/// A name for what is made once, as long as a client's.
pub(crate) fn unique() -> String {
    use std::hash::BuildHasher;
    let part = |salt: u8| {
        std::hash::RandomState::new().hash_one((salt, std::process::id(), leasehold_clock::now().as_nanos()))
    };
    format!("{:016x}{:016x}", part(1), part(2))
}

/// Keeps other processes from making the file at the same time. Let go explicitly: a child that was forked meanwhile has it too.
pub(crate) struct Alone(File);

impl Alone {
    pub(crate) fn at(folder: &Folder) -> Result<Self, Error> {
        let mark = folder.path.join(MARK);
        let cannot = |fault| error::place("the file cannot be made:", &mark, fault);
        let file = folder.look(MARK, FileType::RegularFile).map_err(cannot)?;
        for tries in 0.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(fault)) => return Err(cannot(fault)),
                Err(TryLockError::WouldBlock) if database::is_worth_a_try(tries) => {}
                Err(TryLockError::WouldBlock) => return Err(error::stuck_creation()),
            }
        }
        Ok(Self(file))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn is_old(left: &Stat) -> bool {
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(left.st_mtime).unwrap_or_default());
    made.elapsed().is_ok_and(|age| age > LEFTOVER)
}

fn is_unfinished(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_suffix(".new").is_some_and(is_client) || name.strip_prefix("new-").is_some_and(digits)
}

fn is_aside(name: &str) -> bool {
    name.strip_prefix(ASIDE.0).and_then(|rest| rest.strip_suffix(ASIDE.1)).is_some_and(is_client)
}

/// A socket is there only while its liveness file is.
fn is_orphaned(name: &str, is_there: impl Fn(&str) -> bool) -> bool {
    let alone = |client: &str| is_client(client) && !is_there(&format!("{client}.live"));
    name.strip_suffix(".sock").is_some_and(alone)
}

fn is_client(hex: &str) -> bool {
    hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}
