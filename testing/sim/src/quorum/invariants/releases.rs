//! A release says what became of it: *released* when a majority is free of it, and *not held* never of what was held.

use leasehold_core::port::Released;
use leasehold_core::{Error, RequestId};

use super::broken;
use crate::invariants::Verdict;
use crate::quorum::client::is_of;
use crate::quorum::truth::{Executed, Truth, servers};

/// What is known of a lock that was given back.
pub(in crate::quorum) struct Release<'a> {
    pub(in crate::quorum) request: RequestId,
    pub(in crate::quorum) name: usize,
    pub(in crate::quorum) said: &'a Result<Released, Error>,
    /// When it was sent, in true time.
    pub(in crate::quorum) sent: u64,
    /// Servers that do not have it, one bit each.
    pub(in crate::quorum) without: u64,
    /// It was held then, and no server can have forgotten it.
    pub(in crate::quorum) held: bool,
}

pub(in crate::quorum) fn check(truth: &Truth, majority: usize, release: &Release<'_>) -> Verdict {
    let Release { request, name, .. } = *release;
    let number = request.number;
    match release.said {
        Ok(Released::Released { .. }) => {
            let gave = |executed: &Executed| matches!(executed, Executed::Released { attempt, name: of } if *of == name && is_of(request, *attempt));
            let gave = servers(truth.since(release.sent).filter(|known| gave(&known.what)));
            let free = (gave | release.without).count_ones() as usize;
            if free >= majority {
                return Ok(());
            }
            broken(
                "results of release",
                format!("lock {name} of request {number} is called free, and only {free} servers are free of it"),
            )
        }
        Ok(said) if release.held => broken(
            "results of release",
            format!("lock {name} of request {number} was held, and its release says {said:?}"),
        ),
        Ok(_) | Err(_) => Ok(()),
    }
}
