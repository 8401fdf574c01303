//! A server that forgot something which counted does not vote for a quarantine.

use std::time::Duration;

use super::broken;
use crate::invariants::Verdict;
use crate::quorum::truth::Facts;

pub(in crate::quorum) fn check(facts: Facts, votes: bool, quarantine: Duration) -> Verdict {
    let Some(forgot) = facts.forgot.filter(|_| votes) else { return Ok(()) };
    let since = facts.now.since(forgot);
    if since >= quarantine {
        return Ok(());
    }
    broken("quarantine", format!("server {} votes {since:?} after it forgot", facts.server))
}
