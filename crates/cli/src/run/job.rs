//! Being a job of a shell: when the command is stopped by the terminal, the runner stops too, so that `fg` and `bg` work.

use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, getsid, kill_current_process_group};

/// Stops this process and the rest of its group, as the terminal would have. False where nobody could make it go on: then it is not stopped.
pub(super) fn stop() -> bool {
    if !is_a_job() {
        return false;
    }
    // The command had the terminal, so the signal went to its group alone. The rest of the job is to stop too: a script that waits
    // for this process, the other commands of a pipe. All in one step: were they stopped first, the shell could make the job go on
    // before this process has stopped. And not with SIGTSTP, which this process would hear as one to pass on.
    kill_current_process_group(Signal::STOP).is_ok()
}

/// Whether some process outside this group, in the same session, has started it: a shell that can make it go on.
fn is_a_job() -> bool {
    let group = getpgrp();
    let mut above = getppid();
    while let Some(pid) = above {
        match getpgid(Some(pid)) {
            Ok(theirs) if theirs == group => above = parent(pid),
            Ok(_) => return getsid(Some(pid)).is_ok_and(|theirs| getsid(None) == Ok(theirs)),
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
