//! Calls in flight to several servers.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use leasehold_core::port::{Answered, Call};
use leasehold_core::{Error, Moment, StoreTime};

use crate::store::Quorum;

/// What a server answers, with its clock if it reports one.
pub(crate) trait Reading {
    fn clock(&self) -> Option<StoreTime>;
}

impl<T> Reading for Answered<T> {
    fn clock(&self) -> Option<StoreTime> {
        Some(self.at)
    }
}

/// A subscription.
impl Reading for () {
    fn clock(&self) -> Option<StoreTime> {
        None
    }
}

/// Calls in flight, each to one server.
pub(crate) struct InFlightCalls<T>(Vec<InFlight<T>>);

struct InFlight<T> {
    server: usize,
    round: u32,
    sent: Moment,
    call: Call<Result<T, Error>>,
}

/// A completed call.
pub(crate) struct Completed<T> {
    pub(crate) server: usize,
    pub(crate) round: u32,
    pub(crate) sent: Moment,
    pub(crate) reply: Result<T, Error>,
}

impl<T> Default for InFlightCalls<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Reading + Unpin> InFlightCalls<T> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn send(&mut self, server: usize, round: u32, sent: Moment, call: Call<Result<T, Error>>) {
        self.0.push(InFlight { server, round, sent, call });
    }

    /// Adds other calls that are in flight.
    pub(crate) fn join(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The servers that have not answered.
    pub(crate) fn servers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|flight| flight.server)
    }

    /// A completed call, if there is one.
    pub(crate) fn poll(&mut self, quorum: &Quorum, task: &mut Context<'_>) -> Poll<Completed<T>> {
        for at in 0..self.0.len() {
            if let Poll::Ready(reply) = Pin::new(&mut self.0[at].call).poll(task) {
                let InFlight { server, round, sent, .. } = self.0.swap_remove(at);
                if let Ok(answered) = &reply {
                    quorum.heard(server, sent, quorum.now(), answered.clock());
                }
                return Poll::Ready(Completed { server, round, sent, reply });
            }
        }
        Poll::Pending
    }

    /// A call that has already completed, if there is one.
    pub(crate) fn ended(&mut self, quorum: &Quorum) -> Option<Completed<T>> {
        match self.poll(quorum, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(completed) => Some(completed),
            Poll::Pending => None,
        }
    }

    /// The next call to complete; `None` if there are no more.
    pub(crate) async fn next(&mut self, quorum: &Quorum) -> Option<Completed<T>> {
        if self.0.is_empty() {
            return None;
        }
        Some(std::future::poll_fn(|task| self.poll(quorum, task)).await)
    }
}
