//! From the part of a URL behind `memory:` to settings.

use leasehold_core::Error;

use crate::error;

/// The scheme of this store's URLs.
pub const SCHEME: &str = "memory";

/// Which of this process's memory stores is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its name; empty for the usual one.
    pub name: String,
}

impl Config {
    /// From what stands between `memory:` and `?`, and the options behind it (there are none).
    ///
    /// # Errors
    ///
    /// A bad argument, for an option (this store has none of its own) or for a host or path (it is in this process).
    pub fn new(path: &str, options: &[(String, String)]) -> Result<Self, Error> {
        if path.starts_with('/') {
            return Err(error::no_such_place(path));
        }
        match options.first() {
            Some((option, _)) => Err(error::no_such_option(option)),
            None => Ok(Self { name: path.to_owned() }),
        }
    }

    /// A name for people.
    pub fn label(&self) -> String {
        format!("{SCHEME}:{}", self.name)
    }
}
