//! What goes on when nobody waits for it: calls of the keeper's, and calls whose callers have gone.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::table::{Answer, Input, Sending, TaskEffect};
use leasehold_core::{Name, Names};

use crate::client::event::Event;
use crate::runtime::in_flight::{Completed, InFlight};
use crate::runtime::panic_guard;
use crate::runtime::shell::{Recipient, Shell};
use leasehold_core::task_tracker::TaskGuard;

/// What remains to be done with the answer to a call whose caller has gone.
pub(crate) enum Remains {
    Nothing,
    /// Locks of these names that it turns out to have brought are released.
    Acquired(Names),
    /// How the release of a hold ended is told, and how long it was held.
    Released(Name, Duration),
}

impl Shell {
    /// Does a call that nobody waits for, on the keeper's connections and runtime.
    pub(crate) fn in_background(self: &Arc<Self>, sending: Sending) {
        // Without the keeper nothing is served any more; the table is only waiting to be dropped.
        if !self.is_served() {
            return;
        }
        let flight = self.start_on(&self.keepers_store, sending);
        self.adopt(flight, Recipient::Nothing, Remains::Nothing);
    }

    /// Goes on with a call whose caller has gone.
    pub(crate) fn adopt(self: &Arc<Self>, flight: InFlight, mine: Recipient, remains: Remains) {
        match flight.finished() {
            Ok(landed) => self.answer_adopted(landed, mine, &remains),
            Err(flight) => {
                let errand = self.errand();
                let adopted = Adopted { shell: self.clone(), flight: Some(flight), mine, remains, _errand: errand };
                self.background.spawn(adopted.finish());
            }
        }
    }

    fn answer_adopted(self: &Arc<Self>, landed: Completed, mine: Recipient, remains: &Remains) {
        let Completed { context, answer, panic } = landed;
        if let Some(panic) = panic {
            panic_guard::log("a layer", &panic);
        }
        if let Answer::Renew(reply) = &answer {
            let took = leasehold_clock::now().since(context.sent());
            let leases = reply.as_ref().map_or(0, |answered| answered.result.len());
            self.tell(|| Event::Renewed { leases, took, answered: reply.is_ok() });
        }
        let mail = self.step(Input::Answer(context, answer), mine);
        let names = match remains {
            Remains::Acquired(names) => Some(names),
            Remains::Nothing | Remains::Released(..) => None,
        };
        self.give_up(mail.told, names);
        if let (Remains::Released(name, held), Recipient::Hold(hold)) = (remains, mine) {
            let ok = matches!(mail.given, Some(Ok(_)));
            self.tell(|| Event::Released { name, hold: hold.number(), ok, held: *held });
        }
    }

    /// Undoes what a task was told that is no longer there to hear it.
    pub(crate) fn give_up(self: &Arc<Self>, told: Option<TaskEffect>, names: Option<&Names>) {
        match (told, names) {
            (Some(TaskEffect::Call(sending)), _) => {
                let mut state = self.state();
                state.stats.unsent(&sending.request);
                self.step_locked(&mut state, Input::Unsent(sending.context), Recipient::Nothing).send(self, state);
            }
            (Some(TaskEffect::Granted(grants)), Some(names)) => {
                for (grant, name) in grants.iter().zip(names.as_slice()) {
                    self.drop_hold(grant.hold, name);
                }
            }
            _ => {}
        }
    }
}

/// A call that the background finishes. Dropped under way (the keeper's runtime ends), it still answers the table.
struct Adopted {
    shell: Arc<Shell>,
    flight: Option<InFlight>,
    mine: Recipient,
    remains: Remains,
    _errand: TaskGuard,
}

impl Adopted {
    async fn finish(mut self) {
        if let Some(flight) = &mut self.flight {
            let landed = flight.land().await;
            self.flight = None;
            self.shell.answer_adopted(landed, self.mine, &self.remains);
        }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if let Some(landed) = self.flight.take().and_then(InFlight::lost)
            && !self.shell.is_forked()
        {
            self.shell.answer_adopted(landed, self.mine, &self.remains);
        }
    }
}
