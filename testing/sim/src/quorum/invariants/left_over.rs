//! What a client has done with is nowhere any more, soon after the network is well.

use leasehold_core::{Name, RequestId};

use super::broken;
use crate::invariants::Verdict;
use crate::quorum::client::is_of;
use crate::quorum::server::Node;

pub(in crate::quorum) fn check(at: u64, nodes: &mut [Node], names: &[Name], request: RequestId) -> Verdict {
    for (server, node) in nodes.iter_mut().enumerate() {
        // An old state may have come back with it.
        if !node.up || node.is_old {
            continue;
        }
        for (number, name) in names.iter().enumerate() {
            if node.holds_for(at, name, |attempt| is_of(request, attempt)) {
                let what =
                    format!("request {} is over, and server {server} still has lock {number} for it", request.number);
                return broken("nothing left over", what);
            }
        }
    }
    Ok(())
}
