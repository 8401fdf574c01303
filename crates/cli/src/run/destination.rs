//! Where a report goes: a file that is replaced in one step, or something that is written to.
//!
//! Other users may be able to write the file's folder. So links of other users are not followed, no path is resolved
//! twice, and no existing file is written to: a new file replaces it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fcntl_getfl, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::exit::{Exit, Failure};

/// How long to wait for a reader of a pipe, and for one that does not read, and the interval between checks. Signals do
/// not end the wait.
const READER_LIMIT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Number of bytes that a writable pipe accepts at once and undivided.
const PIPE_WRITE_BYTES: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

/// Where a report goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// Something that others write to as well, such as a log: opened before the command runs, and never replaced.
    Open(fs::File),
    /// A name in a folder, which is opened before the command runs.
    InFolder(OwnedFd, OsString),
}

impl Destination {
    /// Called before anything runs, so that an impossible place is refused: with 64 if it makes no sense, and with 74
    /// if it cannot be written. Nothing is created there.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let refused = |why: String, hint: &str| {
            Failure::usage(format!("--report {}: {why}", path.display())).with_hint(hint.to_owned())
        };
        let unwritable = |error: io::Error| {
            let what = format!("--report {}: the report could not be written there: {error}", path.display());
            Failure::new(Exit::OUTPUT, what)
                .with_hint("nothing was run; use a file in a folder that you may write to, or leave --report out")
        };
        if path == Path::new("-") {
            let hint =
                "write /dev/stdout for standard output, /dev/stderr for standard error, or ./- for a file of that name";
            return Err(refused("it is not a path".into(), hint));
        }
        if let Some(open) = descriptor(path) {
            let open = open
                .map_err(|error| refused(error.to_string(), "use a file, or a descriptor that is open for writing"))?;
            check_open(&open).map_err(unwritable)?;
            return Ok(Self::Open(open));
        }
        let in_folder = "use a file in an existing folder";
        let Some(name) = path.file_name().filter(|_| !ends_with_slash(path)) else {
            return Err(refused("it is a folder".into(), in_folder));
        };
        let folder = match open_folder(folder_of(path)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refused("there is no such folder".into(), in_folder));
            }
            Err(error) => return Err(refused(format!("its folder: {error}"), "use a file in a folder of your own")),
        };
        let found = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(unwritable(error.into())),
        };
        if found.as_ref().is_some_and(|found| kind(found) == FileType::Directory) {
            return Err(refused("it is a folder".into(), in_folder));
        }
        // Duplicates of our own descriptors write where the last line ended.
        let ours = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
        let is_same = |open: &fs::File| found.as_ref().is_some_and(|found| is_same_file(open, found));
        match ours.into_iter().flatten().map(fs::File::from).find(is_same) {
            Some(open) => Ok(Self::Open(open)),
            None => {
                check_place(&folder, name, found.as_ref()).map_err(unwritable)?;
                Ok(Self::InFolder(folder, name.to_owned()))
            }
        }
    }

    /// Writes `text`. A pipe or the like is written to; a regular file or a link is replaced in one step.
    pub(crate) fn write(self, text: &[u8]) -> io::Result<()> {
        let (folder, name) = match self {
            Self::Open(file) => return write_in_time(file, text),
            Self::InFolder(folder, name) => (folder, name),
        };
        if let Some(file) = open_special(&folder, &name)? {
            return write_in_time(file, text);
        }
        let (new, mut file) = create(&folder)?;
        let written = file.write_all(text).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| Ok(renameat(&folder, &new, &folder, &name)?));
        placed.inspect_err(|_| {
            let _ = unlinkat(&folder, &new, AtFlags::empty());
        })
    }
}

/// Whether a descriptor can be written to.
fn check_open(file: &fs::File) -> io::Result<()> {
    match fcntl_getfl(file)? & OFlags::RWMODE {
        OFlags::RDONLY => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is open for reading only")),
        _ => Ok(()),
    }
}

