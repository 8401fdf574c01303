//! Every number that protects something is larger than all before it; servers take only what is near their clocks, and forget none that
//! was used.

use leasehold_core::quorum::Ballot;
use leasehold_core::{Fence, RequestId, StoreTime};

use super::broken;
use crate::chance::SECOND;
use crate::invariants::Verdict;

/// The numbers that were used of one name.
#[derive(Clone, Default)]
pub(in crate::quorum) struct Used {
    largest: Fence,
    by: Option<RequestId>,
}

impl Used {
    /// One more: larger than all of others, and not smaller than its own. Where two may hold a lock at a time, who held it first goes on
    /// with its numbers, and the resource refuses them; only new grants must be above all.
    pub(in crate::quorum) fn add(&mut self, request: RequestId, fence: Fence, is_old: bool) -> Verdict {
        let same = self.by == Some(request);
        if is_old && !same {
            return Ok(());
        }
        if fence < self.largest || fence == self.largest && !same {
            let what = format!("{fence:?} is used by request {request:?} after {:?} by {:?}", self.largest, self.by);
            return broken("fence order", what);
        }
        (self.largest, self.by) = (fence, Some(request));
        Ok(())
    }
}

/// A server took fences that nobody had before.
pub(in crate::quorum) fn near(server: usize, now: StoreTime, ballot: &Ballot, is_new: bool) -> Verdict {
    let (first, now) = (ballot.block.first.get(), now.as_nanos());
    let unit = leasehold_core::fence::FENCE_UNIT_NANOS;
    let (from, to) = (now.saturating_sub(SECOND) / unit, (now + SECOND) / unit);
    if ballot.again || !is_new || (from..=to).contains(&first) {
        return Ok(());
    }
    broken("near the clock", format!("server {server} took #{first}, which is not near its clock #{}", now / unit))
}

/// What a server has for a name is never lowered below what was used of the fences that it took.
pub(in crate::quorum) fn remembered(
    server: usize,
    before: Fence,
    after: Fence,
    reserved: Option<(Fence, Fence)>,
) -> Verdict {
    let may_lower = reserved.is_some_and(|(last, used)| before == last && after >= used);
    if after >= before || may_lower {
        return Ok(());
    }
    broken(
        "fences remembered",
        format!("server {server} lowered its fence from {before:?} to {after:?}, of {reserved:?}"),
    )
}
