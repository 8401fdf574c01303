//! A release says `Lost` exactly when the lock was lost, and `Ok` only to one who held it until then.

use leasehold_core::port::Released;
use leasehold_core::table::HoldId;
use leasehold_core::{Error, ErrorKind};

use super::{Scene, Verdict, broken};

const INVARIANT: &str = "results of release";

/// A guard that is being given back.
#[derive(Debug, Clone, Copy)]
pub struct Giving {
    /// Its hold.
    pub hold: HoldId,
    /// The number of its name.
    pub name: usize,
    /// It was valid when it was given back.
    pub valid: bool,
    /// The request whose hold the store was asked to take back.
    pub request: Option<u64>,
}

/// A guard is told how its release ended; `taken_back` says whether the store took that hold back.
pub fn told(scene: &Scene<'_>, giving: Giving, result: &Result<Released, Error>, taken_back: bool) -> Verdict {
    let lost = |error: &Error| matches!(error.kind(), ErrorKind::Lost | ErrorKind::Closed);
    let wrong = match result {
        Ok(_) if !giving.valid => Some("fine, though it was over before"),
        Ok(_) if giving.request.is_some() && !taken_back => Some("fine, though the store had nothing to take back"),
        Err(error) if !giving.valid && !lost(error) => Some("not that it was lost"),
        // The answer to a second copy of the request may come first.
        Err(error) if giving.valid && lost(error) && scene.plan.faults.repeat == 0 => {
            (giving.request.is_none() || taken_back).then_some("lost, though it was held until then")
        }
        _ => None,
    };
    wrong.map_or(Ok(()), |wrong| broken(INVARIANT, Some(giving.name), format!("{:?} is told: {wrong}", giving.hold)))
}
