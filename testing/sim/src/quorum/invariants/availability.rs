//! Once a majority is there and votes, every request is answered, and what is free is granted.

use super::broken;
use crate::invariants::Verdict;

pub(in crate::quorum) fn answered(is_good: bool, busy: bool, what: &str) -> Verdict {
    if is_good && !busy {
        return broken("availability", format!("all is well, and a request fails: {what}"));
    }
    Ok(())
}

pub(in crate::quorum) fn granted(granted: bool, what: &str) -> Verdict {
    if granted { Ok(()) } else { broken("availability", format!("all is free and well, and not granted: {what}")) }
}
