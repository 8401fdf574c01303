//! Taking back an acquire that nobody here wants any more.

use super::Table;
use super::entry::Phase;
use super::pending_release::PendingRelease;
use super::types::Outputs;
use crate::name::Name;
use crate::owner::RequestId;
use crate::port::Release;
use crate::time::Moment;

impl Table {
    /// Releases what an unanswered acquire may have been granted, until that is certain.
    pub(super) fn withdraw(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(pending) = entry.wait_mut().pending.take() else { return };
        if pending.unsettled_until.is_none() {
            entry.wait_mut().phase = Phase::Idle;
            return self.agenda.touch(name);
        }
        let request = Release::hold(name.clone(), pending.owner, RequestId { client, number: pending.number });
        let mut release = PendingRelease::new(pending.number, request, pending.over, pending.unsettled_until);
        release.executed_by = pending.executed_by;
        self.release_first(now, release, out);
    }
}
