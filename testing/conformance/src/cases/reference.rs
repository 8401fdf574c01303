//! A store and the reference side by side: random requests to the port, and the same answers, up to what only time decides.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::port::{
    Acquire, Acquired, Answered, Break, Give, Granted, Holder, Inspected, Lease, Lingering, Names, Release, Released,
    Renew, Renewed, Reply, StoreOwner, StoreTime,
};
use leasehold::{Error, ErrorKind, Fence, Name};
use leasehold_core::reference::{FENCES_KEPT_FOR, Reference};
use leasehold_core::waiting::Rng;

use crate::case::{Checked, Failure, Need};
use crate::deployment::Hook;
use crate::hand::{Hand, LONG, named};
use crate::world::World;

crate::cases! {
    async the_same_answers needs [IN_STEP];
    async the_same_answers_with_shared_owners needs [IN_STEP, Need::SharedReentrance];
    async the_same_answers_with_several_names needs [IN_STEP, Need::SeveralNames, Need::SharedReentrance];
}

const IN_STEP: Need = Need::Hook(Hook::InStep);
const ROUNDS: u64 = 60;
const STEPS: u64 = 80;
/// Two clocks that count the same lease may differ by this much.
const APART: Duration = Duration::from_secs(2);

async fn the_same_answers(world: World) -> Checked {
    side_by_side(&world, false, false).await
}

async fn the_same_answers_with_shared_owners(world: World) -> Checked {
    side_by_side(&world, true, false).await
}

async fn the_same_answers_with_several_names(world: World) -> Checked {
    side_by_side(&world, true, true).await
}

async fn side_by_side(world: &World, shared: bool, several: bool) -> Checked {
    let mut rng = world.rng();
    for round in 0..ROUNDS {
        let names = (0..3).map(|at| named(&format!("{round}-{at}"))).collect();
        let hands = vec![Hand::new(world).await?, Hand::new(world).await?];
        let mut pair = Pair {
            hands,
            names,
            reference: Reference::new(round, FENCES_KEPT_FOR),
            taken: Vec::new(),
            fences: HashMap::new(),
            waiters: world.capability.waiters,
            shared,
            several,
        };
        for step in 0..STEPS {
            pair.step(&mut rng).await.map_err(|error| format!("round {round}, step {step}: {error}"))?;
        }
        pair.end().await.map_err(|error| format!("round {round}, its end: {error}"))?;
    }
    Ok(())
}

/// A store and the reference, and what was asked of both.
struct Pair {
    hands: Vec<Hand>,
    names: Vec<Name>,
    reference: Reference,
    taken: Vec<Taken>,
    /// By name: each fence of the reference with the store's fence for the same grant.
    fences: HashMap<Name, Vec<(Fence, Fence)>>,
    waiters: bool,
    shared: bool,
    several: bool,
}

/// An acquire that was sent, and the fences it was granted: the store's and the reference's.
struct Taken {
    hand: usize,
    request: Acquire,
    fences: Vec<(Fence, Fence)>,
}

impl Pair {
    async fn step(&mut self, rng: &mut Rng) -> Checked {
        let old = (!self.taken.is_empty()).then(|| rng.below(self.taken.len() as u64) as usize);
        match (rng.below(20), old) {
            (5..=6, Some(old)) => self.acquire_again(old).await,
            (7..=8, Some(old)) => self.renew(old, rng).await,
            (9..=15, Some(old)) => self.release(old, rng).await,
            (16, _) => self.break_one(rng).await,
            (17..=18, _) => self.look(rng).await,
            _ => self.acquire_new(rng).await,
        }
    }

    fn any_name(&self, rng: &mut Rng) -> Name {
        self.names[rng.below(self.names.len() as u64) as usize].clone()
    }

    async fn acquire_new(&mut self, rng: &mut Rng) -> Checked {
        let at = rng.below(self.hands.len() as u64) as usize;
        let mut request = self.hands[at].asking("-");
        request.names = match self.several && rng.below(3) == 0 {
            true => Names::new([self.any_name(rng), self.any_name(rng)])?,
            false => Names::One(self.any_name(rng)),
        };
        if self.shared && rng.below(2) == 0 {
            request.owner = StoreOwner::Shared(["x", "y"][rng.below(2) as usize].into());
        }
        request.block = 1 + rng.below(4) as u32;
        request.enlist = self.waiters && rng.below(2) == 0;
        if rng.below(10) == 0 {
            request.not_after = StoreTime::from_nanos(1);
        }
        self.taken.push(Taken { hand: at, request, fences: Vec::new() });
        self.acquire_again(self.taken.len() - 1).await
    }

