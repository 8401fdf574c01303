//! What truly happened at the servers, for invariants to compare with what clients believe.

use leasehold_core::{Block, Fence, RequestId, StoreOwner, StoreTime};

/// A server took a ballot, or renewed a lease.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub(super) at: u64,
    pub(super) server: usize,
    pub(super) what: Executed,
    /// Its answers count.
    pub(super) votes: bool,
    /// It has the lease until then, in true time.
    pub(super) until: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Executed {
    /// A ballot of this attempt, with these fences.
    Took { attempt: RequestId, block: Block },
    /// A lease of this owner.
    Renewed { name: usize, owner: StoreOwner, fence: Fence },
    /// What this attempt took was given back, if there was anything.
    Released { attempt: RequestId, name: usize },
}

/// How a server's clock and memory are, by what happened to them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) server: usize,
    pub(super) now: StoreTime,
    /// When it last forgot something that counted, by its clock.
    pub(super) forgot: Option<StoreTime>,
}

/// The latest of what happened at the servers.
#[derive(Default)]
pub(super) struct Truth {
    executions: Vec<Execution>,
    prune_at: usize,
}

/// Nobody asks for what is older.
const KEPT: u64 = 12 * crate::chance::SECOND;

impl Truth {
    pub(super) fn add(&mut self, execution: Execution) {
        if self.executions.len() > self.prune_at.max(512) {
            let at = execution.at;
            self.executions.retain(|known| known.at + KEPT > at);
            self.prune_at = self.executions.len() * 2;
        }
        self.executions.push(execution);
    }

    /// What was executed since then.
    pub(super) fn since(&self, since: u64) -> impl Iterator<Item = &Execution> {
        self.executions.iter().rev().take_while(move |known| known.at >= since)
    }
}

/// The servers among these, one bit each.
pub(super) fn servers<'a>(of: impl Iterator<Item = &'a Execution>) -> u64 {
    of.fold(0, |seen, execution| seen | 1 << execution.server)
}
