//! Takes a lock with the wait that the user chose: without limit, for a while, or not at all.

use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, Error, GroupGuard, GroupLock, Holder, Name};

use crate::args::WaitArgs;
use crate::exit::{Exit, Failure};
use crate::outage::Outage;
use crate::output::{Rows, row};
use crate::run::Signals;
use crate::{hints, human, spinner, store};

/// How long to wait, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) limit: Limit,
    pub(crate) began: Instant,
    /// How long a silent store is tried.
    pub(crate) patience: Option<Duration>,
    pub(crate) outage: Outage,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Ask once.
    Once,
    /// At most this long.
    Within(Duration),
    /// Without limit.
    Forever,
}

impl Waiting {
    /// From the flags, starting now.
    pub(crate) fn new(args: &WaitArgs) -> Self {
        let limit = match (args.no_wait, args.wait) {
            (true, _) => Limit::Once,
            (false, Some(limit)) => Limit::Within(limit),
            (false, None) => Limit::Forever,
        };
        Self { limit, began: Instant::now(), patience: args.patience, outage: Outage::new() }
    }

    /// When the wait is over, if it has a limit.
    pub(crate) fn end(&self) -> Option<Instant> {
        match self.limit {
            Limit::Within(limit) => self.began.checked_add(limit),
            Limit::Once | Limit::Forever => None,
        }
    }

    /// For joining another hold: if that is gone, there is nothing to wait for.
    pub(crate) fn no_longer(self) -> Self {
        Self { limit: Limit::Once, ..self }
    }

    /// Takes the lock of these names, or says who holds it; shows the wait on a terminal, and reports an outage of the
    /// store. Dropping the future leaves nothing behind, but closing the client waits for that.
    pub(crate) async fn take(
        &self,
        client: &Client,
        lock: &GroupLock,
        names: &[Name],
    ) -> Result<Attempt<GroupGuard>, Failure> {
        let taking = async {
            match self.limit {
                Limit::Once => lock.try_acquire().await,
                Limit::Within(limit) => lock.acquire_within(limit.saturating_sub(self.began.elapsed())).await,
                Limit::Forever => self.acquire(lock).await,
            }
        };
        tokio::select! {
            biased;
            taken = taking => {
                self.outage.is_over(client.store_label());
                taken.map_err(Into::into)
            }
            given_up = spinner::show(client, names, self) => Err(given_up),
        }
    }

    /// An acquire gives up on a store that has never answered it; a longer `--patience` tries again.
    async fn acquire(&self, lock: &GroupLock) -> Result<Attempt<GroupGuard>, Error> {
        let is_patient = || self.patience.is_some_and(|patience| self.began.elapsed() < patience);
        loop {
            match lock.acquire().await {
                Err(error) if error.is_retryable() && is_patient() => tokio::time::sleep(store::PAUSE).await,
                done => return done.map(Attempt::Granted),
            }
        }
    }

    /// The end of a command when another owner holds the lock: the holder as JSON, or a message.
    pub(crate) async fn refused(
        &self,
        client: &Client,
        names: &[Name],
        holder: &Holder,
        owner: Option<&str>,
        json: bool,
    ) -> Result<Exit, Failure> {
        if !json {
            return Err(self.busy(client, holder, owner));
        }
        Rows::new(false, row::busy(client, names, holder).await).print()?;
        Ok(Exit::BUSY)
    }

    /// The message when another owner holds the lock, or this owner in a store that does not count holds.
    pub(crate) fn busy(&self, client: &Client, holder: &Holder, owner: Option<&str>) -> Failure {
        let (name, store) = (holder.name.as_str(), client.store_label());
        let mut what = format!("busy: {name:?} on {store} is {}", human::taken(holder));
        if let Limit::Within(limit) = self.limit {
            what += &format!("; waited for {}", human::span(limit));
        }
        let is_own = owner.is_some() && owner == holder.owner.as_deref();
        let hint = match (self.limit, holder.left) {
            _ if is_own && !client.capability().shared_reentrance => {
                "this store does not count holds, so an owner re-enters in its own process only: renew it or release it as that owner".to_owned()
            }
            (Limit::Once, _) => "use --wait 10s to wait up to 10 s, or drop --no-wait to wait until it is free".to_owned(),
            (_, Some(left)) if holder.is_cooldown() || holder.is_broken() => format!("it is free in {}", human::span(left)),
            (_, Some(left)) => format!("unless it is renewed, it is free in {}", human::span(left)),
            (_, None) => format!("{} shows more", hints::show(name)),
        };
        Failure::new(Exit::BUSY, what).with_hint(hint)
    }
}

/// Waits for a future, unless a signal comes first: then it is dropped.
pub(crate) async fn unless_signal<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        number = signals.next() => {
            Err(Failure::new(Exit::signal(number), format!("signal {number} came while waiting; nothing is held")))
        }
        done = work => done,
    }
}
