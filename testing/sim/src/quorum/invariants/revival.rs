//! A renewal never makes a lock again.

use super::broken;
use crate::invariants::Verdict;

pub(in crate::quorum) fn check(server: usize, held: bool, kept: bool) -> Verdict {
    if kept && !held {
        return broken("no revival", format!("server {server} made a lock again by renewing it"));
    }
    Ok(())
}
