//! Reads processes from Linux's `/proc`: their descendants, and signals that reach exactly the intended process.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use leasehold_core::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::human;

/// Maximum number of searches for new processes in one round of killing; the time is checked between rounds.
const SEARCHES_MAX: u32 = 100;
/// How long such a round waits for the killed processes to die. Less than a second.
const DEATH_WAIT: Duration = Duration::from_millis(10);
/// Number of processes that are awaited, or searched for children, at a time.
const PROCESSES_PER_BATCH: usize = 64;

/// A process that was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// `None` for one that is just ending, or if the group has no number in this pid namespace.
    pub(super) group: Option<Pid>,
    parent: Option<Pid>,
    /// Start time: distinguishes it from a later process with the same pid. `None` if `/proc` hides it from this user
    /// (`hidepid`).
    start: Option<u64>,
}

/// Whether `/proc` shows this process's pid namespace. Another's would show unrelated processes below it, or none.
pub(super) fn is_ours() -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    fs::read_link("/proc/self").is_ok_and(|found| found.as_os_str() == own.as_str())
}

/// All descendants of `root` except `others` and their descendants, as far as they can be found while they fork and
/// end, and as far as there is time.
pub(super) fn below(root: Pid, others: &[Pid], until: Moment) -> Vec<Process> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    let mut open = vec![root];
    while let Some(pid) = open.pop().filter(|_| leasehold_clock::now() < until) {
        let Some(children) = children(pid) else { return by_parents(root, others) };
        for child in children.into_iter().filter(|child| !others.contains(child)) {
            if let Some(process) = Process::read(child).or_else(|| Process::hidden(child, pid))
                && known.insert(child)
            {
                found.push(process);
                open.push(child);
            }
        }
    }
    found
}

/// Kills all descendants of `root` except `others` and their descendants, and searches again at once as long as there
/// are new ones: some fork all the time. `root` is this process or a guardian, and a subreaper.
///
/// A dead child leaves its own children to `root`. Waiting for that and searching there again is much faster than
/// searching below each of thousands; only processes that do not die are searched.
pub(super) fn kill_below(root: Pid, others: &[Pid]) {
    let mut killed = HashSet::new();
    let wait_until = leasehold_clock::now() + DEATH_WAIT;
    for _ in 0..SEARCHES_MAX {
        let all = children(root).unwrap_or_else(|| children_of(root));
        let new: Vec<Pid> =
            all.iter().copied().filter(|child| !others.contains(child) && killed.insert(*child)).collect();
        // Children of this process keep their pids until it waits for them: so they need no second check, which would
        // give them time to fork.
        for child in &new {
            let _ = kill_process(*child, Signal::KILL);
        }
        let dying: Vec<Pid> = all.into_iter().filter(|child| killed.contains(child)).collect();
        let undying = alive(&dying, wait_until);
        if new.is_empty() && !kill_under(&undying, &mut killed) {
            return;
        }
    }
}

/// Kills what is below some of these, each before its children, and returns whether there was anything new.
fn kill_under(undying: &[Pid], killed: &mut HashSet<Pid>) -> bool {
    let before = killed.len();
    let mut open: Vec<Pid> = undying.iter().copied().take(PROCESSES_PER_BATCH).collect();
    while let Some(pid) = open.pop() {
        for child in children_of(pid) {
            if !killed.contains(&child) && kill_child(pid, child) {
                killed.insert(child);
                open.push(child);
            }
        }
    }
    killed.len() > before
}

/// Kills a child of another process, but no later process with its pid: that would have another parent. Returns false
/// if its parent has changed, such as to the subreaper, among whose children it is found.
fn kill_child(parent: Pid, child: Pid) -> bool {
    match pidfd_open(child, PidfdFlags::empty()) {
        Ok(handle) if Process::read(child).is_some_and(|process| process.parent == Some(parent)) => {
            pidfd_send_signal(handle, Signal::KILL).is_ok()
        }
        Err(rustix::io::Errno::NOSYS) => kill_process(child, Signal::KILL).is_ok(),
        _ => false,
    }
}

