//! A clock of a server's own, which can be set: a small library before the system's, made with the C compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Missing, find};
use crate::Failure;

/// Reads the system's clock, and adds the offset in a file.
const SOURCE: &str = include_str!("clock.c");

/// The clock of the server in a folder.
pub(super) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Whether one can be made here.
    pub(super) fn is_there() -> Result<(), Missing> {
        if cfg!(target_os = "linux") { find("cc").map(drop) } else { Err(Missing("clock that can be set")) }
    }

    pub(super) fn of(folder: &Path) -> Self {
        Self { library: folder.join("clock.so"), file: folder.join("clock") }
    }

    /// Compiles it for this machine; returns what a server's environment must contain.
    pub(super) fn make(&self) -> Result<Vec<(&'static str, String)>, Failure> {
        Self::is_there()?;
        let source = self.library.with_extension("c");
        fs::write(&source, SOURCE)?;
        let made = Command::new(find("cc")?)
            .args(["-shared", "-fPIC", "-O", "-o"])
            .arg(&self.library)
            .arg(&source)
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        self.set(0)?;
        Ok(vec![
            ("LD_PRELOAD", self.library.display().to_string()),
            ("LEASEHOLD_TEST_CLOCK", self.file.display().to_string()),
        ])
    }

    /// Sets it. The server has the file mapped, so it is written in its place.
    pub(super) fn set(&self, ahead: i64) -> Result<(), Failure> {
        use std::io::Write;
        let mut file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file)?;
        Ok(file.write_all(&ahead.to_ne_bytes())?)
    }
}
