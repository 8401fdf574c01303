//! Where processes contend and nothing goes wrong, none waits for more than a bounded number of turns of the others.

use super::{Scene, Verdict, broken};

/// As many turns each other process may have while one waits.
const TURNS_MAX: u32 = 20;

/// How many turns of others each process has waited through.
#[derive(Debug, Default)]
pub struct Starvation {
    turns: Vec<u32>,
}

impl Starvation {
    /// The store granted `client` a turn.
    pub fn turn(&mut self, scene: &Scene<'_>, client: usize) -> Verdict {
        self.turns.resize(scene.processes.len(), 0);
        if !scene.plan.is_plain() || scene.plan.names > 1 {
            return Ok(());
        }
        for (at, process) in scene.processes.iter().enumerate() {
            let waits = process.tasks.iter().any(|task| task.want.as_ref().is_some_and(|want| !want.extends));
            let turns = &mut self.turns[at];
            *turns = if at == client || !waits { 0 } else { *turns + 1 };
            if *turns > TURNS_MAX * (scene.processes.len() as u32 - 1) {
                let what = format!("client {at} waits, and others had {turns} turns");
                return broken("starvation", Some(0), what);
            }
        }
        Ok(())
    }
}
