//! "Granted on three of five, one of the three forgets, a second client tries": without a quarantine it gets the lock, with one it does
//! not, in whichever way the server forgot.

use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, Guard};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::{Files, Settings, Snapshot};

use super::{Five, MAJORITY, NAME, PATIENCE, QUARANTINE, birth, holds, poke, run_of, votes};
use crate::{Checked, Proof, wait};

pub(super) const CASES: &[Proof] = &[
    ("restarted_empty_without_quarantine", || wait(gets_it(Way::Empty))),
    ("restarted_empty", || wait(does_not_get_it(Way::Empty))),
    ("flushed_without_quarantine", || wait(gets_it(Way::Flushed))),
    ("flushed", || wait(does_not_get_it(Way::Flushed))),
    ("an_old_snapshot_without_quarantine", || wait(gets_it(Way::OldSnapshot))),
    ("an_old_snapshot", || wait(does_not_get_it(Way::OldSnapshot))),
    ("a_log_without_its_end_without_quarantine", || wait(gets_it(Way::LogWithoutItsEnd))),
    ("a_log_without_its_end", || wait(does_not_get_it(Way::LogWithoutItsEnd))),
    ("a_server_that_syncs_every_write_votes_at_once", || wait(votes_at_once())),
];

/// Long enough for a busy machine to restart a server and to try.
const LONG: Duration = Duration::from_secs(60);

/// How a server forgets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Empty,
    Flushed,
    /// Of before the grant, with the record of the server's birth in it.
    OldSnapshot,
    /// Synced once a second, and the machine failed: what was written last is gone.
    LogWithoutItsEnd,
}

/// What a server will come back with.
enum Past {
    Nothing,
    Snapshot(Snapshot),
    Files(Files),
}

impl Way {
    fn settings(self) -> Settings {
        match self {
            Self::LogWithoutItsEnd => Settings::default().option("appendonly", "yes").option("appendfsync", "everysec"),
            _ => Settings::default(),
        }
    }

    /// What a server has before the grant.
    async fn past(self, server: &Redis) -> Result<Past, Failure> {
        match self {
            Self::Empty | Self::Flushed => Ok(Past::Nothing),
            Self::OldSnapshot => Ok(Past::Snapshot(server.snapshot()?)),
            Self::LogWithoutItsEnd => {
                // It may be written up to a second after it was answered.
                let began = Instant::now();
                loop {
                    let files = server.files()?;
                    if files.contain("leasehold_birth") {
                        return Ok(Past::Files(files));
                    }
                    if began.elapsed() > PATIENCE {
                        return Err("the server writes nothing".into());
                    }
                    tokio::time::sleep(super::LOOK).await;
                }
            }
        }
    }

    fn forget(self, server: &mut Redis, past: &Past) -> Checked {
        match past {
            Past::Nothing if self == Self::Flushed => server.flush(),
            Past::Nothing => server.restart_empty(),
            Past::Snapshot(snapshot) => server.restart_from(snapshot),
            Past::Files(files) => server.restart_with(files),
        }
    }
}

/// A lock that three of five granted, and one of the three has forgotten.
struct Forgotten {
    five: Five,
    first: Guard,
    second: Client,
    _one: Client,
}

impl Forgotten {
    async fn by(way: Way, quarantine: Duration, lease: Duration) -> Result<Self, Failure> {
        let mut five = Five::voting(&way.settings(), quarantine).await?;
        let (one, second) = (five.client().await?, five.client().await?);
        // Every server has the record of its birth, and both clients know the servers.
        poke(&one).await?;
        poke(&second).await?;
        let past = way.past(&five.servers[0]).await?;
        let known = birth(&five.servers[0])?.ok_or("no birth")?;
        let first = five.granted_on_three(&one, lease).await?;
        way.forget(&mut five.servers[0], &past)?;
        assert!(!holds(&five.servers[0])?, "it has not forgotten");
        if !matches!(past, Past::Nothing) {
            assert_eq!(birth(&five.servers[0])?, Some(known), "it has forgotten its birth as well");
        }
        Ok(Self { five, first, second, _one: one })
    }
}

/// Without a quarantine the danger is real.
async fn gets_it(way: Way) -> Checked {
    let scene = Forgotten::by(way, Duration::ZERO, LONG).await?;
    let began = Instant::now();
    let second = loop {
        // It calls a server again that did not answer while it was away.
        match scene.second.lock(NAME)?.try_acquire().await? {
            Attempt::Granted(second) => break second,
            Attempt::Busy(holder) => assert!(began.elapsed() < LONG / 2, "it does not get it: {holder}"),
        }
    };
    assert!(scene.first.is_valid() && second.is_valid(), "two do not have it");
    // And fences tell them apart.
    assert!(second.fence() > scene.first.fence());
    second.release().await?;
    Ok(())
}

/// With a quarantine no other client gets it beside the first, which keeps it to the end of the lease.
async fn does_not_get_it(way: Way) -> Checked {
    let scene = Forgotten::by(way, QUARANTINE, QUARANTINE).await?;
    let fence = scene.first.fence();
    let mut tries = 0;
    let second = loop {
        let was_valid = scene.first.is_valid();
        match scene.second.lock(NAME)?.try_acquire().await {
            Ok(Attempt::Granted(second)) => {
                assert!(!scene.first.is_valid(), "two have it, after {tries} tries");
                break second;
            }
            Ok(Attempt::Busy(_)) => tries += u32::from(was_valid),
            Err(error) if error.is_retryable() => tries += u32::from(was_valid),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(super::LOOK).await;
    };
    assert!(tries > 0, "it was not tried while the first had it");
    assert!(second.fence() > fence);
    second.release().await?;
    // The one that forgot votes again in the end.
    let again = || votes(&scene.five.servers[0]);
    scene.five.until("it votes again", again, async || poke(&scene.second).await).await
}

/// It comes back with all that it answered, and reports that: there is nothing to wait for.
async fn votes_at_once() -> Checked {
    let mut five = Five::voting(&Settings::default().durable(), QUARANTINE).await?;
    let client = five.client().await?;
    let guard = client.lock(NAME)?.acquire().await?;
    // The majority needs it now.
    for server in &mut five.servers[MAJORITY..] {
        server.kill()?;
    }
    poke(&client).await?;
    let (_, since, _) = birth(&five.servers[0])?.ok_or("no birth")?;
    let restarted = Instant::now();
    five.servers[0].restart()?;
    assert!(holds(&five.servers[0])?, "it has forgotten");
    let other = loop {
        match client.lock("other")?.try_acquire().await {
            Ok(Attempt::Granted(other)) => break other,
            Ok(Attempt::Busy(holder)) => return Err(format!("nobody has it: {holder}").into()),
            // It is asked again after a pause.
            Err(error) if error.is_retryable() => assert!(!error.message().contains("does not vote"), "{error}"),
            Err(error) => return Err(error.into()),
        }
        assert!(restarted.elapsed() < PATIENCE, "it does not vote");
    };
    assert_eq!(
        birth(&five.servers[0])?.map(|(run, since, _)| (run, since)),
        Some((run_of(&five.servers[0])?, since)),
        "it was born anew"
    );
    other.release().await?;
    assert!(guard.is_valid(), "it was lost");
    guard.release().await?;
    Ok(())
}
