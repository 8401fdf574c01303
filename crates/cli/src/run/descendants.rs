//! Finds and signals every process below this one.
//!
//! A subreaper inherits whatever its descendants leave behind. So it has a descendant exactly as long as it has a
//! child, which the kernel reports without a race ([`reap`]). The lists made here are only for signals, and are rebuilt
//! until no process is left.

use std::time::Duration;

use leasehold_core::Moment;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};

#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
use super::proc_files as system;

/// Pause between two rounds of SIGKILL.
const KILL_PAUSE: Duration = Duration::from_millis(1);

/// The descendants of this process.
#[derive(Debug)]
pub(super) struct Descendants {
    root: Pid,
    /// Children that do not belong to the command: they and their descendants are left alone.
    others: Vec<Pid>,
    /// The command's process group.
    group: Option<Pid>,
}

/// News about a child.
pub(super) enum Reaped {
    /// This one has ended or stopped.
    Child(Pid, WaitStatus),
    /// No child has news.
    Nothing,
    /// No child is left, and so no descendant.
    NoChild,
}

/// Returns the next child that has ended or stopped.
pub(super) fn reap() -> Reaped {
    match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        Ok(Some((pid, status))) => Reaped::Child(pid, status),
        Ok(None) => Reaped::Nothing,
        Err(rustix::io::Errno::CHILD) => Reaped::NoChild,
        Err(_) => Reaped::Nothing,
    }
}

/// Ends everything below this process, and waits until nothing is left. For a process without other children.
pub(super) fn end_all() {
    loop {
        match reap() {
            Reaped::Child(..) => {}
            Reaped::NoChild => return,
            Reaped::Nothing => {
                Descendants::new(None).signal(Signal::KILL);
                std::thread::sleep(KILL_PAUSE);
            }
        }
    }
}

impl Descendants {
    /// Of this process; `group` is the command's process group.
    pub(super) fn new(group: Option<Pid>) -> Self {
        Self::below(getpid(), group)
    }

    /// Of another process; `group` is the command's process group.
    pub(super) fn below(root: Pid, group: Option<Pid>) -> Self {
        Self { root, others: Vec::new(), group }
    }

    /// Except these children and their descendants.
    pub(super) fn without(self, others: Vec<Pid>) -> Self {
        Self { others, ..self }
    }

    /// This child has ended and was waited for: its pid may be reused.
    pub(super) fn forget(&mut self, child: Pid) {
        self.others.retain(|other| *other != child);
    }

    /// The command has ended and was waited for: the number of its group may be reused.
    #[cfg(target_os = "linux")]
    pub(super) fn forget_group(&mut self) {
        self.group = None;
    }

    /// Sends a signal to all current descendants.
    #[cfg(target_os = "linux")]
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // In one step, so that a process which forks all the time is not missed.
            let _ = rustix::process::kill_process_group(group, signal);
        }
        if signal == Signal::KILL {
            return system::kill_below(self.root, &self.others);
        }
        self.signal_until(signal, Moment::NEVER);
    }

    /// Signals all current descendants, as long as there is time: if there are thousands, killing them comes first.
    #[cfg(target_os = "linux")]
    pub(super) fn ask_until(&self, signal: Signal, until: Moment) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        self.signal_until(signal, until);
    }

    #[cfg(target_os = "linux")]
    fn signal_until(&self, signal: Signal, until: Moment) {
        for process in system::below(self.root, &self.others, until) {
            if leasehold_clock::now() >= until {
                return;
            }
            if process.group.is_none() || process.group != self.group {
                process.signal(signal);
            }
        }
    }

    /// The first one that this user may not end, such as a process started by `sudo`, as far as there is time to look.
    #[cfg(target_os = "linux")]
    pub(super) fn beyond_reach(&self, until: Moment) -> Option<(Pid, String)> {
        use rustix::process::test_kill_process;
        let all = system::below(self.root, &self.others, until);
        let found = all.iter().find(|process| test_kill_process(process.pid) == Err(rustix::io::Errno::PERM))?;
        Some((found.pid, found.describe()))
    }

    /// Their names, for people.
    #[cfg(target_os = "linux")]
    pub(super) fn names(&self) -> Vec<String> {
        let all = system::below(self.root, &self.others, Moment::NEVER);
        all.iter().map(system::Process::describe).collect()
    }
}

/// Other systems have no subreaper: processes that leave the group cannot be found.
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

    pub(super) fn beyond_reach(&self, _: Moment) -> Option<(Pid, String)> {
        None
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.group.map(|group| format!("process group {}", group.as_raw_nonzero())).into_iter().collect()
    }
}

/// Whether nothing is left when [`reap`] reports no child: a process group may have members that are not children.
pub(super) fn is_deserted(descendants: &Descendants) -> bool {
    cfg!(target_os = "linux")
        || descendants.group.is_none_or(|group| rustix::process::test_kill_process_group(group).is_err())
}

/// The same when [`reap`] reports children: all of them are others. A child that has ended stays in the list until this
/// process waits for it, and its orphans are appended to the list, so none is missed while reading it.
#[cfg(target_os = "linux")]
pub(super) fn has_only_others(descendants: &Descendants) -> bool {
    let is_other = |child: &Pid| descendants.others.contains(child);
    !descendants.others.is_empty() && system::children_of(descendants.root).iter().all(is_other)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn has_only_others(descendants: &Descendants) -> bool {
    is_deserted(descendants)
}

/// Children of this process. On systems other than Linux only the command's group is ended, so this is not needed.
pub(super) fn children() -> Vec<Pid> {
    #[cfg(target_os = "linux")]
    return system::children_of(getpid());
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Whether descendants can be found at all.
pub(super) fn can_be_found() -> bool {
    #[cfg(target_os = "linux")]
    return system::is_ours();
    #[cfg(not(target_os = "linux"))]
    true
}

/// Makes orphaned descendants children of this process.
pub(super) fn adopt_orphans() -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    Ok(())
}
