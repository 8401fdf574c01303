//! When a server may vote: not while it may have forgotten what it granted before it lost its memory.
//!
//! Every server keeps a record of its birth beside its locks. Where the record is missing, the server lost everything; where it tells of
//! another run, the server was started again and came back with an older state. Then it begins a new epoch, and does not vote until every
//! lease that it may have forgotten is over.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::time::StoreTime;

/// Whether a server's answers count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VotingStatus {
    /// They do.
    Votes,
    /// It may have forgotten what it granted.
    Recovering {
        /// When that cannot be any more, by its clock.
        left: Duration,
    },
}

impl VotingStatus {
    /// Whether the answers count.
    pub fn votes(self) -> bool {
        self == Self::Votes
    }
}

/// What a server keeps of its birth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEpoch {
    /// The run of the server that it is of.
    pub run: u64,
    /// Since when nothing was forgotten.
    pub born: StoreTime,
    /// How long a server recovers: the same for everybody who uses it.
    pub quarantine: Duration,
    /// Every write was on disk before it was answered.
    pub synced: bool,
}

/// What a server is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Which run of it.
    pub run: u64,
    /// When it was started.
    pub started: StoreTime,
    /// Since then it was neither emptied, nor did it drop anything to make room.
    pub untouched: bool,
    /// Every write is on disk before it is answered.
    pub synced: bool,
}

/// The record as it must be from now on, and whether the server votes.
///
/// # Errors
///
/// [`ErrorKind::Unfit`] where the servers are used with another quarantine.
pub fn examine(
    kept: Option<&ServerEpoch>,
    now: StoreTime,
    facts: Facts,
    quarantine: Duration,
) -> Result<(ServerEpoch, VotingStatus), Error> {
    if let Some(kept) = kept.filter(|kept| kept.quarantine != quarantine) {
        let what = format!("this server is used with a quarantine of {:?}, and not of {quarantine:?}", kept.quarantine);
        return Err(Error::new(ErrorKind::Unfit, "acquire", what).with_hint("give every client the same `quarantine`"));
    }
    let born = match kept {
        Some(kept) if kept.run == facts.run => kept.born.min(now),
        // It came back with all that it ever answered.
        Some(kept) if kept.synced && facts.synced => kept.born.min(now),
        Some(_) => now,
        // Never used: there was nothing to forget.
        None if facts.untouched => facts.started,
        None => now,
    };
    let left = (born + quarantine).since(now);
    let standing = if left.is_zero() { VotingStatus::Votes } else { VotingStatus::Recovering { left } };
    Ok((ServerEpoch { run: facts.run, born, quarantine, synced: facts.synced }, standing))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> StoreTime {
        StoreTime::default() + Duration::from_secs(seconds)
    }

    fn facts(run: u64, started: u64) -> Facts {
        Facts { run, started: at(started), untouched: true, synced: false }
    }

    fn votes(kept: Option<&ServerEpoch>, now: u64, facts: Facts) -> (ServerEpoch, bool) {
        let (birth, standing) = examine(kept, at(now), facts, MINUTE).unwrap();
        (birth, standing.votes())
    }

    #[test]
    fn a_server_that_was_never_used_votes_a_quarantine_after_its_start() {
        assert!(votes(None, 1_000, facts(1, 900)).1);
        assert!(!votes(None, 1_000, facts(1, 950)).1);
    }

    #[test]
    fn one_that_was_emptied_recovers() {
        let emptied = Facts { untouched: false, ..facts(1, 0) };
        let (birth, now) = votes(None, 1_000, emptied);
        assert!(!now);
        assert!(!votes(Some(&birth), 1_059, emptied).1);
        assert!(votes(Some(&birth), 1_060, emptied).1);
    }

    #[test]
    fn another_run_recovers_unless_every_write_was_synced() {
        let (birth, _) = votes(None, 1_000, facts(1, 0));
        assert!(!votes(Some(&birth), 2_000, facts(2, 1_990)).1);
        let synced = |run, started| Facts { synced: true, ..facts(run, started) };
        let (birth, _) = votes(None, 1_000, synced(1, 0));
        assert!(votes(Some(&birth), 2_000, synced(2, 1_990)).1);
        assert!(!votes(Some(&birth), 2_000, facts(2, 1_990)).1, "the log is no longer synced");
    }

    #[test]
    fn a_clock_that_goes_back_lengthens_nothing_for_ever() {
        let (birth, _) = votes(None, 1_000, Facts { untouched: false, ..facts(1, 0) });
        let (birth, now) = votes(Some(&birth), 500, facts(1, 0));
        assert!(!now);
        assert!(votes(Some(&birth), 560, facts(1, 0)).1);
    }

    #[test]
    fn another_quarantine_is_refused() {
        let (birth, _) = votes(None, 1_000, facts(1, 0));
        let other = examine(Some(&birth), at(1_000), facts(1, 0), MINUTE * 2);
        assert_eq!(other.unwrap_err().kind(), ErrorKind::Unfit);
    }
}
