//! The cases, one file per topic, tried with every library. Each returns the text of its cell in the table.

mod busy;
mod counter;
mod expiry;
mod fences;
mod renewed_leases;
mod stranger;
mod wakeup_times;

use std::time::Duration;

use crate::Failure;
use crate::encounter::Meeting;
use crate::peer::Peer;

/// Longer than any case takes: a lease that plays no part.
const LONG: Duration = Duration::from_secs(60);

/// The server counts whole milliseconds.
const EARLY: Duration = Duration::from_millis(2);

/// One thing that is tried.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Whether it measures, with that library, what others on the machine would spoil.
    pub(crate) alone: fn(&Peer) -> bool,
    /// Why a library does not support it.
    pub(crate) lacks: fn(&Peer) -> Option<&'static str>,
    /// The result if the two do not share the lock at all; `None` if the case does not test that.
    pub(crate) objects: Option<&'static str>,
    pub(crate) run: fn(&mut Meeting) -> Result<String, Failure>,
}

/// All of them, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case { name: "counter", alone: always, lacks: nothing, objects: Some("were counted"), run: counter::exact },
    Case { name: "busy", alone: never, lacks: nothing, objects: Some("gets what"), run: busy::each_way },
    Case {
        name: "woken by it",
        alone: where_told,
        lacks: nothing,
        objects: Some("before it is released"),
        run: wakeup_times::ours,
    },
    Case {
        name: "wakes it",
        alone: where_told,
        lacks: nothing,
        objects: Some("before it is released"),
        run: wakeup_times::theirs,
    },
    Case {
        name: "expiry",
        alone: never,
        lacks: nothing,
        objects: Some("before the lease is over"),
        run: expiry::each_way,
    },
    Case { name: "kept", alone: never, lacks: nothing, objects: Some("gets what"), run: renewed_leases::each_way },
    Case {
        name: "killed",
        alone: never,
        lacks: without_watchdog,
        objects: Some("before the lease is over"),
        run: renewed_leases::killed,
    },
    Case { name: "stranger", alone: never, lacks: nothing, objects: None, run: stranger::each_way },
    Case { name: "fences", alone: never, lacks: without_tokens, objects: None, run: fences::grow_across },
];

fn always(_: &Peer) -> bool {
    true
}

fn never(_: &Peer) -> bool {
    false
}

/// Of releases, in a few milliseconds.
fn where_told(peer: &Peer) -> bool {
    peer.layout == "redisson"
}

fn nothing(_: &Peer) -> Option<&'static str> {
    None
}

fn without_watchdog(peer: &Peer) -> Option<&'static str> {
    (!peer.watchdog).then_some("it keeps no lock alive by itself")
}

fn without_tokens(peer: &Peer) -> Option<&'static str> {
    (peer.layout != "redisson").then_some("it has no fencing tokens")
}