/// Waits for killed processes to end, at the latest until then, and returns those that have not ended.
fn alive(killed: &[Pid], until: Moment) -> Vec<Pid> {
    let mut alive = Vec::new();
    for some in killed.chunks(PROCESSES_PER_BATCH) {
        // A process that cannot be opened is gone, or cannot be waited for.
        let open = |pid: &Pid| pidfd_open(*pid, PidfdFlags::empty()).ok().map(|handle| (*pid, handle));
        let mut left: Vec<(Pid, OwnedFd)> = some.iter().filter_map(open).collect();
        loop {
            let mut watched: Vec<PollFd<'_>> =
                left.iter().map(|(_, handle)| PollFd::new(handle, PollFlags::IN)).collect();
            let wait = until.since(leasehold_clock::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
            let ended = poll(&mut watched, Some(&timeout)).unwrap_or(0);
            let is_over: Vec<bool> = watched.iter().map(|handle| !handle.revents().is_empty()).collect();
            let mut is_over = is_over.into_iter();
            left.retain(|_| !is_over.next().unwrap_or(false));
            if ended == 0 || left.is_empty() {
                break;
            }
        }
        alive.extend(left.into_iter().map(|(pid, _)| pid));
    }
    alive
}

/// The children of a process, including those that have ended and were not waited for.
pub(super) fn children_of(pid: Pid) -> Vec<Pid> {
    children(pid).unwrap_or_else(|| {
        by_parents(pid, &[]).iter().filter(|process| process.parent == Some(pid)).map(|process| process.pid).collect()
    })
}

/// The children of all threads of a process. `None` if the kernel does not list them.
fn children(pid: Pid) -> Option<Vec<Pid>> {
    let mut all = Vec::new();
    // A process that has ended has no children.
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return Some(all) };
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => all.extend(list.split_whitespace().filter_map(number)),
            Err(_) if task.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(all)
}

/// The same from a scan of all processes of the machine.
fn by_parents(root: Pid, others: &[Pid]) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?));
    let all: Vec<Process> = pids.filter(|pid| !others.contains(pid)).filter_map(Process::read).collect();
    let mut found: Vec<Process> = Vec::new();
    loop {
        let is_new = |process: &&Process| !found.iter().any(|known| known.pid == process.pid);
        let is_below = |process: &&Process| {
            process.parent.is_some_and(|parent| parent == root || found.iter().any(|known| known.pid == parent))
        };
        let more: Vec<Process> = all.iter().filter(is_new).filter(is_below).copied().collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// A process that is just ending has the group −1, which is invalid: a signal to it would reach every process.
fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok().filter(|number| *number > 0)?)
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The name comes second, in parentheses, and may itself contain parentheses and spaces.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            pid,
            parent: number(fields.get(1)?),
            group: number(fields.get(2)?),
            start: Some(fields.get(19)?.parse().ok()?),
        })
    }

    /// A child that exists but cannot be read: with `hidepid`, processes started by `sudo` and all that this user may
    /// not trace.
    fn hidden(pid: Pid, parent: Pid) -> Option<Self> {
        let is_there = test_kill_process(pid) != Err(rustix::io::Errno::SRCH);
        is_there.then_some(Self { pid, group: None, parent: Some(parent), start: None })
    }

    /// Whether this pid is still the process that was found, or at least a child of the same parent.
    fn is_current(&self) -> bool {
        match (self.start, self.parent) {
            (None, Some(parent)) => children_of(parent).contains(&self.pid),
            (start, _) => Self::read(self.pid).is_some_and(|now| now.start == start),
        }
    }

    /// Sends a signal to this process, and to no later one with its pid.
    pub(super) fn signal(&self, signal: Signal) {
        match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(handle) if self.is_current() => {
                let _ = pidfd_send_signal(handle, signal);
            }
            Err(rustix::io::Errno::NOSYS) => {
                let _ = kill_process(self.pid, signal);
            }
            _ => {}
        }
    }

    /// Pid and name. A process sets its own name, to any bytes.
    pub(super) fn describe(&self) -> String {
        let pid = self.pid.as_raw_nonzero();
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
        if name.is_empty() { pid.to_string() } else { format!("{pid} ({})", human::plain(&name)) }
    }
}

/// The parent of a process.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    Process::read(pid)?.parent
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::getpid;

    use super::*;

    #[test]
    fn only_numbers_above_zero_are_processes() {
        assert_eq!(number("1"), Pid::from_raw(1));
        for none in ["-1", "0", "", "x", "99999999999"] {
            assert_eq!(number(none), None);
        }
    }

    #[test]
    fn children_and_grandchildren_are_found_both_ways() {
        let script = "sleep 60 & echo ready; wait";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut String::new())
            .unwrap();
        let shell = Pid::from_child(&child);
        let (direct, parents) = (below(shell, &[], Moment::NEVER), by_parents(shell, &[]));
        let whole = below(getpid(), &[], Moment::NEVER);
        let without = [below(getpid(), &[shell], Moment::NEVER), by_parents(getpid(), &[shell])];
        let described = direct[0].describe();
        for process in &direct {
            process.signal(Signal::KILL);
        }
        child.wait().unwrap();
        assert_eq!(direct.len(), 1);
        assert_eq!(direct, parents);
        assert!(without.iter().flatten().all(|process| process.pid != shell && process.pid != direct[0].pid));
        assert!(described.ends_with(")") && !described.ends_with("()"), "{described}");
        assert!(whole.iter().any(|process| process.pid == shell) && whole.contains(&direct[0]));
    }
}
