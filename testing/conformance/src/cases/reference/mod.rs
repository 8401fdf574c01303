//! A store and the reference store side by side: the same random requests, and the same answers to the last fence.
//!
//! The reference decides at the time at which the store says it answered. So this module knows no rule of its own: a
//! fence, an end or a waitlist is right if both agree.

mod comparison;
mod crowd;
mod listeners;
mod pair;
mod requests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Fencing, Store};
use leasehold_core::backoff::Rng;
use leasehold_core::reference::{FENCES_KEPT_FOR, Reference};
use tokio::task::JoinSet;

use self::pair::{Pair, Step};
use crate::case::{Checked, Failure, Need};
use crate::deployment::Hook;
use crate::hand::{Hand, named};
use crate::world::World;

crate::cases! {
    async the_same_answers needs [IN_STEP];
    async the_same_answers_with_shared_owners needs [IN_STEP, Need::SharedReentrance];
    async the_same_answers_with_several_names needs [IN_STEP, Need::SeveralNames];
    async the_same_answers_to_many_at_once needs [IN_STEP];
}

const IN_STEP: Need = Need::Hook(Hook::InStep);
/// Rounds that run side by side: most of the time each of them waits for an end.
const LANES: u64 = 16;
/// The same where every client opens a file, and one after the other writes to it.
const LANES_OF_A_FILE: u64 = 6;
/// Steps of a round.
const STEPS: u64 = 60;
/// How long a call to a server may take, as an option of its URL.
const CALL_LIMIT: &str = "30s";
/// A lane ends when this many of its steps were compared, ...
const COMPARED: u64 = 120;
/// ... or after this, on a machine that is too slow for the ends: that makes it shorter, never wrong.
const LANE_LIMIT: Duration = Duration::from_secs(40);
/// But not before this many: with none, nothing would be shown.
const COMPARED_MIN: u64 = 4;
/// Clients of a round.
const HANDS: usize = 3;
/// A server keeps an end in whole milliseconds, and reads its clock once for the key and once for the script. Between the two it may be
/// interrupted, but for no longer than the call took: that is added.
const SLACK: Duration = Duration::from_millis(2);
/// If calls take longer than this, leases of a few hundred milliseconds cannot be distinguished.
const SLACK_MAX: Duration = Duration::from_millis(100);
/// How long `file:` believes that a client waits; it finds out by itself when a process is gone.
const FILE_BELIEVES: Duration = Duration::from_secs(22);
/// How long any other store does.
const BELIEVES: Duration = Duration::from_secs(3);

async fn the_same_answers(world: World) -> Checked {
    side_by_side(&world, Kind { shared: false, several: false }).await
}

async fn the_same_answers_with_shared_owners(world: World) -> Checked {
    side_by_side(&world, Kind { shared: true, several: false }).await
}

async fn the_same_answers_with_several_names(world: World) -> Checked {
    side_by_side(&world, Kind { shared: world.capability.shared_reentrance, several: true }).await
}

async fn the_same_answers_to_many_at_once(world: World) -> Checked {
    crowd::many_at_once(&world).await
}

/// Requests beyond one name for an owner of its own.
#[derive(Clone, Copy)]
struct Kind {
    shared: bool,
    several: bool,
}

/// How a store keeps time and waiters, where that differs from store to store.
#[derive(Clone, Copy)]
struct Manner {
    /// Its ends may be later than the reference's by this, and its remaining times shorter.
    slack: Duration,
    believes: Duration,
    fences_kept_for: Duration,
    /// It reserves fences as one that can lose its memory.
    can_forget: bool,
    /// It never notifies a client of a name more often than the reference does.
    tells_once: bool,
    waiters: bool,
}

impl Manner {
    fn of(world: &World) -> Self {
        let is_file = world.url().starts_with("file:");
        let own_clock = world.capability.fencing == Fencing::Always;
        Self {
            slack: if own_clock { Duration::ZERO } else { SLACK },
            believes: if is_file { FILE_BELIEVES } else { BELIEVES },
            fences_kept_for: if own_clock { Duration::ZERO } else { FENCES_KEPT_FOR },
            can_forget: !own_clock,
            // It looks each second whether a turn has come.
            tells_once: !is_file,
            waiters: world.capability.waiters,
        }
    }

    /// A call took this long.
    fn took(&mut self, span: Duration) {
        if !self.slack.is_zero() {
            self.slack = self.slack.max(SLACK + span);
        }
    }

    fn reference(self, seed: u64) -> Reference {
        let reference = Reference::new(seed, self.fences_kept_for).enlisting_for(self.believes);
        if self.can_forget { reference.fallible() } else { reference }
    }
}

async fn side_by_side(world: &World, kind: Kind) -> Checked {
    let mut lanes = JoinSet::new();
    let is_file = world.url().starts_with("file:");
    for lane in 0..if is_file { LANES_OF_A_FILE } else { LANES } {
        lanes.spawn(rounds(world.clone(), kind, lane));
    }
    while let Some(finished) = lanes.join_next().await {
        finished??;
    }
    Ok(())
}

/// A client whose calls do not time out on a busy machine: the effect of such a call could not be compared.
async fn patient_hand(world: &World) -> Result<Hand, Failure> {
    if !world.url().starts_with("redis:") {
        return Hand::new(world).await;
    }
    let (told, store) = std::sync::mpsc::channel();
    let capture = move |store: Arc<dyn Store>| {
        let _ = told.send(store.clone());
        store
    };
    Client::builder(format!("{}&timeout={CALL_LIMIT}", world.url())).layer(capture).connect().await?;
    Hand::over(store.recv()?)
}

/// Rounds, one after the other, until enough steps of them were compared.
async fn rounds(world: World, kind: Kind, lane: u64) -> Checked {
    let (mut rng, began) = (Rng::new(world.seed.wrapping_add(lane)), Instant::now());
    let mut hands = Vec::new();
    for _ in 0..HANDS {
        hands.push(Arc::new(patient_hand(&world).await?));
    }
    let (mut compared, mut round) = (0, 0);
    while compared < COMPARED && (compared < COMPARED_MIN || began.elapsed() < LANE_LIMIT) {
        let names = (0..3).map(|at| named(&format!("{lane}-{round}-{at}"))).collect();
        let mut pair = Pair::new(&hands, names, Manner::of(&world), kind, &mut rng).await?;
        let told = |step| move |error| -> Failure { format!("lane {lane}, round {round}, {step}: {error}").into() };
        let mut is_clear = true;
        for step in 0..STEPS {
            is_clear = pair.step(&mut rng).await.map_err(told(format!("step {step}")))? == Step::Compared;
            if !is_clear {
                break;
            }
            compared += 1;
        }
        pair.end(is_clear).await.map_err(told("its end".to_owned()))?;
        round += 1;
    }
    Ok(())
}
