//! A handle: what a client, its locks and its guards have of the shell, counted apart from what the shell itself has under way.
//!
//! The keeper goes on after the last handle is gone for as long as anything is open with the store: a release whose first sending
//! was lost, an acquire whose outcome is unknown.

use std::ops::Deref;
use std::sync::Arc;

use crate::runtime::shell::Shell;

/// One of the handles. As cheap to clone as the shell's own `Arc`.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Last>);

/// Dropped with the last handle.
struct Last(Arc<Shell>);

impl Handle {
    /// The first handle of a shell; the others are its clones.
    pub(crate) fn new(shell: Arc<Shell>) -> Self {
        Self(Arc::new(Last(shell)))
    }
}

impl Deref for Handle {
    type Target = Arc<Shell>;

    #[inline]
    fn deref(&self) -> &Arc<Shell> {
        &self.0.0
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        // The keeper is not in a forked child, and its mutexes may be locked there for ever.
        if !self.0.is_forked() {
            self.0.abandon();
        }
    }
}
