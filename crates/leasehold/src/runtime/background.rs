//! Calls that the keeper's runtime finishes: its own, and those whose callers have gone.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_core::Names;
use leasehold_core::table::{Answer, Input, Sending, TaskEffect};
use leasehold_core::task_tracker::TaskGuard;

use crate::client::event::Event;
use crate::runtime::in_flight::{Completed, InFlight};
use crate::runtime::panic_guard;
use crate::runtime::shell::{Effects, Recipient, Shell};

impl Shell {
    /// Makes a call without a caller, on the keeper's connections and runtime.
    pub(crate) fn call_in_background(self: &Arc<Self>, sending: Sending) {
        // Without the keeper nothing is served any more; the table only waits to be dropped.
        if !self.is_served() {
            return;
        }
        let in_flight = InFlight::start(self, &self.keepers_store, sending);
        self.adopt(in_flight, Recipient::Nobody, |shell, effects| shell.give_up(effects.effect, None));
    }

    /// Finishes a call whose caller has gone. `then` gets the effects that its answer has for the recipient.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        mut in_flight: InFlight,
        recipient: Recipient,
        then: impl FnOnce(&Arc<Self>, Effects) + Send + 'static,
    ) {
        if in_flight.is_answered()
            && let Poll::Ready(completed) = in_flight.poll(&mut Context::from_waker(Waker::noop()))
        {
            return then(self, self.answer_adopted(completed, recipient));
        }
        let (shell, task) = (self.clone(), self.tasks.begin());
        let adopted = Adopted { shell, recipient, call: Some((in_flight, then)), _task: task };
        self.background.spawn(adopted.finish());
    }

    fn answer_adopted(self: &Arc<Self>, completed: Completed, recipient: Recipient) -> Effects {
        let Completed { context, answer, panic } = completed;
        if let Some(panic) = panic {
            panic_guard::log("a layer", &panic);
        }
        if let Answer::Renew(reply) = &answer {
            let took = leasehold_clock::now().since(context.sent());
            let leases = reply.as_ref().map_or(0, |answered| answered.result.len());
            self.emit(|| Event::Renewed { leases, took, answered: reply.is_ok() });
        }
        self.step(Input::Answer(context, answer), recipient)
    }

    /// Undoes an effect for a task that is gone: a call is not sent, and locks of these names are released.
    pub(crate) fn give_up(self: &Arc<Self>, effect: Option<TaskEffect>, names: Option<&Names>) {
        match (effect, names) {
            (Some(TaskEffect::Call(sending)), _) => {
                let mut state = self.state();
                state.stats.unsent(&sending.request);
                self.step_locked(&mut state, Input::Unsent(sending.context), Recipient::Nobody).send(self, state);
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

/// A call that the background finishes. Dropped under way, because the keeper's runtime ends, it still answers the table.
struct Adopted<F: FnOnce(&Arc<Shell>, Effects)> {
    shell: Arc<Shell>,
    recipient: Recipient,
    call: Option<(InFlight, F)>,
    _task: TaskGuard,
}

impl<F: FnOnce(&Arc<Shell>, Effects)> Adopted<F> {
    async fn finish(mut self) {
        let Some((in_flight, _)) = &mut self.call else { return };
        let completed = poll_fn(|task| in_flight.poll(task)).await;
        if let Some((_, then)) = self.call.take() {
            then(&self.shell, self.shell.answer_adopted(completed, self.recipient));
        }
    }
}

impl<F: FnOnce(&Arc<Shell>, Effects)> Drop for Adopted<F> {
    fn drop(&mut self) {
        if let Some((in_flight, then)) = self.call.take()
            && let Some(completed) = in_flight.lost()
            && !self.shell.is_forked()
        {
            then(&self.shell, self.shell.answer_adopted(completed, self.recipient));
        }
    }
}
