//! Liveness files: each client holds a lock on one as long as its process lives. Whoever can lock it knows that the process is gone,
//! also across process id namespaces and reused process ids.
//!
//! On Linux the file is a named pipe, so that whoever has it open is told by the kernel when the last process that held it ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use leasehold_core::{ClientId, Moment};
use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens, openat};

use crate::folder::Folder;

/// What the file is: elsewhere than on Linux a pipe does not tell of the end of its last holder.
const KIND: FileType = if cfg!(target_os = "linux") { FileType::Fifo } else { FileType::RegularFile };

/// The liveness file of a client.
pub(crate) fn name(client: ClientId) -> String {
    format!("{client}.live")
}

/// Makes the file and holds it. It gets its name only when it is locked: nobody ever sees it free while its process lives.
pub(crate) fn hold(folder: &Folder, client: ClientId) -> io::Result<File> {
    let unfinished = folder.begin(client)?;
    let (place, it) = unfinished.place();
    #[cfg(target_os = "linux")]
    rustix::fs::mknodat(place, it, KIND, Mode::RUSR | Mode::WUSR, 0)?;
    #[cfg(target_os = "linux")]
    let how = OFlags::NONBLOCK;
    #[cfg(not(target_os = "linux"))]
    let how = OFlags::CREATE | OFlags::EXCL;
    let flags = how | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = openat(place, it, flags, Mode::RUSR | Mode::WUSR)?.into();
    unfinished.rights().give(&file)?;
    file.try_lock()?;
    unfinished.finish(&name(client))?;
    Ok(file)
}

/// Opens the file of another process, to look at it and to be told of its end.
pub(crate) fn look(folder: &Folder, client: ClientId) -> io::Result<File> {
    folder.look(&name(client), KIND)
}

/// Whether its process is certain to be gone. A shared lock is tried, so that two who look do not hinder each other.
pub(crate) fn is_free(file: &File) -> bool {
    file.try_lock_shared().is_ok_and(|()| file.unlock().is_ok())
}

/// What a file's time of change stood at: it is another after every [`stamp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(i64, i64);

impl Stamp {
    /// When it was made, where that was with the clock of this boot.
    pub(crate) fn at(self) -> Moment {
        let nanos = self.0.saturating_mul(1_000_000_000).saturating_add(self.1);
        Moment::from_nanos(nanos.unsigned_abs())
    }
}

/// Reads the stamp. A file that was removed has none: nobody stamps it any more.
pub(crate) fn stamp_of(file: &File) -> Option<Stamp> {
    let found = file.metadata().ok()?;
    (found.nlink() > 0).then(|| Stamp(found.mtime(), found.mtime_nsec()))
}

/// Says to all who have the file of a client open that it gave something back for which others wait. Its time of change is nobody's
/// clock: the one of this boot makes it another each time, where the kernel's goes in steps of some milliseconds.
pub(crate) fn stamp(file: &File) {
    // One that fails costs those who wait a recheck.
    let _ = futimens(file, &stamped());
}

/// The same for a client of another process.
pub(crate) fn stamp_at(folder: &Folder, client: ClientId) {
    let Ok(file) = look(folder, client) else { return };
    if futimens(&file, &stamped()).is_err() {
        // Of another user, who lets us write.
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

/// Whether the process of a client is certain to be gone. A file that is missing tells nothing: somebody may have cleared the folder.
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
    fn a_client_is_gone_when_nobody_holds_its_file() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder_in(temporary.path());
        let client = ClientId([1, 2]);
        assert!(!is_gone(&folder, client), "a missing file tells nothing");
        let held = hold(&folder, client).unwrap();
        assert!(!is_gone(&folder, client));
        let twin = held.try_clone().unwrap();
        drop(held);
        assert!(!is_gone(&folder, client), "another process may have inherited it");
        drop(twin);
        assert!(is_gone(&folder, client));
        assert!(is_gone(&folder, client), "looking does not change it");
    }
}
