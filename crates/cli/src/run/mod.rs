//! Runs a command under a lock: runner → guardian → command. docs/decisions/0006-guardian.md explains the design.

use std::io;
use std::path::PathBuf;

use crate::exit::Exit;

mod descendants;
mod destination;
mod environment;
mod guardian;
mod job;
mod lock_check;
mod message;
mod orphan;
mod plan;
#[cfg(target_os = "linux")]
mod proc_files;
mod program;
mod report;
mod runner;
mod signals;
mod starter;
mod terminal;
mod times;
mod wake;

pub(crate) use destination::Destination;
pub(crate) use environment::{Here, held_around, is_inside, is_nested, store_around, store_variables, variables};
pub(crate) use job::own_group;
pub(crate) use lock_check::after_break as loss_after_break;
pub(crate) use orphan::OrphanRelease;
pub(crate) use plan::{Plan, check, words};
pub(crate) use report::Report;
pub(crate) use runner::{Job, NotEnded, Outcome, Standby, Why, run};
pub(crate) use signals::{Signals, outlive_file_limit};
pub(crate) use terminal::{hear_signals, without_stops};

/// The first argument that makes this program a guardian. Only `run` uses it.
const GUARDIAN: &str = "__guardian";
/// The first argument that makes it a starter.
const STARTER: &str = "__starter";

/// Does the work of a helper process, if this process is one.
pub(crate) fn helper() -> Option<Exit> {
    match std::env::args_os().nth(1)?.to_str()? {
        GUARDIAN => Some(guardian::main()),
        STARTER => Some(starter::main()),
        _ => None,
    }
}

/// On Linux the file that is running, even if it was replaced or removed meanwhile.
fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
