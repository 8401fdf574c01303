//! Servers that do not answer cost nobody time: they are asked again after growing pauses.

use super::PerServer;
use crate::backoff::{self, Rng};
use crate::error::Error;
use crate::time::Moment;

/// Pauses grow until here, to about a second.
const SLOWEST: u32 = 7;

/// How each server did lately.
#[derive(Clone, Debug)]
pub struct Health {
    servers: PerServer<Option<Ailing>>,
    rng: Rng,
}

#[derive(Clone, Debug)]
struct Ailing {
    failures: u32,
    not_before: Moment,
    error: Option<Error>,
}

impl Health {
    /// All are well.
    pub fn new(servers: usize, rng: Rng) -> Self {
        Self { servers: (0..servers).map(|_| None).collect(), rng }
    }

    /// It answered.
    pub fn answered(&mut self, server: usize) {
        self.servers[server] = None;
    }

    /// It did not answer, or not in time.
    pub fn failed(&mut self, server: usize, now: Moment, error: Option<Error>) {
        let failures = self.servers[server].as_ref().map_or(0, |ailing| ailing.failures);
        let pause = backoff::retry_pause(&mut self.rng, failures.min(SLOWEST));
        self.servers[server] = Some(Ailing { failures: failures + 1, not_before: now + pause, error });
    }

    /// The servers that need not be asked now, and why. If there is no majority without them, all are asked.
    pub fn ailing(&self, now: Moment) -> PerServer<Option<Option<Error>>> {
        let ailing = |server: &Option<Ailing>| {
            let ailing = server.as_ref().filter(|ailing| now < ailing.not_before)?;
            Some(ailing.error.clone())
        };
        let found: PerServer<_> = self.servers.iter().map(ailing).collect();
        let many = found.iter().flatten().count();
        if many > (self.servers.len() - 1) / 2 { found.iter().map(|_| None).collect() } else { found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn pauses_grow_and_a_majority_is_always_asked() {
        let mut health = Health::new(3, Rng::new(1));
        let mut now = Moment::from_nanos(0);
        health.failed(0, now, None);
        assert!(health.ailing(now)[0].is_some());
        now = now + Duration::from_millis(40);
        assert!(health.ailing(now)[0].is_none());
        health.failed(0, now, None);
        assert!(health.ailing(now + Duration::from_millis(15))[0].is_some());
        health.failed(1, now, None);
        assert!(health.ailing(now).iter().all(Option::is_none));
        health.answered(1);
        assert!(health.ailing(now)[0].is_some());
    }
}
