//! Servers die and come back with nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, Error, ErrorKind, Fence, Guard, Loss};
use leasehold_faults::Failure;
use leasehold_faults::servers::redis::Settings;

use super::{Five, MAJORITY, NAME, PATIENCE, QUARANTINE, holds, poke, votes};
use crate::{Checked, Proof, wait};

pub(super) const CASES: &[Proof] = &[
    ("two_of_five_are_killed", || wait(two_killed())),
    ("three_of_five_are_killed", || wait(three_killed())),
    ("a_rolling_restart", || wait(rolling_restart())),
];

/// A refused call has its answer by then, on a busy machine.
const BOUNDED: Duration = Duration::from_secs(30);

/// Taking, keeping, extending and giving back go on.
async fn two_killed() -> Checked {
    let mut five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let (one, two) = (five.client().await?, five.client().await?);
    let before = one.lock("before")?.acquire().await?;
    for server in &mut five.servers[MAJORITY..] {
        server.kill()?;
    }
    let after = one.lock(NAME)?.acquire_within(PATIENCE).await?.granted().ok_or("it is free")?;
    let fixed = one.lock("fixed")?.lease(QUARANTINE).acquire().await?;
    assert!(two.lock(NAME)?.try_acquire().await?.is_busy());
    // Several renewals later.
    let extended = Instant::now();
    while extended.elapsed() < QUARANTINE * 2 {
        let lost = tokio::time::timeout(QUARANTINE / 3, after.lost()).await;
        assert!(lost.is_err(), "it was lost: {lost:?}");
        extend(&fixed).await?;
    }
    for guard in [&before, &after, &fixed] {
        assert!(guard.is_valid(), "{} was lost", guard.name());
        assert!(two.lock(guard.name().as_str())?.try_acquire().await?.is_busy());
    }
    let fence = after.fence();
    for guard in [before, after, fixed] {
        guard.release().await?;
    }
    let next = two.lock(NAME)?.acquire_within(PATIENCE).await?.granted().ok_or("it was given back")?;
    assert!(next.fence() > fence);
    next.release().await?;
    Ok(())
}

/// With two servers dead, one that is late on a busy machine is one too few: then it is extended again, while it is valid.
async fn extend(guard: &Guard) -> Checked {
    loop {
        match guard.extend(QUARANTINE).await {
            Err(error) if error.is_retryable() && guard.is_valid() => {}
            extended => return Ok(extended?),
        }
    }
}

/// The lock cannot be taken, and the error names the state of each server; after they are back and a quarantine is
/// over, it can.
async fn three_killed() -> Checked {
    let mut five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let (one, two) = (five.client().await?, five.client().await?);
    let held = one.lock("held")?.acquire().await?;
    for server in &mut five.servers[..MAJORITY] {
        server.kill()?;
    }
    let lost = tokio::time::timeout(PATIENCE, held.lost());
    for client in [&one, &two] {
        let began = Instant::now();
        let error = client.lock(NAME)?.try_acquire().await.expect_err("no quorum");
        assert!(began.elapsed() < BOUNDED, "answered after {:?}", began.elapsed());
        names_everybody(&five, &error, ALIVE);
    }
    let began = Instant::now();
    let error = two.lock(NAME)?.acquire_within(Duration::from_secs(1)).await.expect_err("no quorum");
    assert!(began.elapsed() < BOUNDED, "answered after {:?}", began.elapsed());
    names_everybody(&five, &error, ALIVE);
    assert!(matches!(lost.await?, Loss::TimeEnded));
    let back = Instant::now();
    for server in &mut five.servers[..MAJORITY] {
        server.restart_empty()?;
    }
    // Ailing servers are asked again after a pause.
    let error = loop {
        let error = two.lock(NAME)?.try_acquire().await.expect_err("they have forgotten");
        if error.message().matches("does not vote for another").count() == MAJORITY {
            break error;
        }
        assert!(back.elapsed() < QUARANTINE, "they are back, and {error}");
    };
    names_everybody(&five, &error, &["does not vote for another"]);
    let guard = two.lock(NAME)?.acquire_within(PATIENCE).await?.granted().ok_or("nobody has it")?;
    assert!(back.elapsed() >= QUARANTINE, "granted after {:?}", back.elapsed());
    guard.release().await?;
    Ok(())
}

/// The error's text about a server that answers. It may retry "with a higher fence" if one client's view of the clocks
/// is a round trip behind the other's, so that it proposes less than the other did a moment before: two of five servers
/// are not asked again. Or it is busy with what the other client is about to release.
const ALIVE: &[&str] = &["votes for it", "is busy"];

fn names_everybody(five: &Five, error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    for server in &five.servers {
        assert!(error.message().contains(&server.address().to_string()), "{} is missing: {error}", server.address());
    }
    assert!(words.iter().any(|words| error.message().contains(words)), "{words:?} is missing: {error}");
    assert!(error.is_retryable(), "{error}");
}

/// One server after the other comes back empty: a kept lock is never lost, and no other client gets it.
async fn rolling_restart() -> Checked {
    let mut five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let (one, two) = (five.client().await?, five.client().await?);
    let guard = one.lock(NAME)?.acquire().await?;
    let fence = guard.fence();
    let enough = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn(tries_all_the_time(two.clone(), fence, enough.clone()));
    // What the other server had when the lock was granted is requested once more.
    five.until("all have it", || five.all_have_it(), async || Ok(())).await?;
    for number in 0..five.servers.len() {
        five.servers[number].restart_empty()?;
        let again = || votes(&five.servers[number]);
        let is_kept = async || {
            if !guard.is_valid() {
                let holding: Vec<bool> = five.servers.iter().map(holds).collect::<Result<_, _>>()?;
                return Err(format!("lost with server {number}: {:?}, held by {holding:?}", guard.lost().await).into());
            }
            poke(&two).await
        };
        five.until("it votes again", again, is_kept).await?;
    }
    five.until("all have it again", || five.all_have_it(), async || Ok(())).await?;
    assert!(guard.is_valid());
    let lost = tokio::time::timeout(Duration::ZERO, guard.lost()).await;
    assert!(lost.is_err(), "it was lost: {lost:?}");
    enough.store(true, Ordering::Relaxed);
    let tries = other.await??;
    assert!(tries > 10, "it was tried only {tries} times");
    guard.release().await?;
    let next = two.lock(NAME)?.acquire_within(PATIENCE).await?.granted().ok_or("it was given back")?;
    assert!(next.fence() > fence);
    next.release().await?;
    Ok(())
}

/// Answers how often it was refused because the first one has it.
async fn tries_all_the_time(client: Client, fence: Fence, enough: Arc<AtomicBool>) -> Result<u32, Failure> {
    let mut tries = 0;
    while !enough.load(Ordering::Relaxed) {
        match client.lock(NAME)?.try_acquire().await {
            Ok(Attempt::Granted(guard)) => return Err(format!("two have it: {fence} and {}", guard.fence()).into()),
            Ok(Attempt::Busy(holder)) => {
                let found = holder.fence;
                if found.is_some_and(|found| found != fence) {
                    return Err(format!("it has the fence {found:?}, and was granted {fence}").into());
                }
                tries += 1;
            }
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(tries)
}
