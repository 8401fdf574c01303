//! Liveness files: each client keeps a lock on one as long as its process lives. If another process can take the lock,
//! the client's process is gone. This works across pid namespaces and reused pids.
//!
//! On Linux the file is a named pipe, so that the kernel wakes a process that has it open when its last holder ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use leasehold_core::{ClientId, Moment};
use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens, openat};

use crate::folder::Folder;

/// Type of the file. Only Linux reports the end of a pipe's last holder.
const KIND: FileType = if cfg!(target_os = "linux") { FileType::Fifo } else { FileType::RegularFile };

/// Name of a client's liveness file.
pub(crate) fn name(client: ClientId) -> String {
    format!("{client}.live")
}

/// Creates the file and locks it. It gets its name only once it is locked, so it is never seen unlocked while its
/// process lives.
pub(crate) fn hold(folder: &Folder, client: ClientId) -> io::Result<File> {
    let unfinished = folder.begin(client)?;
    let (directory, temp_name) = unfinished.location();
    #[cfg(target_os = "linux")]
    rustix::fs::mknodat(directory, temp_name, KIND, Mode::RUSR | Mode::WUSR, 0)?;
    #[cfg(target_os = "linux")]
    let how = OFlags::NONBLOCK;
    #[cfg(not(target_os = "linux"))]
    let how = OFlags::CREATE | OFlags::EXCL;
    let flags = how | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = openat(directory, temp_name, flags, Mode::RUSR | Mode::WUSR)?.into();
    unfinished.rights().give(&file)?;
    file.try_lock()?;
    unfinished.finish(&name(client))?;
    Ok(file)
}

/// Opens another process's file, to check it and to be notified of its end.
pub(crate) fn look(folder: &Folder, client: ClientId) -> io::Result<File> {
    folder.look(&name(client), KIND)
}

/// Whether its process is certainly gone. Tries a shared lock, so that two observers do not disturb each other.
pub(crate) fn is_free(file: &File) -> bool {
    file.try_lock_shared().is_ok_and(|()| file.unlock().is_ok())
}

/// Modification time of a liveness file. Every [`stamp`] changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(i64, i64);

impl Stamp {
    /// When it was made, if that was with the clock of this boot.
    pub(crate) fn at(self) -> Moment {
        let nanos = self.0.saturating_mul(1_000_000_000).saturating_add(self.1);
        Moment::from_nanos(nanos.unsigned_abs())
    }
}

/// Reads the stamp. A removed file has none, and is never stamped again.
pub(crate) fn stamp_of(file: &File) -> Option<Stamp> {
    let found = file.metadata().ok()?;
    (found.nlink() > 0).then(|| Stamp(found.mtime(), found.mtime_nsec()))
}

/// Signals to all processes that have the file of a client open that it released something they wait for. The
/// modification time is set from the boot clock: the kernel's own advances in steps of some milliseconds and may not
/// change.
pub(crate) fn stamp(file: &File) {
    // If it fails, waiters find out by their recheck.
    let _ = futimens(file, &stamped());
}

/// The same for a client of another process.
pub(crate) fn stamp_at(folder: &Folder, client: ClientId) {
    let Ok(file) = look(folder, client) else { return };
    if futimens(&file, &stamped()).is_err() {
        // A file of another user that we may write.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let _ = futimens(&file, &Timestamps { last_access: now, last_modification: now });
    }
}

fn stamped() -> Timestamps {
    let nanos = leasehold_clock::now().as_nanos();
    let (seconds, rest) = ((nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64);
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: rest },
    }
}

/// Whether a client's process is certainly gone. A missing file proves nothing: the folder may have been cleared.
pub(crate) fn is_gone(folder: &Folder, client: ClientId) -> bool {
    look(folder, client).is_ok_and(|file| is_free(&file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Site;

    fn folder_in(path: &std::path::Path) -> Folder {
        let site = Site::find(&path.join("locks.db"), false).unwrap().unwrap();
        Folder::enter(&site, site.rights()).unwrap()
    }

    #[test]
    fn every_stamp_is_another_to_those_who_have_the_file_open() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder_in(temporary.path());
        let client = ClientId([1, 2]);
        let held = hold(&folder, client).unwrap();
        let seen = look(&folder, client).unwrap();
        let mut stamps = vec![stamp_of(&seen).unwrap()];
        for _ in 0..100 {
            stamp(&held);
            stamps.push(stamp_of(&seen).unwrap());
            stamp_at(&folder, client);
            stamps.push(stamp_of(&seen).unwrap());
        }
        assert!(stamps.windows(2).all(|pair| pair[0] != pair[1]), "{stamps:?}");
    }

    #[test]
    fn a_client_is_gone_when_its_file_is_unlocked() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder_in(temporary.path());
        let client = ClientId([1, 2]);
        assert!(!is_gone(&folder, client), "a missing file proves nothing");
        let held = hold(&folder, client).unwrap();
        assert!(!is_gone(&folder, client));
        let twin = held.try_clone().unwrap();
        drop(held);
        assert!(!is_gone(&folder, client), "another process may have inherited it");
        drop(twin);
        assert!(is_gone(&folder, client));
        assert!(is_gone(&folder, client), "checking does not change it");
    }
}
