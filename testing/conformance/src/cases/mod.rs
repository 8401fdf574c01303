//! Every case there is, a file a topic.

mod arguments;
mod cancellation;
mod events;
mod exclusion;
mod expiry;
mod fences;
mod fork_safety;
mod handoff;
mod handover;
mod hints;
mod holder_actions;
mod kept_leases;
mod names;
mod operators;
mod processes;
mod reentrance;
mod reference;
mod release_rules;
mod resent_requests;
mod shutdown;
mod together;
mod unknown;
mod wait_limits;

use crate::case::Case;

/// Topics and their cases.
pub const TOPICS: &[(&str, &[Case])] = &[
    ("arguments", arguments::CASES),
    ("cancellation", cancellation::CASES),
    ("shutdown", shutdown::CASES),
    ("events", events::CASES),
    ("exclusion", exclusion::CASES),
    ("expiry", expiry::CASES),
    ("fences", fences::CASES),
    ("fork_safety", fork_safety::CASES),
    ("hints", hints::CASES),
    ("handover", handover::CASES),
    ("holder_actions", holder_actions::CASES),
    ("kept_leases", kept_leases::CASES),
    ("names", names::CASES),
    ("operators", operators::CASES),
    ("handoff", handoff::CASES),
    ("processes::counter_file", processes::counter_file::CASES),
    ("processes::dropped_acquires", processes::dropped_acquires::CASES),
    ("processes::forked", processes::forked::CASES),
    ("processes::killed", processes::killed::CASES),
    ("processes::restless", processes::restless::CASES),
    ("processes::stopped", processes::stopped::CASES),
    ("processes::observers", processes::observers::CASES),
    ("reentrance", reentrance::CASES),
    ("reference", reference::CASES),
    ("release_rules", release_rules::CASES),
    ("resent_requests", resent_requests::CASES),
    ("together", together::CASES),
    ("wait_limits", wait_limits::CASES),
    ("unknown", unknown::CASES),
];
