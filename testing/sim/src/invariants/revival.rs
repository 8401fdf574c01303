//! A renewal never gives back a lease that had ended.

use leasehold_core::port::Renewed;

use super::{Verdict, broken};

/// The store answered a renewal of a name that was held, or free, just before.
pub fn renewed(result: Renewed, held_before: bool, name: usize) -> Verdict {
    if held_before || !matches!(result, Renewed::Kept { .. }) {
        return Ok(());
    }
    broken("no revival", Some(name), "a renewal made a lease again that had ended".into())
}
