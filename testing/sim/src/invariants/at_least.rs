//! Others are kept out for as long as a holder asked from its grant on, also when it released sooner.

use std::time::Duration;

use leasehold_core::{Options, Owner, Term};

use super::{Scene, Verdict, broken};
use crate::beliefs::Belief;

/// For whom each name is kept, and until when.
#[derive(Debug, Default)]
pub struct AtLeast {
    kept_for: [Option<(Owner, u64)>; 3],
}

impl AtLeast {
    /// A grant is told.
    pub fn granted(&mut self, scene: &Scene<'_>, grant: &Belief, options: &Options) -> Verdict {
        let kept = self.kept_for[grant.name].as_ref();
        let same = kept.is_some_and(|(owner, _)| *owner == grant.owner);
        if let (false, Some((_, until))) = (same, kept)
            && scene.at < *until
            && scene.plan.is_calm()
        {
            let early = (*until - scene.at) / 1_000;
            let what = format!("client {} is granted {:?} {early} µs too early", grant.client, grant.fence);
            return broken("at least", Some(grant.name), what);
        }
        let until = kept.filter(|_| same).map_or(0, |(_, until)| *until);
        let until = until.max(scene.at + promised(options, scene.plan.clock_step));
        self.kept_for[grant.name] = Some((grant.owner.clone(), until));
        Ok(())
    }
}

/// What ends by itself keeps nobody out for longer; and clocks differ.
fn promised(options: &Options, clock_step: u64) -> u64 {
    let lease = if let Term::Fixed(term) = options.term { term } else { Duration::MAX };
    let most = lease.min(options.max_hold.unwrap_or(Duration::MAX));
    let nanos = options.at_least.min(most).as_nanos() as u64;
    (nanos - nanos / 100).saturating_sub(2 * clock_step)
}
