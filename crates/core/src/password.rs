//! A password that a store asks for with every connection, so that a new one needs no restart. It is never shown.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// Where a store gets its password from.
#[derive(Clone)]
pub struct PasswordSource(Arc<dyn Fn() -> Result<String, Error> + Send + Sync>);

impl PasswordSource {
    /// Calls `read` whenever a connection is made. It may be called on any thread, and must not wait for long.
    pub fn new(read: impl Fn() -> Result<String, Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The same password for every connection.
    pub fn fixed(password: impl Into<String>) -> Self {
        let password = password.into();
        Self::new(move || Ok(password.clone()))
    }

    /// The password as it is now: for logging in, not for showing.
    ///
    /// # Errors
    ///
    /// Any error of the source, such as a file that cannot be read.
    pub fn read(&self) -> Result<String, Error> {
        (self.0)()
    }
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordSource(…)")
    }
}
