//! Job control: if the terminal stops the command, the runner stops too, so that `fg` and `bg` work.
//!
//! A process group created outside of this pid namespace has the number 0 here, which is not a group.

use nix::unistd::{getpgid, getpgrp, getsid};
use rustix::process::{Pid, Signal, getppid, kill_current_process_group};

/// The group of this process, if it has a number here.
pub(crate) fn own_group() -> Option<Pid> {
    Pid::from_raw(getpgrp().as_raw())
}

/// Stops this process and the rest of its group, as the terminal would. Returns false if no process could continue it:
/// then it is not stopped.
pub(super) fn stop() -> bool {
    if !is_a_job() {
        return false;
    }
    // The command had the terminal, so the signal went to its group only. The rest of the job must stop too: a script
    // that waits for this process, the other commands of a pipe. All at once: if they stopped first, the shell could
    // continue the job before this process has stopped. And not with SIGTSTP, which this process would forward.
    kill_current_process_group(Signal::STOP).is_ok()
}

/// Whether a process outside this group, in the same session, started it: a shell that can continue it.
fn is_a_job() -> bool {
    let group = getpgrp();
    let mut above = getppid();
    while let Some(pid) = above {
        let theirs = Some(nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()));
        match getpgid(theirs) {
            Ok(found) if found == group => above = parent(pid),
            Ok(_) => return getsid(theirs).is_ok_and(|session| getsid(None) == Ok(session)),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(target_os = "linux")]
fn parent(pid: Pid) -> Option<Pid> {
    super::proc_files::parent(pid)
}

#[cfg(not(target_os = "linux"))]
fn parent(_pid: Pid) -> Option<Pid> {
    None
}
