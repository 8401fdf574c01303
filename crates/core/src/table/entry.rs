//! One name in the table: who holds it here, who waits for it here, and what is being asked of the store.

use std::time::Duration;

use super::held::Held;
use super::pending_release::PendingRelease;
use super::types::{AcquireRequest, Grant, HoldId, How, TicketId};
use super::wait_state::WaitState;
use crate::fence::Fence;
use crate::name::Name;
use crate::port::{Busy, Notification};
use crate::time::Moment;

/// A name in use. It leaves the table when nobody holds it, nobody wants it and nothing is open with the store.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// When the timer rings that is set for this name; never, if none is set.
    pub(crate) timer: Moment,
    /// The largest fence of this name that was seen since it is in the table.
    pub(crate) seen: Fence,
    /// None if the name is just held: there are many such names, and they need little room.
    pub(crate) wait: Option<Box<WaitState>>,
}

/// What goes on between this name and the store.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// Nothing. Tasks may wait in line, and the first of them is about to ask.
    #[default]
    Idle,
    /// An acquire is on its way.
    Acquiring,
    /// A subscription is on its way.
    Subscribing,
    /// The first in line sleeps until then, or until a hint.
    Sleeping(Moment),
    /// A group asks for this name together with others.
    Reserved(TicketId),
    /// Nobody wants what a lost acquire may have been granted: it is released before anybody asks.
    Withdrawing(Box<PendingRelease>),
    /// Held here.
    Held(Box<Held>),
    /// Held here, and on its way back to the store.
    Releasing(Box<Releasing>),
}

/// A lease on its way back to the store.
#[derive(Debug)]
pub(crate) struct Releasing {
    pub(crate) held: Box<Held>,
    pub(crate) release: PendingRelease,
}

/// What stands for the state of waiting where nobody wants a name.
static NOBODY: WaitState = WaitState::NOBODY;

impl Default for Entry {
    fn default() -> Self {
        Self { state: State::Idle, timer: Moment::NEVER, seen: Fence::NONE, wait: None }
    }
}

impl Entry {
    /// Who wants the name, and what is open about it.
    pub(crate) fn wait(&self) -> &WaitState {
        self.wait.as_deref().unwrap_or(&NOBODY)
    }

    /// The same, to change it; made if it is not there.
    pub(crate) fn wait_mut(&mut self) -> &mut WaitState {
        self.wait.get_or_insert_with(|| Box::new(WaitState::NOBODY))
    }

    /// The lease that guards hold, if it is not on its way back.
    pub(crate) fn held(&self) -> Option<&Held> {
        if let State::Held(held) = &self.state { Some(held) } else { None }
    }

    /// The same, to change it.
    pub(crate) fn held_mut(&mut self) -> Option<&mut Held> {
        if let State::Held(held) = &mut self.state { Some(held) } else { None }
    }

    /// The lease that guards hold; it is forgotten here.
    pub(crate) fn take_held(&mut self) -> Option<Box<Held>> {
        match std::mem::take(&mut self.state) {
            State::Held(held) => Some(held),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Whether a group asks for this name together with others.
    pub(crate) fn is_reserved_for(&self, group: TicketId) -> bool {
        matches!(self.state, State::Reserved(id) if id == group)
    }

    /// Whether something is going on with the store for this task, which is the first in line.
    pub(crate) fn is_asker(&self, id: TicketId) -> bool {
        self.wait().queue.head().is_some_and(|(head, _)| head == id)
            && !matches!(self.state, State::Idle | State::Held(_) | State::Releasing(_))
    }

    /// What the store may still have is over later, by `span`.
    pub(crate) fn last_longer(&mut self, span: Duration) {
        match &mut self.state {
            State::Held(held) => held.over = held.over + span,
            State::Releasing(releasing) => {
                releasing.held.over = releasing.held.over + span;
                releasing.release.last_longer(span);
            }
            State::Withdrawing(release) => release.last_longer(span),
            _ => {}
        }
        let Some(wait) = &mut self.wait else { return };
        if let Some(pending) = &mut wait.pending {
            pending.over = pending.over + span;
            pending.executed_by = pending.executed_by + span;
        }
        wait.releases.iter_mut().for_each(|release| release.last_longer(span));
    }

    /// A new turn begins for the tasks that want the name, if there are any.
    pub(crate) fn reset_turns(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.attempts = 0;
            wait.turns = 0;
        }
    }

    /// Somebody here wants the name, or something is open with the store about it. Else it is just held.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wait.is_some()
    }