    async fn acquire_again(&mut self, at: usize) -> Checked {
        let Taken { hand, request, .. } = &self.taken[at];
        let request = request.clone();
        let theirs = self.hands[*hand].store.acquire(request.clone()).await;
        let now = self.at(&theirs).await?;
        let ours = self.reference.acquire(now, &request);
        match (theirs.map(|answered| answered.result), ours) {
            (Ok(Acquired::Granted(theirs)), Ok(Acquired::Granted(ours))) => {
                self.taken[at].fences.clear();
                for ((name, theirs), ours) in request.names.as_slice().iter().zip(theirs).zip(ours) {
                    self.same_grant(name, request.block, &theirs, &ours)?;
                    self.taken[at].fences.push((theirs.block.first, ours.block.first));
                }
                Ok(())
            }
            (Ok(Acquired::Busy(theirs)), Ok(Acquired::Busy(ours))) => {
                same("the busy name", &theirs.name, &ours.name)?;
                self.same_holders(&ours.name, theirs.holder.as_slice(), ours.holder.as_slice())
            }
            (Ok(Acquired::TooLate), Ok(Acquired::TooLate)) => Ok(()),
            (Err(theirs), Err(ours)) => same("the kind of error", theirs.kind(), ours.kind()),
            (theirs, ours) => differ("acquire", &request, &theirs, &ours),
        }
    }

    fn same_grant(&mut self, name: &Name, block: u32, theirs: &Granted, ours: &Granted) -> Checked {
        same("holds", theirs.holds, ours.holds)?;
        if !(1..=block.max(ours.block.len)).contains(&theirs.block.len) {
            return Err(format!("a block of {} where {block} were asked for", theirs.block.len).into());
        }
        near(Some(theirs.left), Some(ours.left))?;
        self.same_fence(name, theirs.block.first, ours.block.first)
    }

    /// The same grant has the same fence each time, and a new one a larger one.
    fn same_fence(&mut self, name: &Name, theirs: Fence, ours: Fence) -> Checked {
        let known = self.fences.entry(name.clone()).or_default();
        if let Some((_, fence)) = known.iter().find(|(fence, _)| *fence == ours) {
            return same("the fence", theirs, *fence);
        }
        if known.iter().any(|(_, before)| *before >= theirs) {
            return Err(format!("fence {theirs} is not above those before it").into());
        }
        known.push((ours, theirs));
        Ok(())
    }

    async fn renew(&mut self, at: usize, rng: &mut Rng) -> Checked {
        let taken = &self.taken[at];
        let Some(which) = some_of(taken, rng) else { return Ok(()) };
        let (name, owner) = (taken.request.names.as_slice()[which].clone(), taken.request.owner.clone());
        let renew = |fence| {
            let lease = Lease { name: name.clone(), owner: owner.clone(), fence };
            vec![Renew { lease, hold: None, term: LONG * 2, kept: false }]
        };
        let (their_fence, our_fence) = taken.fences[which];
        let theirs = self.hands[taken.hand].store.renew(renew(their_fence)).await?;
        let ours = self.reference.renew(theirs.at, &renew(our_fence));
        match (theirs.result.as_slice(), ours.as_slice()) {
            ([Renewed::Kept { left: theirs }], [Renewed::Kept { left: ours }]) => near(Some(*theirs), Some(*ours)),
            ([Renewed::Lost], [Renewed::Lost]) => Ok(()),
            (theirs, ours) => differ("renew", &renew(our_fence), &theirs, &ours),
        }
    }

    async fn release(&mut self, at: usize, rng: &mut Rng) -> Checked {
        let hand = self.taken[at].hand;
        let give = match rng.below(6) {
            0 => Give::One(self.hands[hand].request()),
            1 => Give::All,
            _ => Give::Hold(self.taken[at].request.request),
        };
        let taken = &self.taken[at];
        let which = some_of(taken, rng);
        let name = taken.request.names.as_slice()[which.unwrap_or_default()].clone();
        let fences = which.map(|which| taken.fences[which]);
        let named = rng.below(4) > 0;
        let release = |used: Option<Fence>| Release {
            client: self.hands[hand].client,
            name: name.clone(),
            owner: taken.request.owner.clone(),
            fence: used.filter(|_| named),
            give,
            last_used: used,
            linger: Duration::ZERO,
            rejoin: false,
        };
        let mut requests = [release(fences.map(|(theirs, _)| theirs)), release(fences.map(|(_, ours)| ours))];
        if rng.below(20) == 0 {
            requests.iter_mut().for_each(|request| request.linger = LONG);
        }
        let [theirs, ours] = &requests;
        let answered = self.hands[hand].store.release(theirs.clone()).await?;
        let (expected, _) = self.reference.release(answered.at, ours);
        match (answered.result, expected) {
            (Released::Released { .. }, Released::Released { .. }) if !self.waiters => Ok(()),
            (theirs, ours) if theirs == ours => Ok(()),
            (theirs, ours) => differ("release", &requests[1], &theirs, &ours),
        }
    }

