//! Servers that missed a grant join it right after it, so that it does not rest on a bare majority until it is renewed.

use leasehold::{Client, Guard};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use super::{Five, LIMIT, MAJORITY, NAME, QUARANTINE, holds};
use crate::{Checked, Proof, wait};

pub(super) const CASES: &[Proof] = &[
    ("servers_that_were_late_join_a_grant", || wait(were_late())),
    ("servers_that_another_had_join_a_grant", || wait(another_had())),
    ("nobody_joins_after_a_release", || wait(released())),
];

/// They go on when what was sent to them with the grant is too late.
async fn were_late() -> Checked {
    let mut five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let client = five.client().await?;
    let guard = taken_without_two(&five, &client).await?;
    tokio::time::sleep(LIMIT * 5 / 4).await;
    for server in &five.servers[MAJORITY..] {
        server.go_on()?;
    }
    all_have_it(&five).await?;
    bears_a_loss(&mut five, guard).await
}

/// Another client tries at the same moment, and has two of five.
async fn another_had() -> Checked {
    let mut five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let client = five.client().await?;
    let had = (LIMIT / 2).as_millis().to_string();
    for server in &five.servers[MAJORITY..] {
        server.command(&["SET", NAME, "another", "PX", &had])?;
    }
    let guard = client.lock(NAME)?.lease(QUARANTINE).try_acquire().await?.granted().ok_or("three are free")?;
    all_have_it(&five).await?;
    bears_a_loss(&mut five, guard).await
}

/// Released before any server is asked again: nothing comes later.
async fn released() -> Checked {
    let five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let client = five.client().await?;
    let guard = taken_without_two(&five, &client).await?;
    guard.release().await?;
    for server in &five.servers[MAJORITY..] {
        server.go_on()?;
    }
    let nobody = || five.servers.iter().try_fold(true, |nobody, server| Ok(nobody & !holds(server)?));
    five.until("all is given back", nobody, async || Ok(())).await?;
    tokio::time::sleep(LIMIT * 3).await;
    assert!(nobody()?, "it was taken after the release");
    Ok(())
}

/// With a lease that is not renewed.
async fn taken_without_two(five: &Five, client: &Client) -> Result<Guard, Failure> {
    for server in &five.servers[MAJORITY..] {
        server.stop()?;
    }
    Ok(client.lock(NAME)?.lease(QUARANTINE).try_acquire().await?.granted().ok_or("nobody else has it")?)
}

async fn all_have_it(five: &Five) -> Checked {
    let ours = five.servers[0].command(&["GET", NAME])?;
    let has = |server: &Redis| -> Result<bool, Failure> {
        Ok(server.command(&["GET", NAME])?.text().ok() == ours.text().ok())
    };
    let all = || five.servers.iter().try_fold(true, |all, server| Ok(all & has(server)?));
    five.until("all have it", all, async || Ok(())).await
}

/// Two of those that granted it are gone, and the others are a majority.
async fn bears_a_loss(five: &mut Five, guard: Guard) -> Checked {
    for server in &mut five.servers[..2] {
        server.kill()?;
    }
    guard.extend(QUARANTINE).await?;
    assert!(guard.is_valid());
    guard.release().await?;
    let rest = || five.servers[2..].iter().try_fold(true, |rest, server| Ok(rest & !holds(server)?));
    five.until("all is given back", rest, async || Ok(())).await
}
