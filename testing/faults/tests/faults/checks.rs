//! The scene and its checks on a store that needs no server: all is well, and with a bug it is seen.

use std::time::Duration;

use leasehold::Client;
use leasehold_conformance::child::planted::Planted;
use leasehold_faults::Failure;
use leasehold_faults::history::now;

use crate::scene::{Scene, TOLD_LATE};
use crate::{Checked, Proof, objects, wait};

pub(crate) const CASES: &[Proof] = &[
    ("a_holder_that_is_stopped", || wait(a_stopped_holder(Planted::Nothing))),
    ("one_that_believes_is_seen", || objects(wait(a_stopped_holder(Planted::Believes)), "at the same time")),
    ("one_that_is_deaf_is_seen", || objects(wait(a_stopped_holder(Planted::Deaf)), "was not told when")),
    ("a_fence_that_stands_still_is_seen", || objects(wait(a_stopped_holder(Planted::FirstFence)), "the fence")),
];

const LEASE: Duration = Duration::from_secs(3);
/// Longer than a write to the store takes.
const WRITE: Duration = Duration::from_millis(50);

/// It loses its lock, hears of it as it goes on, and has its turn again.
async fn a_stopped_holder(bug: Planted) -> Checked {
    let folder = tempfile::tempdir()?;
    let url = format!("file:{}/locks.db", folder.path().display());
    let mut scene = Scene::begin(&url, LEASE, bug).await?;
    let stopped = stop_between_writes(&scene, &url).await?;
    scene.waiter_has_it(stopped + u64::try_from(LEASE.as_nanos())?).await?;
    let back = now();
    scene.holder.remote.go_on()?;
    if matches!(bug, Planted::Nothing | Planted::FirstFence) {
        scene.holder_is_told().await?;
        scene.holder_asks_again()?;
        scene.holder_has_it_again(back).await?;
        scene.crowd_works(back).await?;
    } else {
        // For longer than any notification may be late.
        tokio::time::sleep(TOLD_LATE + LEASE).await;
    }
    scene.end().await?;
    Ok(())
}

/// Stops the holder, but not in the middle of a write, which would block all others. Returns the time.
async fn stop_between_writes(scene: &Scene, url: &str) -> Result<u64, Failure> {
    let client = Client::connect(url).await?;
    loop {
        let stopped = now();
        scene.holder.remote.stop()?;
        match client.lock("probe")?.try_acquire().await {
            Ok(_) => return Ok(stopped),
            Err(_) => scene.holder.remote.go_on()?,
        }
        // No event shows when it is done with it.
        tokio::time::sleep(WRITE).await;
    }
}
