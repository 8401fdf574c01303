//! `--report`: how a run went, as JSON, for those who must tell a command's own exit code from ours.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold::Guard;
use serde::Serialize;

use super::message::Ended;
use super::runner::Why;
use crate::exit::{Exit, Failure};

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
        self.outcome = "lost";
        self.reason = Some(match why {
            Why::TimeEnded => "time_ended",
            Why::NoGuardian => "no_guardian",
            Why::Lost => "gone",
        });
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

    /// Puts it in the place of a file in one step. What is no regular file, such as a pipe, is written to.
    pub(crate) fn write(&self, to: Destination) -> io::Result<()> {
        let mut json = serde_json::to_vec(self)?;
        json.push(b'\n');
        let path = match to {
            Destination::Output(output) => return fs::File::from(output).write_all(&json),
            Destination::Path(path) => path,
        };
        // Behind a link, the file that it leads to is replaced.
        let path = fs::canonicalize(&path).unwrap_or(path);
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return fs::write(path, json);
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
    /// What is standard output now, and will not be when the command runs.
    Output(OwnedFd),
    Path(PathBuf),
}

impl Destination {
    /// Before anything is run, so that a place where no report can be written is refused.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        check(path)?;
        let output = io::stdout().as_fd().try_clone_to_owned().ok().filter(|output| is_same_file(output, path));
        Ok(output.map_or_else(|| Self::Path(path.to_owned()), Self::Output))
    }
}

fn is_same_file(open: &OwnedFd, path: &Path) -> bool {
    let open = open.try_clone().and_then(|open| fs::File::from(open).metadata());
    let which = |found: fs::Metadata| (found.dev(), found.ino());
    open.is_ok_and(|open| fs::metadata(path).is_ok_and(|named| which(named) == which(open)))
}

fn check(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
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
    fn a_place_where_none_can_be_is_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(&folder.path().join("report")).is_ok());
        assert!(check(folder.path()).is_err());
        assert!(check(&folder.path().join("no/report")).is_err());
    }
}
