//! `--report`: how a run went, as JSON, for those who must tell a command's own exit code from ours.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::Guard;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::message::Ended;
use super::runner::Why;
use crate::exit::{Exit, Failure};

const LOST: &str = "lost";
/// Above this, a number is not exact in every JSON reader.
const EXACT_MAX: u64 = 1 << 53;

/// How a run went. What is not known is null.
#[derive(Serialize, Debug, Default)]
pub(crate) struct Report {
    /// The lock; of several, as they were given, in order.
    pub(crate) name: String,
    pub(crate) store: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence_text: Option<String>,
    /// Every lock, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) locks: Vec<NameAndFence>,
    pub(crate) waited_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    /// `done`, `busy`, `lost`, `not_started`, `signal`, `unreachable`, `unfit`, `usage`, `bug`.
    pub(crate) outcome: &'static str,
    /// Why it was lost: `time_ended`, `gone`, `no_guardian`.
    pub(crate) reason: Option<&'static str>,
    pub(crate) child_code: Option<u8>,
    pub(crate) child_signal: Option<u8>,
    /// What this process ends with.
    pub(crate) exit_code: u8,
    pub(crate) message: Option<String>,
}

/// One of several locks.
#[derive(Serialize, Debug)]
pub(crate) struct NameAndFence {
    pub(crate) name: String,
    pub(crate) fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence_text: Option<String>,
}

impl NameAndFence {
    pub(crate) fn new(name: String, fence: u64) -> Self {
        Self { name, fence, fence_text: text(fence) }
    }
}

fn text(fence: u64) -> Option<String> {
    (fence > EXACT_MAX).then(|| fence.to_string())
}

impl Report {
    /// Of these names, as they are given.
    pub(crate) fn of(names: &str) -> Self {
        Self { name: names.to_owned(), ..Self::default() }
    }

    /// The fences of a grant, in the order of names.
    fn granted(&mut self, mut locks: Vec<NameAndFence>) {
        self.fence = locks.first().map(|lock| lock.fence);
        self.fence_text = self.fence.and_then(text);
        if locks.len() == 1 {
            locks.clear();
        }
        self.locks = locks;
    }

    /// The lock was granted.
    pub(crate) fn took(&mut self, guard: &Guard) {
        self.owner = Some(guard.owner().to_string());
        self.granted(guard.fences().map(|(name, fence)| NameAndFence::new(name.to_string(), fence.get())).collect());
    }

    /// The lock was lost, or would have been.
    pub(crate) fn lost(&mut self, why: Why) {
        self.outcome = LOST;
        self.reason = Some(match why {
            Why::TimeEnded => "time_ended",
            Why::NoGuardian => "no_guardian",
            Why::Lost => "gone",
        });
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.outcome == LOST
    }

    /// What the process ends with.
    pub(crate) fn conclude(&mut self, done: &Result<Exit, Failure>) {
        let (exit, message) = match done {
            Ok(exit) => (*exit, None),
            Err(failure) => (failure.exit, Some(failure.message.clone())),
        };
        (self.exit_code, self.message) = (exit.code(), message);
        if self.outcome.is_empty() {
            self.outcome = match exit {
                Exit::USAGE => "usage",
                Exit::UNREACHABLE => "unreachable",
                Exit::UNFIT => "unfit",
                exit if exit.code() > 128 => "signal",
                _ => "bug",
            };
        }
    }

    /// How the command ended.
    pub(crate) fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Code(code) => self.child_code = Some(code),
            Ended::Signal(number) => self.child_signal = Some(number),
        }
    }

    /// Puts it in the place of a file in one step. What is no regular file, such as a pipe, is written to, and so is what is open already.
    pub(crate) fn write(&self, to: Destination) -> io::Result<()> {
        let mut json = serde_json::to_vec(self)?;
        json.push(b'\n');
        let path = match to {
            Destination::Open(mut file) => return file.write_all(&json),
            Destination::Path(path) => path,
        };
        // Behind a link, the file that it leads to is replaced.
        let path = behind_links(&path).unwrap_or(path);
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return open_for_reader(&path)?.write_all(&json);
        }
        let beside = beside(&path);
        let written = fs::write(&beside, json).and_then(|()| fs::rename(&beside, &path));
        written.inspect_err(|_| drop(fs::remove_file(&beside)))
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

/// Where a report goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// What others write to as well, such as a log: open since before the command runs, and never replaced.
    Open(fs::File),
    Path(PathBuf),
}

