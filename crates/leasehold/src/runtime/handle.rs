//! What a client, its locks and its guards hold of the shell, counted apart from the calls that are under way.
//!
//! After the last of them is gone the keeper goes on for as long as anything is open with the store: a release that was not
//! answered, an acquire whose outcome is unknown.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::runtime::shell::Shell;

/// Shared by everything that a user holds of one client. Dropped with the last of them, it lets the keeper end.
pub(crate) struct ShellHandle(Arc<Shell>);

impl ShellHandle {
    pub(crate) fn new(shell: Arc<Shell>) -> Arc<Self> {
        Arc::new(Self(shell))
    }
}

impl Deref for ShellHandle {
    type Target = Arc<Shell>;

    #[inline]
    fn deref(&self) -> &Arc<Shell> {
        &self.0
    }
}

impl Drop for ShellHandle {
    fn drop(&mut self) {
        // A forked child has no keeper, and the keeper's mutexes may be locked there for ever.
        if !self.is_forked() {
            self.abandon();
        }
    }
}

impl fmt::Debug for ShellHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.store.label())
    }
}
