//! Taking a lock as the user wants to wait for it: for ever, for a while or not at all; a signal ends it.

use std::time::{Duration, Instant};

use leasehold::{Attempt, Lock};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::WaitArgs;
use crate::exit::{Exit, Failure};

/// How long to wait, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) limit: Limit,
    pub(crate) began: Instant,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Ask once.
    Once,
    /// At most this long.
    Within(Duration),
    /// Until it is ours.
    Forever,
}

impl Waiting {
    /// As the flags say, from now.
    pub(crate) fn new(args: &WaitArgs) -> Self {
        let limit = match (args.no_wait, args.wait) {
            (true, _) => Limit::Once,
            (false, Some(limit)) => Limit::Within(limit),
            (false, None) => Limit::Forever,
        };
        Self { limit, began: Instant::now() }
    }

    /// Takes the lock, or says who has it. Dropping the future leaves nothing behind.
    pub(crate) async fn take(&self, lock: &Lock) -> Result<Attempt, Failure> {
        let taken = match self.limit {
            Limit::Once => lock.try_acquire().await,
            Limit::Within(limit) => lock.acquire_within(limit.saturating_sub(self.began.elapsed())).await,
            Limit::Forever => lock.acquire().await.map(Attempt::Granted),
        };
        taken.map_err(Into::into)
    }
}

/// The signals that end a command. From their making on, none of them ends the process by itself.
pub(crate) struct Signals([(Signal, SignalKind); 4]);

impl Signals {
    /// Must be called inside a runtime.
    pub(crate) fn new() -> Result<Self, Failure> {
        let stream = |kind| match signal(kind) {
            Ok(stream) => Ok((stream, kind)),
            Err(error) => Err(Failure::new(Exit::BUG, format!("signals cannot be heard: {error}"))),
        };
        Ok(Self([
            stream(SignalKind::interrupt())?,
            stream(SignalKind::terminate())?,
            stream(SignalKind::hangup())?,
            stream(SignalKind::quit())?,
        ]))
    }

    /// Waits for the next one, and says its number. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> i32 {
        let [(a, an), (b, bn), (c, cn), (d, dn)] = &mut self.0;
        let kind = tokio::select! {
            _ = a.recv() => an,
            _ = b.recv() => bn,
            _ = c.recv() => cn,
            _ = d.recv() => dn,
        };
        kind.as_raw_value()
    }

    /// Runs a future to its end, unless a signal comes first: then it is dropped.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            number = self.next() => Err(Failure::new(Exit::signal(number), "a signal came while waiting")),
            done = work => done,
        }
    }
}
