//! Taking back an acquire that nobody here wants any more.

use super::Table;
use super::entry::Ask;
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
        let Some(series) = entry.wait_mut().series.take() else { return };
        if series.taint.is_none() {
            entry.wait_mut().ask = Ask::Idle;
            return self.agenda.touch(name);
        }
        let request = Release::hold(name.clone(), series.owner, RequestId { client, number: series.number });
        let mut release = PendingRelease::new(series.number, request, series.over, series.taint);
        release.executed_by = series.executed;
        self.release_first(now, release, out);
    }
}
