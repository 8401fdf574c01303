//! Two libraries on the same servers, and the ways round in which a case is tried.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::{Connection, Reply};

use crate::Failure;
use crate::driver::Driver;
use crate::peer::Peer;

/// The lease of the first lock of all, which plays no part.
const FIRST: Duration = Duration::from_secs(60);

/// For so long nothing changes on servers that have heard all that was sent to them.
const QUIET: Duration = Duration::from_millis(50);

/// Two drivers on servers of their own.
pub(crate) struct Meeting {
    pub(crate) ours: Driver,
    pub(crate) theirs: Driver,
    // Last, so that they go last.
    pub(crate) servers: Servers,
}

/// One server, or several that know nothing of each other, each with a connection for looking at keys.
pub(crate) struct Servers(Vec<(Connection, Redis)>);

/// The holder of a lock that the other one wants.
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
        let servers = Servers::start(theirs.servers)?;
        let addresses = servers.addresses();
        let (ours, theirs) = (Driver::start(ours, &addresses)?, Driver::start(theirs, &addresses)?);
        let mut meeting = Self { ours, theirs, servers };
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

    /// The holder and the waiter.
    pub(crate) fn sides(&mut self, way: Way) -> (&mut Driver, &mut Driver, &mut Servers) {
        match way {
            Way::OursHolds => (&mut self.ours, &mut self.theirs, &mut self.servers),
            Way::TheirsHolds => (&mut self.theirs, &mut self.ours, &mut self.servers),
        }
    }
}

impl Servers {
    fn start(count: usize) -> Result<Self, Failure> {
        let started = (0..count).map(|_| {
            let server = Redis::start()?;
            Ok((server.connection()?, server))
        });
        started.collect::<Result<_, Failure>>().map(Self)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|(_, server)| server.address()).collect()
    }

    /// If there are several, each gets all commands that the first one gets.
    pub(crate) fn first(&self) -> SocketAddr {
        self.0[0].1.address()
    }

    /// What each of them answers.
    pub(crate) fn each(&mut self, command: &[&str]) -> Result<Vec<Reply>, Failure> {
        self.0.iter_mut().map(|(connection, _)| connection.command(command)).collect()
    }

    /// What stands at a key, once those have heard it too that a majority did not wait for.
    pub(crate) fn settled(&mut self, key: &str) -> Result<Vec<Reply>, Failure> {
        let mut found = self.each(&["DUMP", key])?;
        while self.0.len() > 1 {
            std::thread::sleep(QUIET);
            let before = std::mem::replace(&mut found, self.each(&["DUMP", key])?);
            if found == before {
                break;
            }
        }
        Ok(found)
    }

    /// Whatever is left goes by itself. Redisson's tokens do not; that is its own affair.
    pub(crate) fn nothing_lasts(&mut self) -> Result<(), Failure> {
        for (connection, _) in &mut self.0 {
            for key in connection.command(&["KEYS", "*"])?.texts()? {
                let lasts = connection.command(&["PTTL", key])?.number()? == -1;
                if lasts && !key.starts_with("redisson_lock_token:") {
                    return Err(format!("{key} is left for ever").into());
                }
            }
        }
        Ok(())
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
