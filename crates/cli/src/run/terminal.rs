//! The terminal: which process group has it, and passing it to the command and back.
//!
//! A background process that changes this is stopped with SIGTTOU unless it blocks that signal, as [`without_stops`]
//! does for the calling thread. The command must not inherit that.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// A terminal that a command may be given.
#[derive(Debug)]
pub(super) struct Terminal {
    descriptor: OwnedFd,
    /// The runner's process group, which has it outside.
    home: Pid,
    /// The command's group; `None` if unknown or gone.
    command: Option<Pid>,
}

impl Terminal {
    /// `None` if `descriptor` is not a terminal.
    pub(super) fn new(descriptor: impl AsFd, home: Pid, command: Option<Pid>) -> Option<Self> {
        let descriptor = descriptor.as_fd();
        let descriptor = isatty(descriptor).then(|| descriptor.try_clone_to_owned().ok()).flatten()?;
        Some(Self { descriptor, home, command })
    }

    /// Gives it to the command if the runner's group has it. Returns whether the command has it now.
    pub(super) fn give(&self) -> bool {
        match tcgetpgrp(&self.descriptor) {
            Ok(group) if Some(group) == self.command => true,
            Ok(group) if group == self.home => {
                self.command.is_some_and(|command| tcsetpgrp(&self.descriptor, command).is_ok())
            }
            _ => false,
        }
    }

    /// Gives it back to the runner's group, if the command's group has it, or one that is gone. Any other group keeps
    /// it.
    pub(super) fn give_back(&self) {
        if let Ok(group) = tcgetpgrp(&self.descriptor)
            && (Some(group) == self.command || test_kill_process_group(group) == Err(Errno::SRCH))
        {
            let _ = tcsetpgrp(&self.descriptor, self.home);
        }
    }

    /// Whether the command's group has it.
    pub(super) fn is_given(&self) -> bool {
        tcgetpgrp(&self.descriptor).is_ok_and(|group| Some(group) == self.command)
    }
}

/// Whether this process's group has the terminal that `descriptor` is.
pub(super) fn is_ours(descriptor: impl AsFd) -> bool {
    isatty(&descriptor) && tcgetpgrp(&descriptor).is_ok_and(|group| Some(group) == super::own_group())
}

/// The parent may have blocked signals; this process must receive them.
pub(crate) fn hear_signals() {
    let _ = SigSet::all().thread_unblock();
}

/// From now on the terminal does not stop this thread, nor threads and processes that it starts.
pub(crate) fn without_stops() {
    let _ = ttou().thread_block();
}

/// Runs `work`, which starts a process that can be stopped like any other.
pub(super) fn with_stops<T>(work: impl FnOnce() -> T) -> T {
    let _ = ttou().thread_unblock();
    let done = work();
    without_stops();
    done
}

fn ttou() -> SigSet {
    let mut set = SigSet::empty();
    set.add(NixSignal::SIGTTOU);
    set
}