    /// Forgets what it took to get a name that is now just held.
    pub(crate) fn tidy(&mut self, now: Moment) {
        if matches!(self.state, State::Idle | State::Held(_) | State::Releasing(_))
            && self.wait.as_ref().is_some_and(|wait| wait.is_over(now))
        {
            self.wait = None;
        }
    }

    /// Nobody holds it and nothing is under way to the store; tasks may sleep in line.
    pub(crate) fn only_waits(&self) -> bool {
        matches!(self.state, State::Idle | State::Sleeping(_)) && self.wait().releases.is_empty()
    }

    /// Whether a task has nothing to do but to wait behind others: another task here holds the name validly, or asks for it.
    pub(crate) fn must_queue(&self, now: Moment, id: TicketId, request: &AcquireRequest) -> bool {
        match &self.state {
            State::Idle => false,
            State::Sleeping(_) => self.wait().queue.head().is_some_and(|(head, _)| head <= id),
            State::Held(held) => now < held.deadline && held.holder != request.owner && !request.once,
            _ => true,
        }
    }

    /// Whether the first in line here can have the lease without the store.
    pub(crate) fn can_hand_off(&self, now: Moment) -> bool {
        let (State::Held(held), Some(wait)) = (&self.state, &self.wait) else { return false };
        let Some((_, next)) = wait.queue.head() else { return false };
        next.takes_handoff()
            && next.request.options.term.lease() <= held.keep()
            && now < held.handoff_until
            && now >= held.at_least
            && now < held.deadline
            && held.has_fence_for_handoff(now)
    }

    /// Hands the lease to the first in line with the next fence of the block.
    pub(crate) fn hand_off(&mut self, now: Moment, hold: HoldId) -> Option<(TicketId, Grant)> {
        let State::Held(held) = &mut self.state else { return None };
        let queue = &mut self.wait.as_mut()?.queue;
        let id = queue.head()?.0;
        let request = queue.remove(id)?.request;
        held.handoffs += 1;
        let end = held.hold_end(now, now, &request);
        // It may be limited to less than what the store has it for.
        held.outlasts |= end < held.deadline;
        held.holder = request.owner;
        held.about = request.about;
        let grant = held.enter(now, hold, end, request.options.term, How::HandedOff);
        self.seen = self.seen.max(grant.fence);
        Some((id, grant))
    }

    /// Who held the name when the store refused it last, as far as is known.
    pub(crate) fn last_busy(&self, name: &Name) -> Busy {
        let unknown =
            || Busy { name: name.clone(), holder: None, free_in: None, notification: Notification::default() };
        self.wait().busy.as_deref().cloned().unwrap_or_else(unknown)
    }

    /// Where a live guard's hold stands among the holds of the lease.
    pub(crate) fn position(&self, hold: HoldId) -> Option<usize> {
        self.held()?.holds.iter().position(|h| h.id == hold)
    }

    /// When this name next needs attention by itself.
    pub(crate) fn due(&self) -> Moment {
        let due = match &self.state {
            State::Held(held) => held.due(),
            State::Releasing(releasing) => releasing.release.due(),
            State::Withdrawing(release) => release.due(),
            State::Idle if self.wait().queue.is_empty() && self.wait().releases.is_empty() => self.wait().yield_until,
            _ => Moment::NEVER,
        };
        let Some(wait) = &self.wait else { return due };
        let pausing = wait.releases.iter().filter(|release| release.is_pausing());
        pausing.map(PendingRelease::due).min().unwrap_or(Moment::NEVER).min(due)
    }
}
