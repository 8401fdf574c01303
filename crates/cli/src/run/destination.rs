//! Where a report goes: a file that is replaced in one step, or something that is written to.
//!
//! The file's folder may be writable by others. So no link is followed that belongs to another user, no path is used twice, and
//! nothing is written into a file that is there already: a new one takes its place.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::exit::Failure;

/// How long to wait for a reader of a pipe, and how often to look for one. Signals do not end that wait.
const READER: Duration = Duration::from_secs(5);
const TRY: Duration = Duration::from_millis(20);

/// Where a report goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// What others write to as well, such as a log: open since before the command runs, and never replaced.
    Open(fs::File),
    /// A name in a folder, which is open since before the command runs.
    InFolder(OwnedFd, OsString),
}

impl Destination {
    /// Before anything is run, so that a place where no report can be written is refused.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let refused = |why: String, hint: &str| {
            Failure::usage(format!("--report {}: {why}", path.display())).with_hint(hint.to_owned())
        };
        if let Some(open) = descriptor(path) {
            return open
                .map(Self::Open)
                .map_err(|error| refused(error.to_string(), "give a file, or what is open for writing"));
        }
        let in_folder = "give a file in a folder that exists";
        let Some(name) = path.file_name().filter(|_| !ends_with_slash(path)) else {
            return Err(refused("it is a folder".into(), in_folder));
        };
        let folder = match open_folder(folder_of(path)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refused("there is no such folder".into(), in_folder));
            }
            Err(error) => return Err(refused(format!("its folder: {error}"), "give a file in a folder of your own")),
        };
        let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if found.as_ref().is_some_and(|found| kind(found) == FileType::Directory) {
            return Err(refused("it is a folder".into(), in_folder));
        }
        // Their own duplicates, which write where the last line ended.
        let ours = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
        let is_same = |open: &fs::File| found.as_ref().is_some_and(|found| is_same_file(open, found));
        match ours.into_iter().flatten().map(fs::File::from).find(is_same) {
            Some(open) => Ok(Self::Open(open)),
            None => Ok(Self::InFolder(folder, name.to_owned())),
        }
    }

    /// Puts `text` there. What is no regular file, such as a pipe, is written to; a file or a link is replaced in one step.
    pub(crate) fn write(self, text: &[u8]) -> io::Result<()> {
        let (folder, name) = match self {
            Self::Open(mut file) => return file.write_all(text),
            Self::InFolder(folder, name) => (folder, name),
        };
        if let Some(mut file) = open_special(&folder, &name)? {
            return file.write_all(text);
        }
        let (new, mut file) = create(&folder)?;
        let written = file.write_all(text).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| Ok(renameat(&folder, &new, &folder, &name)?));
        placed.inspect_err(|_| {
            let _ = unlinkat(&folder, &new, AtFlags::empty());
        })
    }
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

/// What a path such as `/dev/stderr` or `/dev/fd/3` stands for. None for every other path: those are taken as they are written, so
/// that no link of another user can lead here.
fn descriptor(path: &Path) -> Option<io::Result<fs::File>> {
    let words: Option<Vec<&str>> = path.components().map(|part| part.as_os_str().to_str()).collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    match words?.as_slice() {
        ["/", "dev", "stdout"] => Some(io::stdout().as_fd().try_clone_to_owned().map(Into::into)),
        ["/", "dev", "stderr"] => Some(io::stderr().as_fd().try_clone_to_owned().map(Into::into)),
        ["/", "dev", "fd", number] | ["/", "proc", "self", "fd", number] if is_number(number) => {
            let how = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            Some(rustix::fs::open(path, how, Mode::empty()).map_err(Into::into).and_then(patient))
        }
        _ => None,
    }
}

/// A reader that is there may take its time.
fn patient(file: OwnedFd) -> io::Result<fs::File> {
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file.into())
}

/// A new file under a name that nobody could know before.
fn create(folder: &OwnedFd) -> io::Result<(String, fs::File)> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    let name = format!(".leasehold-report.{random:016x}");
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &name, how, Mode::from_raw_mode(0o666))?;
    Ok((name, file.into()))
}

/// What is there, if it is a pipe or a device. Waits for somebody who reads a pipe.
fn open_special(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<fs::File>> {
    let is_special = |found: &Stat| {
        !matches!(kind(found), FileType::RegularFile | FileType::Symlink | FileType::Directory | FileType::Socket)
    };
    let Some(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().filter(is_special) else { return Ok(None) };
    check_pipe(&found)?;
    let how = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let since = Instant::now();
    let file = loop {
        match openat(folder, name, how, Mode::empty()) {
            Err(Errno::NXIO) if since.elapsed() > READER => {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "nobody reads it"));
            }
            Err(Errno::NXIO) => std::thread::sleep(TRY),
            opened => break opened?,
        }
    };
    // It may be another by now.
    let found = fstat(&file)?;
    check_pipe(&found)?;
    if is_special(&found) { patient(file).map(Some) } else { Ok(None) }
}

/// A pipe of another user is neither waited for nor written to.
fn check_pipe(found: &Stat) -> io::Result<()> {
    match kind(found) {
        FileType::Fifo if !is_trusted(found) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is a pipe of another user"))
        }
        _ => Ok(()),
    }
}

/// Whether it belongs to this user or to root.
fn is_trusted(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == rustix::process::geteuid().as_raw()
}

/// Opens a folder, one step of its path after the other. A link of another ordinary user could lead anywhere, and is refused; the kernel
/// refuses it in some folders only, and only where it was told to.
#[cfg(target_os = "linux")]
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    /// As many links in a row are followed as Linux follows.
    const LINKS_MAX: usize = 40;
    const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut folder = rustix::fs::open(".", STEP, Mode::empty())?;
    let mut left = steps(path);
    let mut links = 0;
    while let Some(step) = left.pop() {
        let found = openat(&folder, &step, STEP, Mode::empty())?;
        let stat = fstat(&found)?;
        match kind(&stat) {
            FileType::Symlink if links == LINKS_MAX => return Err(Errno::LOOP.into()),
            FileType::Symlink if !is_trusted(&stat) => {
                let what = format!("{} is a link of another user", step.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            FileType::Symlink => {
                links += 1;
                let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
                left.extend(steps(Path::new(OsStr::from_bytes(target.as_bytes()))));
            }
            FileType::Directory => folder = found,
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(folder)
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
        assert_eq!(write(&pipe).unwrap_err().to_string(), "nobody reads it");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe).unwrap();
        assert_eq!(reader.join().unwrap(), "{}\n");
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
