//! What a client has in use and has done so far: plain counters, under the mutex that every step holds anyway.

use leasehold_core::table::{How, Output, Request, TaskEffect};

/// What a client has in use, and what it has done since it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Guards that hold a lock; re-entries count each.
    pub guards: usize,
    /// Tasks that wait for a lock.
    pub waiting: usize,
    /// Names that are held, waited for or open with the store.
    pub names: usize,
    /// Locks granted by the store.
    pub grants: u64,
    /// Locks handed from one task of this client to the next, without the store.
    pub handoffs: u64,
    /// Locks granted to an owner that this client held them for already.
    pub reentries: u64,
    /// Attempts that the store, or another task of this client, refused. Attempts that ran out of time do not count.
    pub refusals: u64,
    /// Guards that were lost.
    pub losses: u64,
    /// Renewals that failed, counted once per lock.
    pub failed_renewals: u64,
    /// Calls to the store, by kind.
    pub calls: Calls,
}

/// Calls to the store. A renewal of many locks is one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Calls {
    /// To acquire locks.
    pub acquire: u64,
    /// To renew leases.
    pub renew: u64,
    /// To release locks.
    pub release: u64,
    /// To subscribe to hints.
    pub watch: u64,
}

impl Calls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.acquire + self.renew + self.release + self.watch
    }

    fn of(&mut self, request: &Request) -> &mut u64 {
        match request {
            Request::Acquire(_) => &mut self.acquire,
            Request::Renew(_) => &mut self.renew,
            Request::Release(_) => &mut self.release,
            Request::Watch(_) => &mut self.watch,
        }
    }
}

impl Stats {
    /// Counts an output of a step.
    #[inline]
    pub(crate) fn count(&mut self, output: &Output) {
        match output {
            Output::To(_, TaskEffect::Granted(grants)) => {
                for grant in grants {
                    match grant.how {
                        How::Asked => self.grants += 1,
                        How::HandedOff => self.handoffs += 1,
                        How::Reentered => self.reentries += 1,
                    }
                }
            }
            Output::To(_, TaskEffect::Busy(_)) => self.refusals += 1,
            Output::To(_, TaskEffect::Call(sending)) | Output::ForHold(_, sending) | Output::Background(sending) => {
                *self.calls.of(&sending.request) += 1;
            }
            Output::Lost(..) => self.losses += 1,
            Output::RenewalFailed(..) => self.failed_renewals += 1,
            _ => {}
        }
    }

    /// A call was not sent, because its task is gone.
    pub(crate) fn unsent(&mut self, request: &Request) {
        *self.calls.of(request) -= 1;
    }
}
