//! Calls whose answers are combined from a majority of servers: all but acquire, renew and release.

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

/// How long servers are waited for when no caller is in a check_releases.
pub(crate) const CALL_LIMIT: Duration = Duration::from_millis(1_500);
/// The same for a page of locks: many calls to each server, each with its own limit.
pub(crate) const LISTING_LIMIT: Duration = Duration::from_secs(30);
/// How much longer servers beyond a majority are waited for.
const STRAGGLER_GRACE: Duration = Duration::from_millis(10);

impl Quorum {
    /// Calls every server, and waits for all of them within the limit. If a majority is enough, waits only a moment
    /// longer.
    pub(crate) async fn gather<T: Reading + Unpin + Send + 'static>(
        &self,
        operation: &'static str,
        limit: Duration,
        patient: bool,
        call: impl Fn(&Arc<dyn Member>) -> Call<Result<T, Error>>,
    ) -> Result<Vec<(usize, T)>, Error> {
        let now = self.now();
        let mut calls = InFlightCalls::new();
        for (server, member) in self.members.iter().enumerate() {
            calls.send(server, 0, now, call(member));
        }
        let mut found: Vec<(usize, T)> = Vec::new();
        let mut errors: PerServer<Option<Error>> = self.members.iter().map(|_| None).collect();
        let mut until = now + limit;
        let mut alarm = Alarm::new(self.host());
        let majority = self.shared.rules.majority();
        std::future::poll_fn(|task| {
            loop {
                match calls.poll(self, task) {
                    Poll::Ready(Completed { server, reply, .. }) => match reply {
                        Ok(answered) => {
                            found.push((server, answered));
                            if found.len() == majority && !patient {
                                until = until.min(self.now() + STRAGGLER_GRACE);
                            }
                        }
                        Err(error) => errors[server] = Some(error),
                    },
                    Poll::Pending if calls.is_empty() || self.now() >= until => return Poll::Ready(()),
                    Poll::Pending => {
                        alarm.set(until, task.waker());
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        self.finish(calls);
        if found.len() >= majority {
            return Ok(found);
        }
        if let Some(error) = errors.iter().flatten().find(|error| !error.is_retryable()) {
            return Err(error.clone());
        }
        let heard: Vec<usize> = found.iter().map(|(server, _)| *server).collect();
        Err(error::no_quorum(&self.shared.rules, operation, &heard, &errors))
    }

    /// Reads the clock of servers that never answered: without it they cannot be asked for a vote.
    pub(crate) async fn read_clocks(&self) {
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
        let mut calls = InFlightCalls::new();
        for server in unknown {
            calls.send(server, 0, now, self.members[server].clock());
        }
        if !enough {
            self.wait_for_majority(now, &mut calls).await;
        }
        self.finish(calls);
    }

    async fn wait_for_majority(&self, now: Moment, calls: &mut InFlightCalls<Answered<()>>) {
        let (until, mut alarm) = (now + CALL_LIMIT, Alarm::new(self.host()));
        let missing = self.members.len() - self.shared.rules.majority();
        std::future::poll_fn(|task| {
            loop {
                let known = self.state().clocks.unknown().count() <= missing;
                if known || self.now() >= until {
                    return Poll::Ready(());
                }
                match calls.poll(self, task) {
                    Poll::Ready(Completed { server, reply: Err(error), .. }) => {
                        self.state().health.failed(server, self.now(), Some(error));
                    }
                    Poll::Ready(_) => {}
                    Poll::Pending if calls.is_empty() => return Poll::Ready(()),
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