/// Whether a report can be written there, as far as can be known in advance. A special file is not opened, as it may
/// not have a reader yet.
fn check_place(folder: &OwnedFd, name: &OsStr, found: Option<&Stat>) -> io::Result<()> {
    if let Some(special) = found.filter(|found| is_special(found)) {
        check_pipe(special)?;
        return Ok(accessat(folder, name, Access::WRITE_OK, AtFlags::EACCESS)?);
    }
    let within = fstat(folder)?;
    let (user, is_sticky) = (rustix::process::geteuid(), within.st_mode & 0o1000 != 0);
    let is_own = |owner: u32| user.is_root() || owner == user.as_raw();
    if let Some(found) = found.filter(|found| is_sticky && !is_own(found.st_uid) && !is_own(within.st_uid)) {
        let what = format!("it belongs to user {}, and no other user can replace it in that folder", found.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let (new, _) = create(folder)?;
    Ok(unlinkat(folder, &new, AtFlags::empty())?)
}

fn is_special(found: &Stat) -> bool {
    !matches!(kind(found), FileType::RegularFile | FileType::Symlink | FileType::Directory | FileType::Socket)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn is_same_file(open: &fs::File, named: &Stat) -> bool {
    fstat(open).is_ok_and(|open| (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
}

/// The descriptor behind a path such as `/dev/stderr` or `/dev/fd/3`. `None` for every other path: those are used as
/// they are written, so that no link of another user can lead here.
fn descriptor(path: &Path) -> Option<io::Result<fs::File>> {
    let words: Option<Vec<&str>> = path.components().map(|part| part.as_os_str().to_str()).collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    match words?.as_slice() {
        ["/", "dev", "stdout"] => Some(io::stdout().as_fd().try_clone_to_owned().map(Into::into)),
        ["/", "dev", "stderr"] => Some(io::stderr().as_fd().try_clone_to_owned().map(Into::into)),
        ["/", "dev", "fd", number] | ["/", "proc", "self", "fd", number] if is_number(number) => {
            let how = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            Some(rustix::fs::open(path, how, Mode::empty()).map(Into::into).map_err(Into::into))
        }
        _ => None,
    }
}

/// Writes to a file, or to something with a reader: the reader may be slow, but must make progress.
fn write_in_time(mut file: fs::File, mut text: &[u8]) -> io::Result<()> {
    if kind(&fstat(&file)?) == FileType::RegularFile {
        return file.write_all(text);
    }
    let late = || io::Error::new(io::ErrorKind::TimedOut, "its reader stopped reading");
    let mut since = Instant::now();
    while !text.is_empty() {
        let left = READER_LIMIT.checked_sub(since.elapsed()).ok_or_else(late)?;
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&file, PollFlags::OUT)], Some(&left)) {
            Ok(0) => return Err(late()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(fault) => return Err(fault.into()),
        }
        match file.write(&text[..text.len().min(PIPE_WRITE_BYTES)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => (text, since) = (&text[written..], Instant::now()),
            // Another writer was faster.
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY_PAUSE),
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// Creates a file with an unpredictable name.
fn create(folder: &OwnedFd) -> io::Result<(String, fs::File)> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    let name = format!(".leasehold-report.{random:016x}");
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &name, how, Mode::from_raw_mode(0o666))?;
    Ok((name, file.into()))
}

/// Opens an existing pipe or device. Waits for a reader of a pipe.
fn open_special(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<fs::File>> {
    let Some(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().filter(is_special) else {
        return Ok(None);
    };
    check_pipe(&found)?;
    let how = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let since = Instant::now();
    let file = loop {
        match openat(folder, name, how, Mode::empty()) {
            Err(Errno::NXIO) if since.elapsed() > READER_LIMIT => {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "it has no reader"));
            }
            Err(Errno::NXIO) => std::thread::sleep(RETRY_PAUSE),
            opened => break opened?,
        }
    };
    // It may have been replaced.
    let found = fstat(&file)?;
    check_pipe(&found)?;
    Ok(is_special(&found).then(|| file.into()))
}

/// A pipe of another user is neither waited for nor written to.
fn check_pipe(found: &Stat) -> io::Result<()> {
    match kind(found) {
        FileType::Fifo if !leasehold_file::is_trusted(found.st_uid) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is a pipe of another user"))
        }
        _ => Ok(()),
    }
}

/// Opens a folder, one component at a time. A link of another ordinary user could lead anywhere, and is refused; the
/// kernel refuses it only in some folders, and only if configured to.
#[cfg(target_os = "linux")]
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    /// Maximum number of links followed in a row, as in Linux.
    const LINKS_MAX: usize = 40;
    const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut folder = rustix::fs::open(".", STEP, Mode::empty())?;
    let mut here = fstat(&folder)?;
    let mut left = steps(path);
    let mut links = 0;
    // By its name, not through this process's current directory.
    let mut entered = OsString::new();
    while let Some(step) = left.pop() {
        if step == ".." && !entered.is_empty() && leasehold_file::is_stranger(here.st_uid) {
            let what = format!("another user can move {} elsewhere, and the path goes up from it", entered.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let found = openat(&folder, &step, STEP, Mode::empty())?;
        let stat = fstat(&found)?;
        if step != "/" && step != ".." {
            check_step(&folder, &here, &step, &stat)?;
        }
        match kind(&stat) {
            FileType::Symlink if links == LINKS_MAX => return Err(Errno::LOOP.into()),
            FileType::Symlink if !leasehold_file::is_trusted(stat.st_uid) => {
                let what = format!("{} is a link of another user", step.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            FileType::Symlink => {
                links += 1;
                let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
                left.extend(steps(Path::new(OsStr::from_bytes(target.as_bytes()))));
            }
            FileType::Directory if step == ".." => (folder, here) = (found, stat),
            FileType::Directory => (folder, here, entered) = (found, stat, step),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(folder)
}

/// Refuses a component that another user can replace, by another folder of this user's in which a file would then be
/// replaced. In a folder of another user, that user's own entries reach nothing beyond that user's own rights.
#[cfg(target_os = "linux")]
fn check_step(folder: &OwnedFd, here: &Stat, step: &OsStr, found: &Stat) -> io::Result<()> {
    let is_theirs = kind(found) == FileType::Directory && found.st_uid == here.st_uid;
    if leasehold_file::others_can_rename(folder, here) || (leasehold_file::is_stranger(here.st_uid) && !is_theirs) {
        let what = format!("other users can replace the folder {}", step.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// The steps of a path, the last one first.
#[cfg(target_os = "linux")]
fn steps(path: &Path) -> Vec<OsString> {
    path.components().rev().filter(|step| *step != Component::CurDir).map(|step| step.as_os_str().to_owned()).collect()
}

#[cfg(not(target_os = "linux"))]
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn write(path: &Path) -> io::Result<()> {
        Destination::new(path).map_err(|failure| io::Error::other(failure.message))?.write(b"{}\n")
    }

    #[test]
    fn it_takes_the_place_of_a_file_and_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, open) = (folder.path().join("file"), folder.path().join("link"), folder.path().join("open"));
        fs::write(&file, "old").unwrap();
        fs::hard_link(&file, &open).unwrap();
        symlink(&open, &link).unwrap();
        for path in [&file, &link] {
            write(path).unwrap();
            assert!(fs::symlink_metadata(path).unwrap().is_file());
            assert_eq!(fs::read_to_string(path).unwrap(), "{}\n");
        }
        assert_eq!(fs::read_to_string(&open).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside them");
    }

    #[test]
    fn a_folder_is_found_through_links_of_this_user() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        symlink(folder.path().join("link/../link"), folder.path().join("other")).unwrap();
        symlink("round", folder.path().join("round")).unwrap();
        write(&folder.path().join("other/./report")).unwrap();
        assert!(folder.path().join("real/report").is_file());
        let error = write(&folder.path().join("round/report")).unwrap_err().to_string();
        assert!(error.contains("symbolic links"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_is_not_found_through_one_where_an_access_list_lets_others_write() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("next/report");
        fs::create_dir(folder.path().join("next")).unwrap();
        write(&report).unwrap();
        // As `setfacl -m u:12345:rwx` does.
        let entries: [(u16, u16, u32); 5] =
            [(1, 7, u32::MAX), (2, 7, 12345), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (what, may, who) in entries {
            list.extend([&what.to_le_bytes()[..], &may.to_le_bytes(), &who.to_le_bytes()].concat());
        }
        let how = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(folder.path(), "system.posix_acl_access", &list, how).unwrap();
        let error = write(&report).unwrap_err().to_string();
        assert!(error.contains("other users can replace the folder next"), "{error}");
    }

    #[test]
    fn what_is_open_already_is_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "before\n").unwrap();
        let open = fs::File::options().append(true).open(&log).unwrap();
        write(&PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()))).unwrap();
        assert_eq!(fs::read_to_string(log).unwrap(), "before\n{}\n");
        drop(open);
        assert!(Destination::new(Path::new("/dev/fd/1000000")).is_err());
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(write(&pipe).unwrap_err().to_string(), "it has no reader");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe).unwrap();
        assert_eq!(reader.join().unwrap(), "{}\n");
    }

    #[test]
    fn a_pipe_that_is_not_read_any_further_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        while reader.write(&[b'x'; 512]).is_ok() {}
        let by_number = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        for path in [&pipe, &by_number] {
            let (done, written) = std::sync::mpsc::channel();
            let path = path.clone();
            std::thread::spawn(move || done.send(write(&path)));
            let error = written.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
            assert_eq!(error.to_string(), "its reader stopped reading");
        }
        // A long report reaches a reader that keeps reading.
        const LONG: usize = 300_000;
        let writer = std::thread::spawn(move || Destination::new(&pipe).unwrap().write(&[b'y'; LONG]).unwrap());
        rustix::fs::fcntl_setfl(&reader, OFlags::empty()).unwrap();
        let (mut seen, mut some) = (0, [0; 4096]);
        while seen < LONG {
            let read = io::Read::read(&mut reader, &mut some).unwrap();
            seen += some[..read].iter().filter(|byte| **byte == b'y').count();
        }
        writer.join().unwrap();
    }

    /// It needs root, to create folders of other users.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_that_others_can_swap_on_the_way_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let outer = folder.path().join("outer");
        let inner = outer.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("report"), "secret").unwrap();
        symlink("inner", outer.join("link")).unwrap();
        for (user, mode, inners, is_fine) in [
            (0, 0o2770, 0, false),
            (0, 0o777, 0, false),
            (0, 0o3770, 0, true),
            (0, 0o1777, 0, true),
            (0, 0o755, 0, true),
            (4001, 0o755, 0, false),
            (4001, 0o755, 4001, true),
            (4001, 0o775, 4001, false),
        ] {
            let what = format!("{user} {mode:o} {inners}");
            chown(&outer, Some(user), Some(4711)).unwrap();
            chown(&inner, Some(inners), None).unwrap();
            fs::set_permissions(&outer, fs::Permissions::from_mode(mode)).unwrap();
            fs::write(inner.join("report"), "secret").unwrap();
            for way in ["inner", "link"] {
                let is_fine = is_fine && !(way == "link" && user != 0);
                let written = write(&outer.join(way).join("report"));
                let text = fs::read_to_string(inner.join("report")).unwrap();
                assert_eq!((written.is_ok(), text == "secret"), (is_fine, !is_fine), "{what} {way}: {written:?}");
                fs::write(inner.join("report"), "secret").unwrap();
            }
            // Only a file in it is used, whatever the folder is.
            write(&outer.join("report")).unwrap();
        }
    }

    #[test]
    fn a_place_where_none_can_be_is_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Destination::new(&folder.path().join("report")).is_ok());
        for (wrong, why) in [("", "folder"), ("new/", "folder"), ("no/report", "no such folder"), ("..", "folder")] {
            let failure = Destination::new(&folder.path().join(wrong)).unwrap_err();
            assert!(failure.message.contains(why), "{failure}");
        }
    }
}
