//! Running a command under a lock: runner → guardian → command. Why it is built so: docs/decisions/0006-guardian.md.

mod descendants;
mod environment;
mod guardian;
mod job;
mod message;
#[cfg(target_os = "linux")]
mod proc_files;
mod report;
mod runner;
mod signals;
mod terminal;
mod times;
mod wake;

pub(crate) use environment::{Nesting, Outer, variables};
pub(crate) use guardian::main as guardian;
pub(crate) use report::{Report, check as check_report};
pub(crate) use runner::{Job, Outcome, Why, run};
pub(crate) use signals::Signals;
pub(crate) use terminal::without_stops;
pub(crate) use times::{Times, grace};

/// The first argument that makes this program a guardian. For no one but `run`.
pub(crate) const GUARDIAN: &str = "__guardian";
