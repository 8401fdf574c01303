//! What there is to say of a store inside one process.

use leasehold_core::{Check, Verdict};

/// Looks at the store.
pub fn examine() -> Vec<Check> {
    let found = "locks are seen by this process alone, and are gone with it";
    let advice = "use file: to exclude other processes on this machine";
    vec![Check::new("sharing", Verdict::Warn, found).with_advice(advice)]
}
