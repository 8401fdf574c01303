//! Requests to both: drawn at random, sometimes as no client would send them.

use std::sync::Arc;
use std::time::Duration;

use leasehold::port::{
    About, Acquire, Break, BreakOptions, Lease, Names, Release, ReleaseScope, Renew, RequestId, StoreOwner, StoreTime,
};
use leasehold::{Fence, Name};
use leasehold_core::backoff::Rng;

use super::pair::{Pair, Taken};
use crate::case::Failure;
use crate::hand::LONG;

/// Leases that end within a round, and one that does not.
const LEASES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(400), Duration::from_millis(700), LONG];
/// How long a name lingers.
const LINGERS: [Duration; 3] = [Duration::from_millis(150), Duration::from_millis(300), Duration::from_millis(800)];
/// Fences in a second.
const SECOND: u64 = 8_000_000;

/// One in this many.
pub(super) fn one_in(rng: &mut Rng, many: u64) -> bool {
    rng.below(many) == 0
}

fn any<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize].clone()
}

pub(super) fn lease(rng: &mut Rng) -> Duration {
    any(rng, &LEASES)
}

impl Pair {
    pub(super) fn any_name(&self, rng: &mut Rng) -> Name {
        any(rng, &self.names)
    }

    /// A request that was not sent before.
    pub(super) fn new_acquire(&mut self, now: StoreTime, rng: &mut Rng) -> Result<Taken, Failure> {
        let hand = rng.below(self.hands.len() as u64) as usize;
        let request = self.new_request(hand);
        let mut acquire = self.hands[hand].asking_by("-", request);
        acquire.names = match self.kind.several && one_in(rng, 3) {
            true => Names::new([self.any_name(rng), self.any_name(rng)])?,
            false => Names::One(self.any_name(rng)),
        };
        if self.kind.shared && one_in(rng, 2) {
            acquire.owner = StoreOwner::Shared(any(rng, &["x", "y"]).into());
        }
        let label = format!("request {}", request.number);
        acquire.about =
            Arc::new(About { host: Some("host".into()), pid: Some(hand as u32 + 1), label: Some(label.into()) });
        acquire.kept = one_in(rng, 2);
        self.change(&mut acquire, now, rng);
        Ok(Taken { hand, acquire, fences: Vec::new() })
    }

    /// What may be another in each sending of a request.
    pub(super) fn change(&self, acquire: &mut Acquire, now: StoreTime, rng: &mut Rng) {
        acquire.lease = lease(rng);
        acquire.block = if one_in(rng, 8) { 1_000 } else { 1 + rng.below(4) as u32 };
        acquire.enlist = self.manner.waiters && one_in(rng, 2);
        acquire.not_after = match rng.below(12) {
            0 => StoreTime::from_nanos(1),
            1 => now - Duration::from_millis(1),
            2 => now + Duration::from_millis(150),
            _ => StoreTime::NEVER,
        };
        acquire.seen = match rng.below(12) {
            0 => Fence::at(now).plus(rng.below(SECOND)),
            1 => self.known_fence(acquire.names.first(), rng).unwrap_or_default().plus(rng.below(3)),
            _ => Fence::NONE,
        };
    }

    /// A fence that the name had at some time.
    fn known_fence(&self, name: &Name, rng: &mut Rng) -> Option<Fence> {
        let known = self.fences.get(name)?;
        Some(any(rng, known))
    }

    /// One of the names of a request with the fence it was granted, or one that it was not.
    fn a_lease(&self, taken: &Taken, rng: &mut Rng) -> (Lease, bool) {
        let names = taken.acquire.names.as_slice();
        let at = rng.below(names.len() as u64) as usize;
        let granted = taken.fences.get(at).copied();
        let fence = match rng.below(6) {
            0 => self.known_fence(&names[at], rng),
            1 => granted.map(|fence| Fence::new(fence.get().saturating_sub(1))),
            _ => granted,
        };
        let fence = fence.unwrap_or(Fence::new(1));
        let lease = Lease { name: names[at].clone(), owner: taken.acquire.owner.clone(), fence };
        (lease, Some(fence) == granted)
    }

    pub(super) fn new_renewals(&self, rng: &mut Rng) -> Vec<Renew> {
        let many = 1 + rng.below(4);
        (0..many).map(|_| self.a_renewal(&any_of(&self.taken, rng), rng)).collect()
    }

    fn a_renewal(&self, taken: &Taken, rng: &mut Rng) -> Renew {
        let (lease, _) = self.a_lease(taken, rng);
        let hold = match (&lease.owner, rng.below(4)) {
            (_, 0) => None,
            (StoreOwner::Shared(_), 1) => Some(any_of(&self.taken, rng).acquire.request),
            _ => Some(taken.acquire.request),
        };
        Renew { lease, hold, term: super::requests::lease(rng), kept: one_in(rng, 2) }
    }

    pub(super) fn new_release(&mut self, rng: &mut Rng) -> Release {
        let taken = any_of(&self.taken, rng);
        let (lease, is_granted) = self.a_lease(&taken, rng);
        let scope = match rng.below(6) {
            0 => ReleaseScope::One(self.new_request(taken.hand)),
            1 => ReleaseScope::All,
            _ => ReleaseScope::Hold(self.a_hold(&taken, rng)),
        };
        let used = lease.fence.plus(rng.below(6));
        let is_stale = !is_granted && matches!(lease.owner, StoreOwner::Private(_));
        Release {
            client: self.hands[taken.hand].client,
            name: lease.name,
            owner: lease.owner,
            fence: (!one_in(rng, 4)).then_some(lease.fence),
            scope,
            last_used: (is_stale || one_in(rng, 2)).then_some(used),
            cooldown: if one_in(rng, 8) { any(rng, &LINGERS) } else { Duration::ZERO },
            rejoin: self.manner.waiters && one_in(rng, 4),
        }
    }

    /// Half of them name a fence: most often the last one that was granted, which may hold the lock, linger, or be gone.
    pub(super) fn break_options(&self, name: &Name, rng: &mut Rng) -> BreakOptions {
        let mut options = BreakOptions::from(if one_in(rng, 2) { Break::AtLeaseEnd } else { Break::Now });
        options.reset_fence = options.how == Break::Now && one_in(rng, 4);
        if one_in(rng, 2) {
            let granted = self.fences.get(name).map(Vec::as_slice).unwrap_or_default();
            let last = granted.last().copied().unwrap_or(Fence::new(SECOND));
            options.fence = Some(match rng.below(4) {
                0 if !granted.is_empty() => any(rng, granted),
                1 => last.plus(1 + rng.below(3)),
                _ => last,
            });
        }
        options
    }

    /// That of the request itself; of a shared owner, now and then another's.
    fn a_hold(&self, taken: &Taken, rng: &mut Rng) -> RequestId {
        match taken.acquire.owner {
            StoreOwner::Shared(_) if one_in(rng, 6) => any_of(&self.taken, rng).acquire.request,
            _ => taken.acquire.request,
        }
    }
}

/// One of those that were sent, most often one of the last few.
pub(super) fn any_of(taken: &[Taken], rng: &mut Rng) -> Taken {
    let recent = taken.len().saturating_sub(RECENT);
    if one_in(rng, 4) { any(rng, taken) } else { any(rng, &taken[recent..]) }
}

/// Others have mostly ended.
const RECENT: usize = 6;
