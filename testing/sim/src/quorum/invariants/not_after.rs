//! No server carries out a ballot after its `not_after`.

use leasehold_core::StoreTime;
use leasehold_core::quorum::{Ballot, Voted};

use super::broken;
use crate::invariants::Verdict;

pub(in crate::quorum) fn check(server: usize, now: StoreTime, had: bool, ballot: &Ballot, voted: &Voted) -> Verdict {
    let is_late = now > ballot.acquire.not_after && !had;
    if is_late && matches!(voted, Voted::Took { .. } | Voted::Held { .. }) {
        return broken(
            "not after",
            format!("server {server} took a ballot {:?} late", now.since(ballot.acquire.not_after)),
        );
    }
    if !is_late && now < ballot.acquire.not_after && matches!(voted, Voted::TooLate) {
        return broken("not after", format!("server {server} calls a ballot too late that came in time"));
    }
    Ok(())
}
