//! A password from a file, which is read again with every connection.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use leasehold_core::{Error, ErrorKind, PasswordSource};

/// No password is longer, in bytes.
const PASSWORD_MAX: u64 = 64 * 1024;

/// The password that stands in a file: all of it, but for the end of its last line.
pub(crate) fn file(path: PathBuf) -> PasswordSource {
    let last = Mutex::new(Last::Unread);
    PasswordSource::new(move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Last::Once(password) = &*last {
            return Ok(password.clone());
        }
        let wrong = |what: String| {
            // A file that could be read is perhaps just being replaced: worth another try.
            let kind = if matches!(*last, Last::Unread) { ErrorKind::BadArgument } else { ErrorKind::Unreachable };
            Error::new(kind, "connect", format!("the password file {} {what}", path.display()))
                .with_hint("give a file that this user may read, with the password as UTF-8 text in it")
        };
        let (bytes, is_regular) = read(&path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
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
}

/// What stands there, though no more than is looked at, and whether it can be read again.
fn read(path: &PathBuf) -> io::Result<(Vec<u8>, bool)> {
    let file = File::open(path)?;
    let is_regular = file.metadata()?.is_file();
    let mut bytes = Vec::new();
    file.take(PASSWORD_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes, is_regular))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_and_its_last_line_end_is_not_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let source = file(path.clone());
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
            let error = file(path).read().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
            assert!(error.to_string().contains(why) && !error.to_string().contains("secret"), "{error}");
        }
        let error = file(folder.path().join("none")).read().unwrap_err();
        assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("cannot be read"), "{error}");
    }
}
