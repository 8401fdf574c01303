//! The folder beside the file: sockets and liveness files of the processes that use it. It is ours only with our mark in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::Error;

use crate::{database, error};

/// Marks the folder as ours; locked by whoever makes the file.
const MARK: &str = "opening";
/// What is unfinished for this long was left behind.
const LEFTOVER: Duration = Duration::from_secs(60 * 60);

/// Where it is.
pub(crate) fn of(path: &Path) -> PathBuf {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".d");
    folder.into()
}

/// Makes sure that it is there, as open to others as the file is. A folder of that name that is somebody else's is refused.
pub(crate) fn ensure(path: &Path) -> Result<(), Error> {
    let folder = of(path);
    let cannot = |fault| error::place("the folder cannot be made:", &folder, fault);
    match fs::create_dir(&folder) {
        Ok(()) => {}
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
            let marked = folder.join(MARK).is_file();
            if marked {
                return Ok(());
            }
            let empty = fs::read_dir(&folder).map_err(cannot)?.next().is_none();
            // One that was just made by another process is empty, or has its mark by now.
            if !empty && !folder.join(MARK).is_file() {
                return Err(error::somebodys_folder(&folder));
            }
        }
        Err(fault) => return Err(cannot(fault)),
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o666).open(folder.join(MARK)).map_err(cannot)?;
    if let Ok(file) = fs::metadata(path) {
        follow(path, &file).map_err(cannot)?;
    }
    Ok(())
}

/// Gives the folder the rights and the group of the file, where it is ours to give.
pub(crate) fn follow(path: &Path, file: &fs::Metadata) -> io::Result<()> {
    let folder = of(path);
    for (path, mode) in [(folder.join(MARK), file.mode() & 0o666), (folder.clone(), mode(file.mode()))] {
        if fs::metadata(&path)?.uid() == rustix::process::geteuid().as_raw() {
            // Where the group cannot be given, it stays with its maker.
            let _ = chown(&path, None, Some(file.gid()));
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// Who may read and write the file may enter and change the folder. What is made in it belongs to its group, whoever makes it.
pub(crate) fn mode(file: u32) -> u32 {
    let rights = file & 0o666;
    let group = if rights & 0o060 == 0 { 0 } else { 0o2000 };
    group | rights | ((rights & 0o444) >> 2)
}

/// Keeps other processes from making the file at the same time. Let go explicitly: a child that was forked meanwhile has it too.
pub(crate) struct Alone(File);

impl Alone {
    pub(crate) fn at(path: &Path) -> Result<Self, Error> {
        let mark = of(path).join(MARK);
        let cannot = |fault| error::place("the file cannot be made:", &mark, fault);
        let file = File::open(&mark).map_err(cannot)?;
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

/// Removes what processes left that ended while they were making it: names of our own only.
pub(crate) fn clear_leftovers(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| is_orphaned(folder, name)) {
            let _ = fs::remove_file(entry.path());
        }
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|made| made.elapsed().ok());
        if name.to_str().is_some_and(is_unfinished) && age.is_some_and(|age| age > LEFTOVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_unfinished(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_suffix(".new").is_some_and(is_client) || name.strip_prefix("new-").is_some_and(digits)
}

/// A socket is there only while its liveness file is.
fn is_orphaned(folder: &Path, name: &str) -> bool {
    let alone = |client: &str| is_client(client) && !folder.join(format!("{client}.live")).exists();
    name.strip_suffix(".sock").is_some_and(alone)
}

fn is_client(hex: &str) -> bool {
    hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}
