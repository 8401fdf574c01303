//! The server is killed, stopped, or made to forget.

use std::time::Duration;

use leasehold_conformance::child::planted::Planted;
use leasehold_faults::Failure;
use leasehold_faults::history::now;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::scene::{AWAKE_WITHIN, Scene, TOLD_LATE};
use crate::{Case, Checked, Layout, Proof, objects, url, wait};

pub(crate) const CASES: &[Case] = &[
    ("restarted_from_a_copy_a_minute_old", restarted_from_a_copy_a_minute_old),
    ("restarted_from_a_young_copy", restarted_from_a_young_copy),
    ("restarted_empty", |layout| wait(restarted_empty(layout, Planted::Nothing))),
    ("restarted_with_its_data", restarted_with_its_data),
    ("flushed", |layout| wait(flushed(layout, Planted::Nothing))),
    ("stopped_for_half_a_lease", stopped_for_half_a_lease),
    ("stopped_for_two_leases", |layout| wait(stopped_for_two_leases(layout, Planted::Nothing))),
];

/// Bugs, and what must be said of them.
pub(crate) const PLANTED: &[Proof] = &[
    ("a_holder_that_believes_in_its_lock", || {
        objects(wait(stopped_for_two_leases("plain", Planted::Believes)), "at the same time")
    }),
    ("a_holder_that_is_deaf", || objects(wait(stopped_for_two_leases("plain", Planted::Deaf)), "was not told when")),
    ("a_layer_that_hides_what_became_of_renewals", || {
        objects(wait(flushed("plain", Planted::HidesRenewals)), "nobody told the holder")
    }),
    ("a_fence_that_stands_still", || objects(wait(restarted_empty("plain", Planted::FirstFence)), "the fence")),
    ("a_waiter_that_sleeps", || objects(wait(a_waiter_that_sleeps()), "slept for")),
];

const LEASE: Duration = Duration::from_secs(3);
/// So that half of it is well apart from what a renewal every third leaves: by a sixth.
const LONG: Duration = Duration::from_secs(18);
const SHORT: Duration = Duration::from_secs(3);

async fn restarted_empty(layout: Layout, bug: Planted) -> Checked {
    let mut server = Redis::start()?;
    let scene = Scene::begin(&url(server.address(), layout), LEASE, bug).await?;
    let from = now();
    server.restart_empty()?;
    forgotten(scene, from).await
}

async fn flushed(layout: Layout, bug: Planted) -> Checked {
    let server = Redis::start()?;
    let scene = Scene::begin(&url(server.address(), layout), LEASE, bug).await?;
    let from = now();
    server.flush()?;
    if bug == Planted::HidesRenewals {
        // It is never notified; so the test waits until that is too long.
        scene.forgot(from, true)?;
        tokio::time::sleep(LEASE + TOLD_LATE).await;
        return scene.end().await.map(drop);
    }
    forgotten(scene, from).await
}

fn restarted_from_a_copy_a_minute_old(layout: Layout) -> Checked {
    wait(async {
        let mut server = Redis::start()?;
        let scene = Scene::begin(&url(server.address(), layout), LEASE, Planted::Nothing).await?;
        let copy = server.snapshot()?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        scene.holder_has_kept_it()?;
        let from = now();
        server.restart_from(&copy)?;
        // Every lease of that time is over by now.
        forgotten(scene, from).await
    })
}

/// The store lost its data: every holder is notified, every waiter gets the lock, and fences grow.
async fn forgotten(scene: Scene, from: u64) -> Checked {
    let back = scene.forgot(from, true)?;
    scene.waiter_has_it(back).await?;
    scene.crowd_works(back).await?;
    scene.holder_is_told().await?;
    scene.end().await?;
    Ok(())
}

/// What was held then is held again, even if released since: until that lease is over, and no longer.
fn restarted_from_a_young_copy(layout: Layout) -> Checked {
    wait(async {
        let mut server = Redis::start()?;
        let scene = Scene::begin(&url(server.address(), layout), LONG, Planted::Nothing).await?;
        let copy = server.snapshot()?;
        let from = now();
        server.restart_from(&copy)?;
        let back = scene.forgot(from, false)?;
        // The holder of the lock that goes from hand to hand released it long ago: it is not renewed.
        let free = back + u64::try_from(LONG.as_nanos())?;
        scene.crowd_works(free).await?;
        scene.holder_has_kept_it()?;
        keeps(scene).await
    })
}

fn restarted_with_its_data(layout: Layout) -> Checked {
    wait(async {
        let mut server = Redis::with(Settings::default().durable())?;
        let scene = Scene::begin(&url(server.address(), layout), LEASE, Planted::Nothing).await?;
        server.restart()?;
        let back = now();
        scene.crowd_works(back).await?;
        // Longer than a lease: the notification is not merely late.
        tokio::time::sleep(LEASE).await;
        keeps(scene).await
    })
}

fn stopped_for_half_a_lease(layout: Layout) -> Checked {
    wait(async {
        let server = Redis::start()?;
        let scene = Scene::begin(&url(server.address(), layout), LONG, Planted::Nothing).await?;
        let back = stopped(&server, LONG / 2).await?;
        scene.crowd_works(back).await?;
        tokio::time::sleep(LONG / 2).await;
        keeps(scene).await
    })
}

/// The holder has kept its lock; and the one that waits has it when that goes.
async fn keeps(mut scene: Scene) -> Checked {
    scene.holder_has_kept_it()?;
    let gone = scene.holder_goes().await?;
    scene.waiter_has_it(gone).await?;
    scene.end().await?;
    Ok(())
}

async fn stopped_for_two_leases(layout: Layout, bug: Planted) -> Checked {
    let server = Redis::start()?;
    let scene = Scene::begin(&url(server.address(), layout), SHORT, bug).await?;
    let back = stopped(&server, SHORT * 2).await?;
    scene.waiter_has_it(back).await?;
    scene.crowd_works(back).await?;
    if bug == Planted::Nothing {
        scene.holder_is_told().await?;
    } else {
        // It goes on for longer than anything may be late.
        tokio::time::sleep(SHORT + TOLD_LATE).await;
    }
    scene.end().await?;
    Ok(())
}

/// Stops a server for a while. Answers when it went on.
async fn stopped(server: &Redis, span: Duration) -> Result<u64, Failure> {
    server.stop()?;
    tokio::time::sleep(span).await;
    let back = now();
    server.go_on()?;
    Ok(back)
}

async fn a_waiter_that_sleeps() -> Checked {
    let server = Redis::start()?;
    let scene = Scene::begin(&url(server.address(), "plain"), LEASE, Planted::Nothing).await?;
    scene.waiter.remote.stop()?;
    let from = now();
    server.flush()?;
    let back = scene.forgot(from, true)?;
    tokio::time::sleep(LEASE + AWAKE_WITHIN).await;
    scene.waiter.remote.go_on()?;
    scene.waiter_has_it(back).await
}
