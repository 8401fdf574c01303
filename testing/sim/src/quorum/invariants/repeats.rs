//! A request that is sent again is granted once: the same answer, and nothing is given back by it.

use leasehold_core::{Block, Error, RequestId};

use super::broken;
use crate::invariants::Verdict;

pub(in crate::quorum) fn check(
    request: RequestId,
    block: Block,
    said: &Result<Option<Block>, Error>,
    held: bool,
    is_calm: bool,
) -> Verdict {
    let number = request.number;
    match said {
        Ok(Some(same)) if *same == block => Ok(()),
        said if held && is_calm => {
            broken("repeats", format!("request {number} has {block:?}, and once more it is {said:?}"))
        }
        _ => Ok(()),
    }
}
