//! Whether this process was forked since a client was made: one load, where asking for the process id costs a system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between the process that loaded this code and the one that runs it.
static FORKS: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

/// A process, to be compared with the one that asks later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

impl Process {
    /// The process that runs now.
    pub fn current() -> Self {
        INSTALL.call_once(install);
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it still is: false in a child that `fork` made of it.
    #[inline]
    pub fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has the C library call `in_child` in every child of `fork`.
#[allow(unsafe_code, reason = "docs/decisions/0003-fork.md")]
fn install() {
    // SAFETY: the handler is a function of this program that lives as long as it does, and only adds to an atomic number, which
    // is allowed in a child of a process with several threads.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // It fails only for want of memory, while a client is being made.
    assert_eq!(failed, 0, "the C library could not take a handler for fork");
}
