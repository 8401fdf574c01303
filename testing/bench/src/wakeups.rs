//! How often threads of this process were woken: a thread that is woken went to sleep before, and the kernel counts that.

use std::fs;

/// Sleeps of the thread that calls, and of all others of this process.
#[derive(Clone, Copy)]
pub(crate) struct Sleeps {
    pub(crate) caller: f64,
    pub(crate) others: f64,
}

impl Sleeps {
    /// What is slept while this runs, for each of so many calls.
    pub(crate) fn of<T>(calls: u32, work: impl FnOnce() -> T) -> Self {
        let before = Self::so_far();
        let _ = work();
        let after = Self::so_far();
        let each = |after: f64, before: f64| (after - before) / f64::from(calls);
        Self { caller: each(after.caller, before.caller), others: each(after.others, before.others) }
    }

    fn so_far() -> Self {
        let this = fs::read_link("/proc/thread-self").expect("this thread, from /proc");
        let mut sleeps = Self { caller: 0.0, others: 0.0 };
        for thread in fs::read_dir("/proc/self/task").expect("the threads of this process, from /proc").flatten() {
            // One that has ended meanwhile is not woken any more.
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let count: f64 = count.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0);
            let whose =
                if this.file_name() == Some(&thread.file_name()) { &mut sleeps.caller } else { &mut sleeps.others };
            *whose += count;
        }
        sleeps
    }
}
