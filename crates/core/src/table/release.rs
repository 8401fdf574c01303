//! A guard gives its hold back: the lease stays with other guards, is handed off to the next in line, or goes back to the store.

use smallvec::smallvec;

use super::Table;
use super::entry::{Entry, Releasing, State};
use super::losses::{LostHold, lost, lost_by};
use super::pending_release::PendingRelease;
use super::types::{HoldId, Loss, Output, Outputs, TaskEffect};
use crate::backoff;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::port::{Released, Reply};
use crate::time::Moment;

impl Table {
    /// A guard gives its hold back.
    pub(super) fn release_hold(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        if !self.lost_holds.is_empty()
            && let Some(mut lost) = self.lost_holds.remove(&hold)
        {
            let release = lost.take_release(self.jumped);
            return self.release_lost(now, hold, lost.report.loss, release, out);
        }
        let entry = self.entries.get_mut(name);
        let at = entry.as_ref().and_then(|entry| entry.position(hold));
        let (Some(entry), Some(at)) = (entry, at) else {
            let error = Error::new(ErrorKind::NotHolder, "release", "it was released already");
            return out.push(Output::Released(hold, Err(error)));
        };
        let Some(held) = entry.held_mut() else { return };
        let ended = held.remove(at).end <= now;
        self.guards -= 1;
        let still = held.holds.len();
        if still > 0 {
            let result = if ended || now >= held.deadline {
                Err(lost("release"))
            } else {
                Ok(Released::StillHeld(still as u32))
            };
            out.push(Output::Released(hold, result));
            return self.agenda.touch(name);
        }
        let deadline = held.deadline;
        let hands_off = !ended && entry.can_hand_off(now);
        if now >= deadline {
            return self.release_late(now, hold, name, out);
        }
        if hands_off && let Some((id, grant)) = entry.hand_off(now, HoldId(self.numbers.next())) {
            self.guards += 1;
            out.push(Output::Released(hold, Ok(Released::Released { waiters: None })));
            out.push(Output::To(id, TaskEffect::Granted(smallvec![grant])));
            if entry.due() != entry.timer {
                self.agenda.touch(name);
            }
            return;
        }
        if ended {
            out.push(Output::Released(hold, Err(lost("release"))));
        }
        self.start_release(now, name, (!ended).then_some(hold), out);
    }

    /// A guard whose lock was lost is dropped. With the last guard of a lease, the lease is released that the store may still have.
    fn release_lost(
        &mut self,
        now: Moment,
        hold: HoldId,
        loss: Loss,
        release: Option<PendingRelease>,
        out: &mut Outputs,
    ) {
        out.push(Output::Released(hold, Err(lost_by("release", loss))));
        if let Some(release) = release {
            self.release_beside(now, release, now, out);
        }
    }

    /// Its time was over before the table had noticed.
    fn release_late(&mut self, now: Moment, hold: HoldId, name: &Name, out: &mut Outputs) {
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(held) = entry.take_held() else { return };
        let release = held.pending_release(client, name, now, false);
        self.forget_failures(name);
        self.release_lost(now, hold, Loss::TimeEnded, Some(release), out);
        self.agenda.touch(name);
    }

    /// Sends a lease back to the store. `hold`: the guard that waits for the answer, if there is one.
    fn start_release(&mut self, now: Moment, name: &Name, hold: Option<HoldId>, out: &mut Outputs) {
        self.forget_failures(name);
        let client = self.settings.client;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let rejoin = entry.wait.as_ref().is_some_and(|wait| !wait.queue.is_empty() && wait.watched);
        let Some(held) = entry.take_held() else { return };
        let mut release = held.pending_release(client, name, now, rejoin);
        let sending = release.send(now, hold);
        entry.state = State::Releasing(Box::new(Releasing { held, release }));
        out.push(match hold {
            Some(hold) => Output::ForHold(hold, sending),
            None => Output::Background(sending),
        });
        self.agenda.touch(name);
    }

    /// The store answered a release: of the lease that is on its way back, or of something beside it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answered call")]
    pub(super) fn released(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        hold: Option<HoldId>,
        reply: Reply<Released>,
        out: &mut Outputs,
    ) {
        let Some(entry) = self.entries.get_mut(name) else {
            return self.released_beside(now, sent, name, number, hold, reply, out);
        };
        let release = match &mut entry.state {
            State::Releasing(releasing) if releasing.release.number == number => &mut releasing.release,
            _ => return self.released_beside(now, sent, name, number, hold, reply, out),
        };
        let answered = match reply {
            Ok(answered) => answered,
            Err(error) => {
                release.failed(now, error.outcome(), &mut self.rng);
                out.extend(hold.map(|hold| Output::Released(hold, Err(error))));
                return self.agenda.touch(name);
            }
        };
        let was_lost = answered.result == Released::NotHeld && !release.maybe_executed;
        let (rejoined, is_settled) = (release.request.rejoin, release.is_settled(now, sent, answered.at));
        let result = if was_lost { Err(lost("release")) } else { Ok(answered.result) };
        if let State::Releasing(releasing) = std::mem::take(&mut entry.state)
            && !is_settled
        {
            entry.wait_mut().releases.push(releasing.release);
        }
        let others_wait = !matches!(result, Ok(Released::Released { waiters: Some(0) } | Released::StillHeld(_)));
        if others_wait && result.is_ok() {
            // Longer only for a client on the list of waiters: it hears when it is its turn again.
            let wait = entry.wait_mut();
            let turns = if rejoined { wait.turns } else { 0 };
            wait.yield_until = now + backoff::yield_pause(self.round_trip, turns);
            wait.attempts = 0;
            wait.turns += 1;
        } else {
            entry.reset_turns();
        }
        out.extend(hold.map(|hold| Output::Released(hold, result)));
        self.agenda.touch(name);
    }

    /// The client closes: its guards are lost, its leases go back.
    pub(super) fn close_held(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(held) = self.entries.get_mut(name).and_then(Entry::held_mut) else { return };
        let holds = std::mem::take(&mut held.holds);
        self.guards -= holds.len();
        for hold in holds {
            let Some(held) = self.entries.get(name).and_then(Entry::held) else { return };
            let report = self.report(now, name, held, &hold, Loss::Closed);
            self.lost_holds.insert(hold.id, LostHold::new(report.clone(), None, self.jumped));
            out.push(Output::Lost(hold.id, name.clone(), report));
        }
        self.start_release(now, name, None, out);
    }
}
