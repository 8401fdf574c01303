//! A password: kept, handed to the store that needs it, and never shown.

use std::fmt;

/// A password.
#[derive(Clone)]
pub(crate) struct Secret(#[expect(dead_code, reason = "stores that log in are not built in yet")] pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
