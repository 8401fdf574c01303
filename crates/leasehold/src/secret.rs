//! A password: kept, handed to the store that needs it, and never shown.

use std::fmt;

/// A password.
#[derive(Clone)]
pub(crate) struct Secret(
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store that logs in is built in"))]
    pub(crate)  String,
);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
