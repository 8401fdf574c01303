//! What callers and keeper of a quorum share: the servers' clocks and health, and the grants that are held.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use leasehold_core::backoff::Rng;
use leasehold_core::port::Answered;
use leasehold_core::quorum::{Clocks, Health, Hold, PerServer, Vote};
use leasehold_core::{Error, Moment, Name, RequestId, StoreTime};

use crate::deferred::DeferredWork;
use crate::host::Host;
use crate::server_calls::InFlightCalls;

/// A server with more open calls than this that no caller waits for is left out for a while.
const STRAGGLERS_MAX: u32 = 16;
/// With fewer grants than this, none are scanned.
const SWEEP_MIN: usize = 128;

pub(crate) struct State {
    pub(crate) clocks: Clocks,
    pub(crate) health: Health,
    pub(crate) rng: Rng,
    pub(crate) attempts: u64,
    /// When this store's own clock started, and the servers' clock at that time.
    anchor: Option<(Moment, StoreTime)>,
    /// Grants, by the client's request.
    pub(crate) holds: HashMap<RequestId, Held, RandomState>,
    /// At this number of grants, those that ended without a release are dropped.
    sweep_at: usize,
    /// Calls to each server that no caller waits for.
    pub(crate) stragglers: PerServer<u32>,
    pub(crate) deferred: DeferredWork,
}

/// A grant, as long as it is held.
pub(crate) struct Held {
    pub(crate) hold: Hold,
    /// The names that were not released yet.
    pub(crate) names: Vec<Name>,
    /// Every server that voted for it has it at least until then, if it forgets nothing.
    pub(crate) ends: Moment,
    /// Votes that were not needed.
    pub(crate) late: InFlightCalls<Answered<Vote>>,
}

impl State {
    pub(crate) fn new(servers: usize, host: &dyn Host) -> Result<Self, Error> {
        Ok(Self {
            clocks: Clocks::new(servers),
            health: Health::new(servers, Rng::new(host.seed()?)),
            rng: Rng::new(host.seed()?),
            attempts: 0,
            anchor: None,
            holds: HashMap::default(),
            sweep_at: SWEEP_MIN,
            stragglers: (0..servers).map(|_| 0).collect(),
            deferred: DeferredWork::default(),
        })
    }

    /// This store's own clock: it started with the servers' clocks and runs with the local one.
    pub(crate) fn at(&mut self, now: Moment) -> StoreTime {
        let (began, at) = match self.anchor {
            Some(anchor) => anchor,
            None => {
                let Some(middle) = self.clocks.middle(now) else { return StoreTime::default() };
                *self.anchor.insert((now, middle))
            }
        };
        at + now.since(began)
    }

    /// Records a grant.
    pub(crate) fn keep(&mut self, now: Moment, request: RequestId, held: Held) {
        if self.holds.len() >= self.sweep_at {
            self.holds.retain(|_, held| held.ends > now);
            self.sweep_at = (self.holds.len() * 2).max(SWEEP_MIN);
        }
        self.holds.insert(request, held);
    }

    /// Servers that need not be called now, and why.
    pub(crate) fn left_out(&self, now: Moment) -> PerServer<Option<Option<Error>>> {
        let mut ailing = self.health.ailing(now);
        let mut spare = (ailing.len() - 1) / 2 - ailing.iter().flatten().count().min((ailing.len() - 1) / 2);
        for (server, ailing) in ailing.iter_mut().enumerate() {
            if ailing.is_none() && spare > 0 && self.stragglers[server] > STRAGGLERS_MAX {
                *ailing = Some(None);
                spare -= 1;
            }
        }
        ailing
    }
}
