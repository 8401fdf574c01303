//! A password from a file, which is read again with every connection.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, PasswordSource};

/// Maximum length of a password, in bytes.
const PASSWORD_MAX: u64 = 64 * 1024;
/// How long an attempt to connect waits for a writer to open a pipe, and then for the pipe to end. The next attempt goes on waiting,
/// for as long as the caller does.
const PIPE_OPENS_WITHIN: Duration = Duration::from_secs(1);
const PIPE_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The password in a file: all of the file, except for the end of its last line.
pub(super) fn source(path: PathBuf) -> PasswordSource {
    let last = Mutex::new(LastRead::Unread);
    PasswordSource::new(move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let LastRead::Once(password) = &*last {
            return Ok(password.clone());
        }
        let is_first = !matches!(*last, LastRead::Again);
        let wrong = |what: String| {
            // A file that was readable before is perhaps being replaced: worth another try.
            let kind = if is_first { ErrorKind::BadArgument } else { ErrorKind::Unreachable };
            Error::new(kind, "connect", format!("the password file {} {what}", path.display()))
                .with_hint("give a file that this user may read, with the password as UTF-8 text in it")
        };
        let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}"));
        let is_regular = path.metadata().map_err(unreadable)?.is_file();
        let bytes = if is_regular {
            read(File::open(&path).map_err(unreadable)?).map_err(unreadable)?
        } else {
            let pipe = match std::mem::replace(&mut *last, LastRead::Unread) {
                LastRead::Awaited(pipe) => pipe,
                _ => read_behind(path.clone()).map_err(unreadable)?,
            };
            match awaited(&pipe) {
                Some(read) => read.map_err(unreadable)?,
                None => {
                    *last = LastRead::Awaited(pipe);
                    let what = format!("the password file {} is a pipe that nobody has written to", path.display());
                    return Err(Error::new(ErrorKind::Unreachable, "connect", what)
                        .with_hint("write the password to it and close it, or give a regular file"));
                }
            }
        };
        if bytes.len() as u64 > PASSWORD_MAX {
            return Err(wrong(format!("is longer than {PASSWORD_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not valid UTF-8".into()))?;
        let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        if line.is_empty() {
            return Err(wrong("is empty".into()));
        }
        // A pipe can be read only once.
        *last = if is_regular { LastRead::Again } else { LastRead::Once(line.to_owned()) };
        Ok(line.to_owned())
    })
}

/// What the last read found.
enum LastRead {
    /// Nothing yet.
    Unread,
    /// A file, which is read every time.
    Again,
    /// A pipe, which cannot be read again.
    Once(String),
    /// A pipe that has not ended yet.
    Awaited(Receiver<Progress>),
}

/// How far a pipe was read.
enum Progress {
    /// It has a writer.
    Opened,
    Read(io::Result<Vec<u8>>),
}

/// Reads a file, up to the first byte that is too many.
fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(PASSWORD_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a pipe on a thread, because opening it blocks until there is a writer.
fn read_behind(path: PathBuf) -> io::Result<Receiver<Progress>> {
    let (progress, receiver) = channel();
    std::thread::Builder::new().name("leasehold-password".into()).spawn(move || read_pipe(&path, &progress))?;
    Ok(receiver)
}

fn read_pipe(path: &Path, progress: &Sender<Progress>) {
    let result = File::open(path).and_then(|file| {
        // The receiver may be gone.
        let _ = progress.send(Progress::Opened);
        read(file)
    });
    let _ = progress.send(Progress::Read(result));
}

/// The content of a pipe, unless it takes too long.
fn awaited(pipe: &Receiver<Progress>) -> Option<io::Result<Vec<u8>>> {
    let mut limit = PIPE_OPENS_WITHIN;
    loop {
        match pipe.recv_timeout(limit) {
            Ok(Progress::Opened) => limit = PIPE_ENDS_WITHIN,
            Ok(Progress::Read(read)) => return Some(read),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(Err(io::Error::other("reading it failed"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_and_its_last_line_end_is_not_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let source = source(path.clone());
        for (text, password) in [("one\n", "one"), ("two", "two"), ("three \r\n", "three "), ("a\n\n", "a\n")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(source.read().unwrap(), password);
        }
        std::fs::remove_file(&path).unwrap();
        let error = source.read().unwrap_err();
        assert!(error.is_retryable(), "it may be just being replaced: {error}");
    }

    #[test]
    fn what_is_no_password_is_a_bad_argument_and_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        for (text, why) in [
            (&b"secret\xff"[..], "not valid UTF-8"),
            (b"", "is empty"),
            (b"\n", "is empty"),
            (&b"secret".repeat(20_000), "longer than 65536 bytes"),
        ] {
            let path = folder.path().join("file");
            std::fs::write(&path, text).unwrap();
            let error = source(path).read().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
            assert!(error.to_string().contains(why) && !error.to_string().contains("secret"), "{error}");
        }
        let error = source(folder.path().join("none")).read().unwrap_err();
        assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("cannot be read"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_without_a_writer_is_waited_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let source = source(path.clone());
        for _ in 0..2 {
            let error = source.read().unwrap_err();
            assert!(error.is_retryable() && error.to_string().contains("nobody has written to"), "{error}");
        }
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(source.read().unwrap(), "secret");
        assert_eq!(source.read().unwrap(), "secret", "a pipe has it once only");
    }
}
