//! Every process below this one: finding them, and sending them signals.
//!
//! A process that is a subreaper is given whatever its descendants leave behind. So it has a descendant exactly as long as it has a
//! child, which the kernel answers without a race ([`reap`]); the lists made here are only for signals, and are made again until
//! nobody is left.

use leasehold_core::Moment;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};

#[cfg(target_os = "linux")]
use super::proc_files as system;

/// The descendants of this process.
#[derive(Debug)]
pub(super) struct Descendants {
    root: Pid,
    /// One that is none of the command's: left alone, while those below it are not.
    spare: Option<Pid>,
    /// The command's process group.
    group: Option<Pid>,
}

/// What became of a child.
pub(super) enum Reaped {
    /// This one has ended or stopped.
    Child(Pid, WaitStatus),
    /// Nobody has anything new to say.
    Nothing,
    /// There is no child left, and so no descendant.
    Nobody,
}

/// Asks for the next child that has ended or stopped.
pub(super) fn reap() -> Reaped {
    match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        Ok(Some((pid, status))) => Reaped::Child(pid, status),
        Ok(None) => Reaped::Nothing,
        Err(rustix::io::Errno::CHILD) => Reaped::Nobody,
        Err(_) => Reaped::Nothing,
    }
}

impl Descendants {
    /// Of this process, but for `spare`; `group` is the command's process group.
    pub(super) fn new(spare: Option<Pid>, group: Option<Pid>) -> Self {
        Self { root: getpid(), spare, group }
    }

    /// Of another process; `group` is the command's process group.
    pub(super) fn below(root: Pid, group: Option<Pid>) -> Self {
        Self { root, spare: None, group }
    }

    /// The command has ended and was waited for: its group's number may be another's by now.
    #[cfg(target_os = "linux")]
    pub(super) fn forget_group(&mut self) {
        self.group = None;
    }

    /// Sends a signal to all that there are now.
    #[cfg(target_os = "linux")]
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // In one step, so that one which forks all the time cannot be missed.
            let _ = rustix::process::kill_process_group(group, signal);
        }
        if signal == Signal::KILL {
            return system::kill_below(self.root, self.spare);
        }
        self.signal_until(signal, Moment::NEVER);
    }

    /// Asks all that there are now, as long as there is time: where there are thousands, killing them comes first.
    #[cfg(target_os = "linux")]
    pub(super) fn ask_until(&self, signal: Signal, until: Moment) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        self.signal_until(signal, until);
    }

    #[cfg(target_os = "linux")]
    fn signal_until(&self, signal: Signal, until: Moment) {
        for process in system::below(self.root, until) {
            if leasehold_clock::now() >= until {
                return;
            }
            if Some(process.pid) != self.spare && Some(process.group) != self.group {
                process.signal(signal);
            }
        }
    }

    /// Who they are, for people.
    #[cfg(target_os = "linux")]
    pub(super) fn names(&self) -> Vec<String> {
        let all = system::below(self.root, Moment::NEVER);
        all.iter().filter(|process| Some(process.pid) != self.spare).map(system::Process::describe).collect()
    }
}

/// Elsewhere there is no subreaper: what leaves the process group cannot be found.
#[cfg(not(target_os = "linux"))]
impl Descendants {
    pub(super) fn forget_group(&mut self) {}

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    pub(super) fn ask_until(&self, signal: Signal, _: Moment) {
        self.signal(signal);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.group.map(|group| format!("process group {}", group.as_raw_nonzero())).into_iter().collect()
    }
}

/// Whether nobody is left, where [`reap`] says that there is no child: a process group may have members that are no children.
pub(super) fn is_deserted(descendants: &Descendants) -> bool {
    cfg!(target_os = "linux")
        || descendants.group.is_none_or(|group| rustix::process::test_kill_process_group(group).is_err())
}

/// Has the orphans among this process's descendants become its children.
pub(super) fn adopt_orphans() -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    Ok(())
}
