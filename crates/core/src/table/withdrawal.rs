//! No longer wanting a name: taking wishes back, and giving back what may have been granted to nobody.

use std::time::Duration;

use super::Table;
use super::entry::{Ask, WaitState};
use super::types::{CallKind, Context, Output, Outputs, Request, Sending};
use crate::backoff;
use crate::name::Name;
use crate::owner::RequestId;
use crate::port::{Release, ReleaseScope, Released, Reply};
use crate::time::Moment;

impl Table {
    /// Releases what an unanswered acquire may have been granted, until that is certain.
    pub(super) fn withdraw(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let entry: &mut WaitState = entry;
        let Some(series) = &entry.series else { return };
        if series.taint.is_none() {
            entry.series = None;
            entry.ask = Ask::Idle;
            return self.agenda.touch(name);
        }
        let give_up = if series.owner.is_shared() && !self.closed { Moment::NEVER } else { series.over };
        entry.ask = Ask::Withdrawing { again: Moment::NEVER, give_up };
        let request = Request::Release(Release {
            client,
            name: name.clone(),
            owner: series.owner.clone(),
            fence: None,
            give: ReleaseScope::Hold(RequestId { client, number: series.number }),
            last_used: None,
            linger: Duration::ZERO,
            rejoin: false,
        });
        let context = Context::new(now, CallKind::Withdraw { name: name.clone(), number: series.number });
        out.push(Output::Background(Box::new(Sending { context, request })));
        self.agenda.touch(name);
    }

    /// The answer to a withdrawal: it settles the matter only after the last moment at which the acquire could be executed. Where the
    /// store's clock was set back, that moment may be long away by it; then our own clock decides.
    pub(super) fn withdrawn(&mut self, now: Moment, sent: Moment, name: &Name, number: u64, reply: Reply<Released>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(series) = entry.series.as_ref().filter(|series| series.number == number) else { return };
        let (Some(taint), Ask::Withdrawing { give_up, .. }) = (series.taint, &entry.ask) else { return };
        let (give_up, settled) = (*give_up, sent > series.executed);
        let until_settled = series.executed.since(now);
        let again = match reply {
            Ok(answered) if answered.at > taint || settled => {
                entry.series = None;
                entry.ask = Ask::Idle;
                entry.attempts = 0;
                return self.agenda.touch(name);
            }
            Ok(answered) => now + taint.since(answered.at).min(until_settled) + Duration::from_millis(1),
            Err(_) => {
                entry.attempts += 1;
                now + backoff::retry_pause(&mut self.rng, entry.attempts)
            }
        };
        entry.ask = Ask::Withdrawing { again, give_up };
        self.agenda.touch(name);
    }
}
