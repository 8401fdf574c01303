//! A grant, and every renewal, is of a majority that votes, with the same fences, and lasts no longer than that majority has it.

use leasehold_core::{Block, Fence, RequestId, StoreOwner};

use super::broken;
use crate::chance::MS;
use crate::invariants::Verdict;
use crate::quorum::client::is_of;
use crate::quorum::truth::{Executed, Truth, servers};

/// What clocks that go in steps cannot tell apart.
const SLACK: u64 = 3 * MS;

pub(in crate::quorum) fn granted(
    truth: &Truth,
    majority: usize,
    request: RequestId,
    block: Block,
    sent: u64,
    until: Option<u64>,
) -> Verdict {
    let of = |executed: &Executed| matches!(executed, Executed::Took { attempt, block: took } if is_of(request, *attempt) && *took == block);
    let took = truth.since(sent).filter(|known| known.votes && of(&known.what));
    let have =
        servers(took.filter(|known| until.is_none_or(|until| known.until + SLACK >= until))).count_ones() as usize;
    if have >= majority {
        return Ok(());
    }
    broken(
        "granted by a majority",
        format!("request {} was granted {block:?} by {have} servers that have it for so long", request.number),
    )
}

pub(in crate::quorum) fn kept(
    truth: &Truth,
    majority: usize,
    lease: (usize, &StoreOwner, Fence),
    sent: u64,
    until: Option<u64>,
) -> Verdict {
    let of = |executed: &Executed| matches!(executed, Executed::Renewed { name, owner, fence } if (*name, owner, *fence) == lease);
    let renewed = truth.since(sent).filter(|known| known.votes && of(&known.what));
    let have =
        servers(renewed.filter(|known| until.is_none_or(|until| known.until + SLACK >= until))).count_ones() as usize;
    if have >= majority {
        return Ok(());
    }
    broken(
        "kept by a majority",
        format!("lock {} with {:?} was kept by {have} servers that have it for so long", lease.0, lease.2),
    )
}
