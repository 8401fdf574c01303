//! Leaving a lease to its owner: the process forgets it, and it stays in the store until it ends or its owner comes again.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::table::Outputs;

use crate::chance::SECOND;
use crate::invariants::broken;
use crate::process::Guard;
use crate::story::Who;
use crate::world::World;

impl World {
    /// A task leaves a lease to its owner, where that is possible; says whether it did.
    pub(crate) fn leave_to_owner(&mut self, client: usize, task: usize, guard: &Guard) -> bool {
        // Long leases that nobody gives back would be waited for, one after the other.
        if self.plan.lease > SECOND {
            return false;
        }
        let now = self.now(client);
        let name = self.names[guard.name].clone();
        let process = &mut self.processes[client];
        let valid = process.table.time_left(now, &name, guard.hold).is_some();
        let may = process.table.check_detach(now, guard.hold, &name);
        let lost = may.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::Lost | ErrorKind::Closed));
        if lost == valid {
            let what = format!("client {client} may leave {:?}: {may:?}, and it is valid: {valid}", guard.hold);
            self.must(broken("leaving", Some(guard.name), what));
            return false;
        }
        if !may.is_ok_and(|wait| wait == Duration::ZERO) {
            return false;
        }
        self.story.tell(self.at, Who::Task(client, task), Some(guard.name), || format!("leaves {:?}", guard.hold));
        // It stays in the store until it ends.
        self.orphans[guard.name] = true;
        self.forget(client, task, guard);
        let mut out = Outputs::new();
        self.processes[client].table.detach(now, guard.hold, &name, &mut out);
        self.carry_out_all(client, out);
        true
    }

    fn forget(&mut self, client: usize, task: usize, guard: &Guard) {
        self.beliefs.retain(|held| held.client != client || held.hold != guard.hold);
        self.validity.given_back(client, guard.hold);
        self.processes[client].tasks[task].guards.retain(|held| held.hold != guard.hold);
    }
}
