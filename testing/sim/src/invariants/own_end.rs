//! No hold is valid beyond its own end: a fixed one beyond what was asked, a limited one beyond its `max_hold`.

use leasehold_core::{Moment, Options, Term};

use super::{Scene, Verdict, broken};

/// When a hold granted at `now` ends by itself, though its lease go on.
pub fn of(now: Moment, options: &Options) -> Moment {
    match (options.term, options.max_hold) {
        (Term::Fixed(term), _) => now + term,
        (Term::Kept(_), Some(max_hold)) => now + max_hold,
        (Term::Kept(_), None) => Moment::NEVER,
    }
}

/// Looks at every hold.
pub fn check(scene: &Scene<'_>) -> Verdict {
    for held in scene.beliefs.iter().filter(|held| held.ends != Moment::NEVER) {
        let now = scene.processes[held.client].clock.moment(scene.at);
        if now > held.ends && held.is_valid(scene.at, scene.processes, scene.names) {
            let over = now.since(held.ends);
            let what = format!("client {} holds {:?} for {over:?} longer than it may", held.client, held.fence);
            return broken("own end", Some(held.name), what);
        }
    }
    Ok(())
}
