//! A password from a file, which is read again with every connection.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, PasswordSource};

/// No password is longer, in bytes.
const PASSWORD_MAX: u64 = 64 * 1024;
/// How long an attempt to connect waits for somebody to open a pipe for writing, and then for what is written. The next attempt goes on
/// waiting, for as long as the caller has patience.
const PIPE_OPENS_WITHIN: Duration = Duration::from_secs(1);
const PIPE_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The password that stands in a file: all of it, but for the end of its last line.
pub(super) fn source(path: PathBuf) -> PasswordSource {
    let last = Mutex::new(Last::Unread);
    PasswordSource::new(move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Last::Once(password) = &*last {
            return Ok(password.clone());
        }
        let is_first = !matches!(*last, Last::Again);
        let wrong = |what: String| {
            // A file that could be read is perhaps just being replaced: worth another try.
            let kind = if is_first { ErrorKind::BadArgument } else { ErrorKind::Unreachable };
            Error::new(kind, "connect", format!("the password file {} {what}", path.display()))
                .with_hint("give a file that this user may read, with the password as UTF-8 text in it")
        };
        let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}"));
        let is_regular = path.metadata().map_err(unreadable)?.is_file();
        let bytes = if is_regular {
            read(File::open(&path).map_err(unreadable)?).map_err(unreadable)?
        } else {
            let pipe = match std::mem::replace(&mut *last, Last::Unread) {
                Last::Awaited(pipe) => pipe,
                _ => read_behind(path.clone()).map_err(unreadable)?,
            };
            match awaited(&pipe) {
                Some(read) => read.map_err(unreadable)?,
                None => {
                    *last = Last::Awaited(pipe);
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
        // A pipe has it once only.
        *last = if is_regular { Last::Again } else { Last::Once(line.to_owned()) };
        Ok(line.to_owned())
    })
}

/// What was read last.
enum Last {
    /// Nothing yet.
    Unread,
    /// A file, which is read again.
    Again,
    /// A pipe, which cannot be.
    Once(String),
    /// A pipe that has not ended yet.
    Awaited(Receiver<Step>),
}

/// How far a pipe was read.
enum Step {
    /// Somebody writes to it.
    Opened,
    Read(io::Result<Vec<u8>>),
}

/// What stands there, though no more than is looked at.
fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(PASSWORD_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// To open a pipe waits for a writer, for as long as there is none: that is left to a thread.
fn read_behind(path: PathBuf) -> io::Result<Receiver<Step>> {
    let (steps, told) = channel();
    std::thread::Builder::new().name("leasehold-password".into()).spawn(move || tell(&path, &steps))?;
    Ok(told)
}

fn tell(path: &Path, steps: &Sender<Step>) {
    let result = File::open(path).and_then(|file| {
        // Nobody need listen any more.
        let _ = steps.send(Step::Opened);
        read(file)
    });
    let _ = steps.send(Step::Read(result));
}

/// What was read, unless it takes too long.
fn awaited(pipe: &Receiver<Step>) -> Option<io::Result<Vec<u8>>> {
    let mut limit = PIPE_OPENS_WITHIN;
    loop {
        match pipe.recv_timeout(limit) {
            Ok(Step::Opened) => limit = PIPE_ENDS_WITHIN,
            Ok(Step::Read(read)) => return Some(read),
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
