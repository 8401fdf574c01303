//! What must be true in every world of a quorum, one file each.

pub(super) mod availability;
pub(super) mod exclusion;
pub(super) mod fences;
pub(super) mod grants;
pub(super) mod left_over;
pub(super) mod not_after;
pub(super) mod quarantine;
pub(super) mod releases;
pub(super) mod repeats;
pub(super) mod revival;

use crate::invariants::{Verdict, Violation};

fn broken(invariant: &'static str, what: String) -> Verdict {
    Err(Violation { invariant, name: None, what })
}
