//! Releases that no guard waits for: of an acquire that was given up, and of a lease that is lost or late.

use super::Table;
use super::entry::{Entry, State};
use super::losses::lost;
use super::pending_release::PendingRelease;
use super::types::{HoldId, Output, Outputs};
use crate::error::Error;
use crate::name::Name;
use crate::port::{Answered, Release, Released, Reply};
use crate::time::Moment;

impl Table {
    /// Takes a pending acquire back: a lease that it may have been granted is released until that is certain.
    pub(super) fn withdraw(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(pending) = entry.wait_mut().pending.take() else { return };
        if pending.unsettled_until.is_none() {
            entry.state = State::Idle;
            return self.agenda.touch(name);
        }
        let number = pending.number();
        let request = Release::hold(name.clone(), pending.call.owner, pending.call.request);
        let mut release = PendingRelease::new(number, request, pending.over, pending.unsettled_until);
        release.executed_by = pending.executed_by;
        self.release_first(now, release, out);
    }

    /// Releases a lease that nobody waits for, not before `at`.
    pub(super) fn release_beside(&mut self, now: Moment, mut release: PendingRelease, at: Moment, out: &mut Outputs) {
        release.again = at;
        let name = release.request.name.clone();
        self.entries.entry(name.clone()).or_default().wait_mut().releases.push(release);
        self.send_releases(now, &name, out);
        self.agenda.touch(&name);
    }

    /// Sends the releases of a name that are due, and forgets those that are over.
    pub(super) fn send_releases(&mut self, now: Moment, name: &Name, out: &mut Outputs) {
        let closed = self.closed;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let mut is_over = |release: &mut PendingRelease| release.tick(now, closed, out);
        let is_state_over = match &mut entry.state {
            State::Releasing(releasing) => is_over(&mut releasing.release),
            State::Withdrawing(release) => is_over(release),
            _ => false,
        };
        if is_state_over {
            entry.state = State::Idle;
        }
        let Some(wait) = entry.wait.as_deref_mut() else { return };
        // These keep nobody from the name: one that is under way may be executed at any moment, and is waited for.
        wait.releases.retain_mut(|release| !release.is_pausing() || !is_over(release));
    }

    /// Sends a release that must be settled before anybody asks for the name.
    pub(super) fn release_first(&mut self, now: Moment, mut release: PendingRelease, out: &mut Outputs) {
        let name = release.request.name.clone();
        out.push(Output::Background(release.send(now, None)));
        let entry = self.entries.entry(name.clone()).or_default();
        entry.wait_mut().pending = None;
        entry.state = State::Withdrawing(Box::new(release));
        self.agenda.touch(&name);
    }

    /// The store answered a release that no lease waits for: settled, unless a late sending of the acquire may still be granted. If the
    /// lease was over before its release was answered, its guard has its result all the same.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answered call")]
    pub(super) fn released_beside(
        &mut self,
        now: Moment,
        sent: Moment,
        name: &Name,
        number: u64,
        hold: Option<HoldId>,
        reply: Reply<Released>,
        out: &mut Outputs,
    ) {
        if let Some(hold) = hold {
            return out.push(Output::Released(hold, late_result(reply)));
        }
        let Some(Entry { state, wait: Some(wait), .. }) = self.entries.get_mut(name) else { return };
        let beside = wait.releases.iter().position(|release| release.number == number);
        let release = match (&mut *state, beside) {
            (_, Some(at)) => &mut wait.releases[at],
            (State::Withdrawing(release), None) if release.number == number => release,
            _ => return,
        };
        match &reply {
            Err(error) => release.failed(now, error.outcome(), &mut self.rng),
            Ok(answered) if !release.is_settled(now, sent, answered.at) => {}
            Ok(_) => match beside {
                Some(at) => drop(wait.releases.swap_remove(at)),
                None => (*state, wait.attempts) = (State::Idle, 0),
            },
        }
        if beside.is_some() && matches!(reply, Ok(Answered { result: Released::Released { .. }, .. })) {
            self.hint_waiters(name);
        }
        self.agenda.touch(name);
    }
}

/// The result for a guard whose release is answered after its lease was over and forgotten.
fn late_result(reply: Reply<Released>) -> Result<Released, Error> {
    match reply?.result {
        Released::NotHeld => Err(lost("release")),
        result => Ok(result),
    }
}
