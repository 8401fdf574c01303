//! Where processes contend and nothing goes wrong, none waits for more than a bounded number of turns of the others.

use leasehold_core::Names;

use super::{Scene, Verdict, broken};
use crate::process::Wanting;

/// As many turns each other process may have while one waits.
const TURNS_MAX: u32 = 20;

/// How many turns of others each process has waited through, on each name.
#[derive(Debug, Default)]
pub struct Starvation {
    turns: Vec<[u32; 3]>,
}

impl Starvation {
    /// The store granted `client` a turn on a name, alone or together with others.
    pub fn turn(&mut self, scene: &Scene<'_>, client: usize, name: usize) -> Verdict {
        self.turns.resize(scene.processes.len(), [0; 3]);
        // Whoever gives way does so for a millisecond at least, and where there is no way to the store others have many turns in it.
        if !scene.plan.is_fair() || scene.plan.latency.contains(&0) {
            return Ok(());
        }
        for (at, process) in scene.processes.iter().enumerate() {
            // A group needs all its names at once, and is promised nothing.
            let waits_for = |want: &Wanting| matches!(&want.names, Names::One(one) if *one == scene.names[name]);
            let mut wants = process.tasks.iter().filter_map(|task| task.want.as_ref());
            let waits = wants.any(|want| want.extends.is_none() && waits_for(want));
            let turns = &mut self.turns[at][name];
            *turns = if at == client || !waits { 0 } else { *turns + 1 };
            if *turns > TURNS_MAX * (scene.processes.len() as u32 - 1) {
                let what = format!("client {at} waits, and others had {turns} turns");
                return broken("starvation", Some(name), what);
            }
        }
        Ok(())
    }
}
