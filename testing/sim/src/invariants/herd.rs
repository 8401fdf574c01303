//! One release wakes at most one waiting client.

use leasehold_core::reference::Hints;

use super::{Verdict, broken};

/// The store hints after one message.
pub fn hinted(hints: &Hints) -> Verdict {
    if hints.len() <= 1 {
        return Ok(());
    }
    broken("no herd", None, format!("{} clients are woken for one release", hints.len()))
}
