//! A name that is free does not stay free while somebody waits for it; and in the end everybody is done.

use leasehold_core::Names;

use super::{Scene, Verdict, broken};
use crate::chance::{MS, SECOND};

/// A lost hint costs about a second, and so does giving way where round trips were long; a pause after a failure half as much again.
const USUAL: u64 = 2_600 * MS;

/// Since when each name is free in the store.
#[derive(Debug, Default)]
pub struct WakeUp {
    free_since: [u64; 3],
}

impl WakeUp {
    /// The store has the name from now on taken until `until`, or free since `until`.
    pub fn free(&mut self, name: usize, until: u64) {
        self.free_since[name] = until;
    }

    /// The store grants a name that was free until now.
    pub fn taken(&self, scene: &Scene<'_>, name: usize) -> Verdict {
        if !scene.remembers {
            return Ok(());
        }
        let plain = scene.plan.is_plain();
        let slowest = scene.processes.iter().map(|process| process.latency).max().unwrap_or(0);
        let calm_since = if plain { 0 } else { scene.quiet_since };
        let bound = if plain { 30 * MS + 12 * slowest } else { USUAL + scene.plan.call_limit + 12 * slowest };
        for process in scene.processes.iter().filter(|process| process.alive) {
            for want in process.tasks.iter().filter_map(|task| task.want.as_ref()) {
                let for_this = matches!(&want.names, Names::One(one) if *one == scene.names[name]);
                // Those who wait behind one whose lock was taken away, in its own process, hear of it as late as it does.
                let free_since = self.free_since[name].max(scene.taken_until[name]);
                let since = want.since.max(calm_since).max(free_since);
                if for_this && !want.once && want.extends.is_none() && scene.at.saturating_sub(since) > bound {
                    let waited = (scene.at - since) / MS;
                    return broken("wake-up", Some(name), format!("it was free for {waited} ms while a task waited"));
                }
            }
        }
        Ok(())
    }
}

/// How long after the faults everything must have ended.
pub fn time_to_finish(plan: &crate::plan::Plan) -> u64 {
    let acts = plan.clients as u64 * 2 * plan.tasks * plan.rounds;
    // What is left to its owner keeps others out until it ends.
    let left = if plan.habits.leave > 0 { acts * plan.lease * 9 } else { 0 };
    20 * SECOND + plan.lease * 9 + acts * (plan.hold * 4 + 300 * MS) + left
}

/// The time to finish is over.
pub fn finished(scene: &Scene<'_>) -> Verdict {
    for (at, process) in scene.processes.iter().enumerate().filter(|(_, process)| process.alive) {
        if let Some(task) = process.tasks.iter().position(|task| !task.done) {
            let want = process.tasks[task].want.as_ref();
            let name = want.and_then(|want| scene.names.iter().position(|name| name == want.names.first()));
            let what = format!("task {at}.{task} never gets on (waits: {})", want.is_some());
            return broken("wake-up", name, what);
        }
    }
    Ok(())
}
