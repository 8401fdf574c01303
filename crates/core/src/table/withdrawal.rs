//! No longer wanting a name: taking wishes back, and giving back what may have been granted to nobody.

use std::time::Duration;

use super::Table;
use super::entry::{Ask, WaitState};
use super::types::{CallKind, Context, Output, Outputs, Request, Sending, TicketId};
use crate::backoff;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::RequestId;
use crate::port::{Release, ReleaseScope, Released, Reply};
use crate::time::Moment;

impl Table {
    /// Nobody wants the name any more: let it go, once nothing that may have been granted is left behind.
    pub(super) fn unwanted(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        match &entry.series {
            Some(series) if series.taint.is_some() => self.withdraw(now, name, out),
            _ => {
                entry.series = None;
                entry.ask = Ask::Idle;
                self.settle(now, name, out);
            }
        }
    }

    /// Releases what an unanswered acquire may have been granted, until that is certain.
    pub(super) fn withdraw(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let entry: &mut WaitState = entry;
        let Some(series) = &entry.series else { return };
        if series.taint.is_none() {
            entry.series = None;
            entry.ask = Ask::Idle;
            return self.pursue(now, name, out);
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
        self.settle(now, name, out);
    }

    /// The answer to a withdrawal: it settles the matter only after the last moment at which the acquire could be executed. Where the
    /// store's clock was set back, that moment may be long away by it; then our own clock decides.
    pub(super) fn withdrawn(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        reply: Reply<Released>,
        out: &mut Outputs,
    ) {
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
                return self.pursue(now, name, out);
            }
            Ok(answered) => now + taint.since(answered.at).min(until_settled) + Duration::from_millis(1),
            Err(_) => {
                entry.attempts += 1;
                now + backoff::retry_pause(&mut self.rng, entry.attempts)
            }
        };
        entry.ask = Ask::Withdrawing { again, give_up };
        self.settle(now, name, out);
    }

    /// A task no longer wants a name. What it had under way goes on without it.
    pub(super) fn cancel(&mut self, now: Moment, id: TicketId, name: &Name, out: &mut Outputs) {
        let home = self.groups.remove(&id).unwrap_or_else(|| name.clone());
        self.lengthening.remove(&id);
        let Some(entry) = self.entries.get_mut(&home) else { return };
        let slept = entry.is_asker(id);
        let Some(ticket) = entry.dequeue(id) else { return };
        if ticket.want.names.as_slice().len() > 1 {
            return self.group_left(now, id, &home, out);
        }
        self.next_asker(now, &home, slept, out);
        self.settle(now, &home, out);
    }

    /// Whoever was to send a call has gone before sending it: the next in line takes over.
    pub(super) fn unsent(&mut self, now: Moment, context: Context, out: &mut Outputs) {
        match context.what {
            what @ (CallKind::Ask { .. } | CallKind::Watch { .. }) => {
                let (name, number) = match what {
                    CallKind::Ask { name, number, .. } => (name, Some(number)),
                    CallKind::Watch { name } => (name, None),
                    _ => return,
                };
                let Some(entry) = self.entries.get_mut(&name) else { return };
                let current = match number {
                    None => entry.ask == Ask::Watching,
                    Some(number) => {
                        entry.ask == Ask::Calling && entry.series.as_ref().is_some_and(|series| series.number == number)
                    }
                };
                if !current {
                    return;
                }
                let group_gone = entry
                    .series
                    .as_ref()
                    .is_some_and(|series| series.is_group() && !entry.queue.contains(series.asker));
                if group_gone {
                    self.group_gone(now, &name, out);
                } else {
                    self.reask(now, &name, out);
                }
                self.settle(now, &name, out);
            }
            CallKind::Lengthen { name, number, ticket, then, before } => {
                self.lengthening.remove(&ticket);
                let held = self.entries.get_mut(&name).and_then(|entry| entry.live());
                if let Some(held) = held.filter(|held| held.number == number) {
                    held.was_not_asked(context.sent, then.term(), before);
                }
            }
            what @ (CallKind::Release { .. }
            | CallKind::Withdraw { .. }
            | CallKind::Leave { .. }
            | CallKind::Renew(_)) => {
                let error = || Error::new(ErrorKind::Unreachable, "call", "it was not sent");
                let answer = match &what {
                    CallKind::Renew(_) => super::Answer::Renew(Err(error())),
                    _ => super::Answer::Release(Err(error())),
                };
                self.answer(now, Context::new(context.sent, what), answer, out);
            }
        }
    }
}
