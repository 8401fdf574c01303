//! A request to another process: what to take and how, in words that go over a pipe.

use std::time::Duration;

use leasehold::{Attempt, Client, Error, GroupGuard, GroupLock, Owner, WaitMode};

use crate::case::Failure;

/// A lock to be taken.
#[derive(Clone, Debug)]
pub struct Ask(Vec<String>);

impl Ask {
    /// Of one name; kept, with the lease that is the default.
    pub fn of(name: &str) -> Self {
        Self(vec![format!("name={name}")])
    }

    /// Of several names at once.
    pub fn all(names: &[&str]) -> Self {
        Self(names.iter().map(|name| format!("name={name}")).collect())
    }

    /// Kept, with this lease.
    #[must_use]
    pub fn keep(self, lease: Duration) -> Self {
        self.with("keep", lease)
    }

    /// Fixed, with this lease.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with("lease", lease)
    }

    /// Others are kept out at least this long.
    #[must_use]
    pub fn at_least(self, span: Duration) -> Self {
        self.with("at_least", span)
    }

    /// Waits at most this long; zero tries once.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        self.with("within", limit)
    }

    /// For this explicit owner.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        self.0.push(format!("owner={owner}"));
        self
    }

    /// Polls with pauses, without waiting for hints.
    #[must_use]
    pub fn spinning(mut self) -> Self {
        self.0.push("spinning=yes".into());
        self
    }

    fn with(mut self, option: &str, span: Duration) -> Self {
        self.0.push(format!("{option}={}", span.as_nanos()));
        self
    }

    /// Its words.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// The lock that words mean, and how long it is waited for.
    pub(crate) fn read(client: &Client, words: &[&str]) -> Result<(GroupLock, Option<Duration>), Failure> {
        let pairs: Vec<(&str, &str)> = words.iter().filter_map(|word| word.split_once('=')).collect();
        let names: Vec<&str> = pairs.iter().filter(|(option, _)| *option == "name").map(|(_, name)| *name).collect();
        let mut lock = client.lock_all(names)?;
        let mut limit = None;
        for (option, value) in pairs {
            lock = match option {
                "keep" => lock.keep(span(value)?),
                "lease" => lock.lease(span(value)?),
                "at_least" => lock.at_least(span(value)?),
                "owner" => lock.owned_by(&Owner::explicit(value)?),
                "spinning" => lock.wait_mode(WaitMode::Spinning),
                "within" => {
                    limit = Some(span(value)?);
                    lock
                }
                _ => lock,
            };
        }
        Ok((lock, limit))
    }
}

fn span(nanos: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_nanos(nanos.parse()?))
}

/// Takes a lock, and waits as long as was said.
pub(crate) async fn attempt(lock: &GroupLock, limit: Option<Duration>) -> Result<Attempt<GroupGuard>, Error> {
    match limit {
        None => lock.acquire().await.map(Attempt::Granted),
        Some(Duration::ZERO) => lock.try_acquire().await,
        Some(limit) => lock.acquire_within(limit).await,
    }
}
