//! A refused client leaves nothing behind on the servers that had granted it.

use std::time::Duration;

use leasehold::Client;
use leasehold_faults::Failure;
use leasehold_faults::servers::redis::Settings;

use super::{Five, LIMIT, MAJORITY, NAME};
use crate::{Checked, Proof, wait};

pub(super) const CASES: &[Proof] = &[
    ("a_refused_try_leaves_nothing_on_a_minority", || wait(refused(None))),
    ("nor_on_a_server_that_stood_still", || wait(refused(Some(Duration::ZERO)))),
    ("nor_on_a_server_that_stood_still_for_long", || wait(refused(Some(LIMIT * 3)))),
];

/// What ends sooner need not be released in a hurry.
const LEASE: Duration = Duration::from_secs(60);

/// The first has three of five, so that the second is granted by two, and refused. One of the two may stand still meanwhile, and for a
/// while afterwards.
async fn refused(stands_still: Option<Duration>) -> Checked {
    let five = Five::voting(&Settings::default(), Duration::ZERO).await?;
    let (one, two) = (five.client().await?, five.client().await?);
    super::poke(&two).await?;
    let first = five.granted_on_three(&one, LEASE).await?;
    let before = values(&five)?;
    for _ in 0..5 {
        if let Some(span) = stands_still {
            five.servers[MAJORITY].stop()?;
            assert!(is_refused(&two).await?);
            tokio::time::sleep(span).await;
            five.servers[MAJORITY].go_on()?;
        } else {
            assert!(is_refused(&two).await?);
        }
        // Far sooner than the lease would end it.
        five.until("nothing is left behind", || Ok(values(&five)? == before), async || Ok(())).await?;
        if stands_still.is_some() {
            // Nor does anything come later that was on its way.
            tokio::time::sleep(LIMIT * 2).await;
            assert_eq!(values(&five)?, before);
        }
    }
    assert!(first.is_valid());
    first.release().await?;
    let free: Vec<Option<String>> = vec![None; five.servers.len()];
    five.until("all is given back", || Ok(values(&five)? == free), async || Ok(())).await?;
    for server in &five.servers {
        let keys = server.command(&["KEYS", &format!("*{NAME}*")])?;
        let beside = keys.texts()?;
        assert!(beside.iter().all(|key| key.starts_with("leasehold_fence:")), "{beside:?} are left");
    }
    Ok(())
}

async fn is_refused(client: &Client) -> Result<bool, Failure> {
    Ok(client.lock(NAME)?.lease(LEASE).try_acquire().await?.is_busy())
}

/// What stands at the lock's name on each server.
fn values(five: &Five) -> Result<Vec<Option<String>>, Failure> {
    let value =
        |server: &leasehold_faults::servers::Redis| Ok(server.command(&["GET", NAME])?.text().ok().map(str::to_owned));
    five.servers.iter().map(value).collect()
}
