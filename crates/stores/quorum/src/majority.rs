//! Calls whose answers are combined from a majority of the servers: all that the port has beside acquire, renew and release.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::port::{Answered, Call};
use leasehold_core::quorum::{Member, PerServer};
use leasehold_core::{Error, Identity, Moment};

use crate::error;
use crate::server_calls::{Completed, InFlightCalls, Reading};
use crate::store::Quorum;
use crate::timer_queue::Alarm;

/// How long servers are waited for where nobody is in a hurry.
pub(crate) const LIMIT: Duration = Duration::from_millis(1_500);
/// The same for a page of locks: many calls to each server, each with its own limit.
pub(crate) const LISTING_LIMIT: Duration = Duration::from_secs(30);
/// How much longer servers beyond a majority are waited for.
const STRAGGLER_GRACE: Duration = Duration::from_millis(10);

impl Quorum {
    /// Asks every server, and waits for as many as there are in time; only for a majority, and a moment longer, where that will do.
    pub(crate) async fn gather<T: Reading + Unpin + Send + 'static>(
        &self,
        operation: &'static str,
        limit: Duration,
        patient: bool,
        call: impl Fn(&Arc<dyn Member>) -> Call<Result<T, Error>>,
    ) -> Result<Vec<(usize, T)>, Error> {
        let now = self.now();
        let mut flights = InFlightCalls::new();
        for (server, member) in self.members.iter().enumerate() {
            flights.send(server, 0, now, call(member));
        }
        let mut found: Vec<(usize, T)> = Vec::new();
        let mut errors: PerServer<Option<Error>> = self.members.iter().map(|_| None).collect();
        let mut until = now + limit;
        let mut alarm = Alarm::new(self.host());
        let majority = self.shared.rules.majority();
        std::future::poll_fn(|task| {
            loop {
                match flights.poll(self, task) {
                    Poll::Ready(Completed { server, reply, .. }) => match reply {
                        Ok(answered) => {
                            found.push((server, answered));
                            if found.len() == majority && !patient {
                                until = until.min(self.now() + STRAGGLER_GRACE);
                            }
                        }
                        Err(error) => errors[server] = Some(error),
                    },
                    Poll::Pending if flights.is_empty() || self.now() >= until => return Poll::Ready(()),
                    Poll::Pending => {
                        alarm.set(until, task.waker());
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        self.finish(flights);
        if found.len() >= majority {
            return Ok(found);
        }
        if let Some(error) = errors.iter().flatten().find(|error| !error.is_retryable()) {
            return Err(error.clone());
        }
        let heard: Vec<usize> = found.iter().map(|(server, _)| *server).collect();
        Err(error::no_quorum(&self.shared.rules, operation, &heard, &errors))
    }

    /// Asks servers for their clock that were never heard of: without it they cannot be asked for a vote.
    pub(crate) async fn learn_clocks(&self) {
        let now = self.now();
        let (unknown, enough) = {
            let state = self.state();
            let unknown: PerServer<usize> = state.clocks.unknown().collect();
            if unknown.is_empty() {
                return;
            }
            let enough = self.members.len() - unknown.len() >= self.shared.rules.majority();
            let left_out = state.health.ailing(now);
            (unknown.into_iter().filter(|server| left_out[*server].is_none()).collect::<PerServer<usize>>(), enough)
        };
        let mut flights = InFlightCalls::new();
        for server in unknown {
            flights.send(server, 0, now, self.members[server].clock());
        }
        if !enough {
            self.wait_for_majority(now, &mut flights).await;
        }
        self.finish(flights);
    }

    async fn wait_for_majority(&self, now: Moment, flights: &mut InFlightCalls<Answered<()>>) {
        let (until, mut alarm) = (now + LIMIT, Alarm::new(self.host()));
        let missing = self.members.len() - self.shared.rules.majority();
        std::future::poll_fn(|task| {
            loop {
                let known = self.state().clocks.unknown().count() <= missing;
                if known || self.now() >= until {
                    return Poll::Ready(());
                }
                match flights.poll(self, task) {
                    Poll::Ready(Completed { server, reply: Err(error), .. }) => {
                        self.state().health.failed(server, self.now(), Some(error));
                    }
                    Poll::Ready(_) => {}
                    Poll::Pending if flights.is_empty() => return Poll::Ready(()),
                    Poll::Pending => {
                        alarm.set(until, task.waker());
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
    }

    /// One server under two names would have two votes.
    pub(crate) async fn are_different(&self, servers: Vec<usize>) -> Result<(), Error> {
        let mut calls: Vec<_> = servers.iter().map(|server| (*server, self.members[*server].identity())).collect();
        let mut known: Vec<(usize, Identity)> = Vec::new();
        std::future::poll_fn(|task| {
            calls.retain_mut(|(server, call)| match Pin::new(call).poll(task) {
                Poll::Ready(Ok(identity)) if identity.is_known() => {
                    known.push((*server, identity));
                    false
                }
                Poll::Ready(_) => false,
                Poll::Pending => true,
            });
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        for (at, (server, identity)) in known.iter().enumerate() {
            if let Some((other, _)) = known[..at].iter().find(|(_, other)| other == identity) {
                let labels = &self.shared.rules.servers;
                return Err(error::same_server(&labels[*other], &labels[*server]));
            }
        }
        Ok(())
    }
}