    async fn break_one(&mut self, rng: &mut Rng) -> Checked {
        let name = self.any_name(rng);
        let how = if rng.below(3) == 0 { Break::AtLeaseEnd } else { Break::Now };
        let theirs = self.hands[0].store.break_lock(name.clone(), how).await?;
        let (ours, _) = self.reference.break_lock(theirs.at, &name, how);
        self.same_inspected(&theirs.result, &ours)
    }

    async fn look(&mut self, rng: &mut Rng) -> Checked {
        let name = self.any_name(rng);
        let theirs = self.hands[0].store.inspect(name.clone()).await?;
        let ours = self.reference.inspect(theirs.at, &name);
        self.same_inspected(&theirs.result, &ours)
    }

    /// All that is held, listed; then taken away, so that the next round is alone.
    async fn end(&mut self) -> Checked {
        let prefix = self.names[0].as_str().trim_end_matches('0').to_owned();
        let theirs = self.hands[0].store.list(prefix.clone(), None, 10).await?;
        let ours = self.reference.list(theirs.at, &prefix, None, 10);
        // A store may know that a name lingers, and list it, or not.
        let held = |listed: &&Inspected| !listed.holders.is_empty();
        same("the number of names", theirs.result.iter().filter(held).count(), ours.iter().filter(held).count())?;
        for (theirs, ours) in theirs.result.iter().filter(held).zip(ours.iter().filter(held)) {
            self.same_inspected(theirs, ours)?;
        }
        for name in &self.names {
            self.hands[0].store.break_lock(name.clone(), Break::Now).await?;
        }
        Ok(())
    }

    fn same_inspected(&mut self, theirs: &Inspected, ours: &Inspected) -> Checked {
        same("the name", &theirs.name, &ours.name)?;
        if self.waiters {
            same("waiters", theirs.waiters, ours.waiters)?;
        }
        if let Some(theirs) = &theirs.lingers {
            self.same_lingering(&ours.name, theirs, ours.lingers.as_ref())?;
        }
        self.same_holders(&ours.name, &theirs.holders, &ours.holders)
    }

    /// Where the store knows that it lingers.
    fn same_lingering(&mut self, name: &Name, theirs: &Lingering, ours: Option<&Lingering>) -> Checked {
        let Some(ours) = ours else { return Err(format!("{theirs:?} though it does not linger").into()) };
        near(Some(theirs.left), Some(ours.left))?;
        match &theirs.last {
            Some(last) => self.same_holders(name, std::slice::from_ref(last), ours.last.as_slice()),
            None => Ok(()),
        }
    }

    fn same_holders(&mut self, name: &Name, theirs: &[Holder], ours: &[Holder]) -> Checked {
        same("the number of holders", theirs.len(), ours.len())?;
        for (theirs, ours) in theirs.iter().zip(ours) {
            same("the owner", &theirs.owner, &ours.owner)?;
            same("holds", theirs.holds, ours.holds)?;
            near(theirs.left, ours.left)?;
            if let (Some(theirs), Some(ours)) = (theirs.fence, ours.fence) {
                self.same_fence(name, theirs, ours)?;
            }
        }
        Ok(())
    }

    /// When the store answered; where it refused, its clock.
    async fn at<T>(&self, reply: &Reply<T>) -> Result<StoreTime, Error> {
        match reply {
            Ok(Answered { at, .. }) => Ok(*at),
            Err(error) if error.kind() == ErrorKind::AlreadyHeld => self.hands[0].now().await,
            Err(error) => Err(error.clone()),
        }
    }
}

/// One of the names that a request was granted.
fn some_of(taken: &Taken, rng: &mut Rng) -> Option<usize> {
    (!taken.fences.is_empty()).then(|| rng.below(taken.fences.len() as u64) as usize)
}

#[expect(clippy::needless_pass_by_value, reason = "references or numbers")]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, theirs: T, ours: T) -> Checked {
    if theirs == ours {
        return Ok(());
    }
    Err(format!("{what}: the store says {theirs:?}, the reference {ours:?}").into())
}

fn near(theirs: Option<Duration>, ours: Option<Duration>) -> Checked {
    let apart = theirs.zip(ours).map(|(theirs, ours)| theirs.abs_diff(ours));
    if theirs.is_some() == ours.is_some() && apart.is_none_or(|apart| apart < APART) {
        return Ok(());
    }
    Err(format!("time left: the store says {theirs:?}, the reference {ours:?}").into())
}

fn differ(
    what: &str,
    request: &dyn std::fmt::Debug,
    theirs: &dyn std::fmt::Debug,
    ours: &dyn std::fmt::Debug,
) -> Checked {
    Err::<(), Failure>(format!("{what}: the store says {theirs:?}, the reference {ours:?}, to {request:?}").into())
}
