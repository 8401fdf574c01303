//! Starts a program like `execvp` and shells: a file that the system cannot execute, because it is a script without
//! `#!`, is run by `/bin/sh`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{Access, access};
use rustix::io::Errno;

const SHELL: &str = "/bin/sh";

/// Starts a command with `start`.
pub(super) fn start<T>(words: &[OsString], mut start: impl FnMut(&mut Command) -> io::Result<T>) -> io::Result<T> {
    let (name, arguments) = words.split_first().ok_or(io::ErrorKind::NotFound)?;
    match start(Command::new(name).args(arguments)) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {
            let script = find(name).ok_or(error)?;
            start(Command::new(SHELL).arg(script).args(arguments))
        }
        started => started,
    }
}

/// Finds the file of a name: one with a slash is a path, others are searched for.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let folders = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&folders).map(|folder| PathBuf::from(".").join(folder).join(name));
    files.into_iter().find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}