impl Destination {
    /// Before anything is run, so that a place where no report can be written is refused.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        check(path)?;
        // Their own duplicates, which write where the last line ended.
        let ours = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
        if let Some(open) = ours.into_iter().flatten().map(fs::File::from).find(|open| is_same_file(open, path)) {
            return Ok(Self::Open(open));
        }
        match behind_links(path) {
            Ok(found) if is_descriptor(&found) => open(&found).map(Self::Open).map_err(|error| {
                let hint = "give a file, or what is open for writing";
                Failure::usage(format!("--report {}: {error}", path.display())).with_hint(hint)
            }),
            _ => Ok(Self::Path(path.to_owned())),
        }
    }
}

fn is_same_file(open: &fs::File, path: &Path) -> bool {
    let which = |found: fs::Metadata| (found.dev(), found.ino());
    open.metadata().is_ok_and(|open| fs::metadata(path).is_ok_and(|named| which(named) == which(open)))
}

/// As many links in a row are followed as Linux follows.
const LINKS_MAX: usize = 40;

/// The file that links lead to, though it is not there yet. What stands for an open file is not looked behind.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = fs::canonicalize(folder_of(&path))?;
        path = folder.join(path.file_name().ok_or(io::ErrorKind::IsADirectory)?);
        match fs::read_link(&path) {
            Ok(target) if !is_descriptor(&path) => path = folder.join(target),
            _ => return Ok(path),
        }
    }
    Err(io::Error::from(Errno::LOOP))
}

/// `/dev/stderr`, `/dev/fd/3` and the like, where links have led.
fn is_descriptor(path: &Path) -> bool {
    let folder = folder_of(path);
    folder == Path::new("/dev/fd") || (folder.starts_with("/proc") && folder.ends_with("fd"))
}

/// Opens what is there, to add to it. Does not wait for somebody who reads a pipe.
fn open(path: &Path) -> io::Result<fs::File> {
    let how = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, how, Mode::empty())?;
    // But a reader who is there has the time that it takes.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file.into())
}

/// How long a pipe is waited for that nobody reads yet, and how often it is tried. Signals do not end that wait.
const READER: Duration = Duration::from_secs(5);
const TRY: Duration = Duration::from_millis(20);

fn open_for_reader(path: &Path) -> io::Result<fs::File> {
    let since = Instant::now();
    loop {
        match open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if since.elapsed() > READER {
                    return Err(io::Error::new(error.kind(), "nobody reads it"));
                }
                std::thread::sleep(TRY);
            }
            opened => return opened,
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn check(path: &Path) -> Result<(), Failure> {
    let folder = folder_of(path);
    let fault = if path.is_dir() {
        "it is a folder"
    } else if !folder.is_dir() {
        "there is no such folder"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--report {}: {fault}", path.display()))
        .with_hint("give a file in a folder that exists"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_the_place_of_the_file_also_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("report.json"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut report = Report { name: "a".into(), outcome: "done", ..Report::default() };
        report.granted(vec![NameAndFence::new("a".into(), EXACT_MAX + 1)]);
        report.ended(Ended::Code(75));
        report.write(Destination::new(&link).unwrap()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(json["child_code"], 75);
        assert_eq!(json["fence_text"], (EXACT_MAX + 1).to_string());
        assert!(json["held_ms"].is_null() && json.get("locks").is_none());
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_to_nothing_stays_and_its_file_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("report.json"), folder.path().join("link"));
        std::os::unix::fs::symlink("report.json", &link).unwrap();
        Report::of("a").write(Destination::new(&link).unwrap()).unwrap();
        assert!(link.is_symlink() && fs::read_to_string(file).unwrap().starts_with('{'));
    }

    #[test]
    fn what_is_open_already_is_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "before\n").unwrap();
        let open = fs::File::options().append(true).open(&log).unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)));
        Report::of("a").write(Destination::new(&path).unwrap()).unwrap();
        assert!(fs::read_to_string(log).unwrap().starts_with("before\n{"));
        drop(open);
        assert!(Destination::new(Path::new("/dev/fd/1000000")).is_err());
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = Report::of("a").write(Destination::new(&pipe).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "nobody reads it");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        Report::of("a").write(Destination::new(&pipe).unwrap()).unwrap();
        assert!(reader.join().unwrap().starts_with('{'));
    }

    #[test]
    fn a_place_where_none_can_be_is_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(&folder.path().join("report")).is_ok());
        assert!(check(folder.path()).is_err());
        assert!(check(&folder.path().join("no/report")).is_err());
    }
}
