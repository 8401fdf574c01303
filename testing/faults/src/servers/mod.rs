//! Private servers of a test. Each has a port and a folder of its own, and ends with its value, or with the process of the test.

mod clock;
mod port;
mod process;
pub mod redis;
pub mod resp;

pub use port::Port;
pub use redis::Redis;

use std::fmt;
use std::path::PathBuf;

use crate::Failure;

/// Set where a program that is missing is a failure: everything must be tried, nothing ignored.
const ALL: &str = "LEASEHOLD_TEST_ALL";

/// A program that is not there: its tests are ignored, unless everything must be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing(pub &'static str);

impl Missing {
    /// Whether this error is one, and its tests may be ignored.
    pub fn may_be_ignored(error: &Failure) -> bool {
        error.is::<Self>() && std::env::var_os(ALL).is_none()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "no {}", self.0)
    }
}

impl std::error::Error for Missing {}

/// Where a program is, among the folders of the search path.
fn find(program: &'static str) -> Result<PathBuf, Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file()).ok_or(Missing(program))
}
