//! Two libraries on one server, and the ways round in which a case is tried.

use std::time::Duration;

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::Connection;

use crate::Failure;
use crate::driver::Driver;
use crate::peer::Peer;

/// The lease of the first lock of all, which plays no part.
const FIRST: Duration = Duration::from_secs(60);

/// Two drivers on a server of their own.
pub(crate) struct Meeting {
    pub(crate) ours: Driver,
    pub(crate) theirs: Driver,
    /// For looking at keys.
    pub(crate) redis: Connection,
    // Last, so that it goes last.
    pub(crate) server: Redis,
}

/// Who holds a lock that the other one wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Ours holds, theirs wants.
    OursHolds,
    /// The other way round.
    TheirsHolds,
}

/// Each way round.
pub(crate) const BOTH: [Way; 2] = [Way::OursHolds, Way::TheirsHolds];

impl Meeting {
    /// Starts everything.
    pub(crate) fn of(ours: Peer, theirs: Peer) -> Result<Self, Failure> {
        let server = Redis::start()?;
        let redis = server.connection()?;
        let (ours, theirs) = (Driver::start(ours, server.address())?, Driver::start(theirs, server.address())?);
        let mut meeting = Self { ours, theirs, redis, server };
        // The first of everything is slow: connections, scripts, code that is not compiled yet.
        let key = meeting.key("first");
        for driver in [&mut meeting.ours, &mut meeting.theirs] {
            driver.must_lock(&key, FIRST)?;
            driver.must_unlock(&key)?;
        }
        Ok(meeting)
    }

    /// A key that both libraries can have.
    pub(crate) fn key(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.theirs.peer.prefix)
    }

    /// Whatever is left on the server goes by itself. Redisson's tokens do not; that is its own affair.
    pub(crate) fn nothing_lasts(&mut self) -> Result<(), Failure> {
        for key in self.redis.command(&["KEYS", "*"])?.texts()? {
            let lasts = self.redis.command(&["PTTL", key])?.number()? == -1;
            if lasts && !key.starts_with("redisson_lock_token:") {
                return Err(format!("{key} is left for ever").into());
            }
        }
        Ok(())
    }

    /// Who holds, and who wants.
    pub(crate) fn sides(&mut self, way: Way) -> (&mut Driver, &mut Driver, &mut Connection) {
        match way {
            Way::OursHolds => (&mut self.ours, &mut self.theirs, &mut self.redis),
            Way::TheirsHolds => (&mut self.theirs, &mut self.ours, &mut self.redis),
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OursHolds => "ours-holds",
            Self::TheirsHolds => "theirs-holds",
        })
    }
}
