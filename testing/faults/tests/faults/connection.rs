//! The connection is cut, held up or refused, while the server is well: everything stays promised.

use std::time::Duration;

use leasehold_conformance::child::planted::Planted;
use leasehold_faults::history::now;
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;

use crate::scene::Scene;
use crate::{Case, Checked, Layout, url, wait};

pub(crate) const CASES: &[Case] = &[
    ("cut_in_the_middle_of_replies", cut_in_the_middle_of_replies),
    ("cut_again_and_again", cut_again_and_again),
    ("held_up_for_half_a_lease", held_up_for_half_a_lease),
    ("refused_for_half_a_lease", refused_for_half_a_lease),
    ("one_that_is_cut_off_for_two_leases", one_that_is_cut_off_for_two_leases),
];

const LEASE: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(18);
const SHORT: Duration = Duration::from_secs(3);
/// How many replies are cut.
const CUTS: usize = 40;
/// Several replies.
const BYTES: u32 = 1_000;
/// How long a cut may take to come: there are replies all the time.
const CUT_WITHIN: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(1);

fn cut_in_the_middle_of_replies(layout: Layout) -> Checked {
    wait(async {
        let server = Redis::start()?;
        let proxy = Proxy::before(server.address())?;
        let scene = Scene::begin(&url(proxy.address(), layout), LEASE, Planted::Nothing).await?;
        for cuts in 0..CUTS {
            proxy.cut_after(usize::try_from(getrandom::u32()? % BYTES)?);
            let cut = async {
                while proxy.cut_in_a_reply() <= cuts {
                    tokio::time::sleep(LOOK).await;
                }
            };
            tokio::time::timeout(CUT_WITHIN, cut).await.map_err(|_| "no reply is left to be cut")?;
            scene.crowd_works(now()).await?;
        }
        kept_through(scene).await
    })
}

fn cut_again_and_again(layout: Layout) -> Checked {
    wait(async {
        let server = Redis::start()?;
        let proxy = Proxy::before(server.address())?;
        let scene = Scene::begin(&url(proxy.address(), layout), LEASE, Planted::Nothing).await?;
        for _ in 0..10 {
            proxy.cut();
            scene.crowd_works(now()).await?;
        }
        kept_through(scene).await
    })
}

fn held_up_for_half_a_lease(layout: Layout) -> Checked {
    wait(async {
        let server = Redis::start()?;
        let proxy = Proxy::before(server.address())?;
        let scene = Scene::begin(&url(proxy.address(), layout), LONG, Planted::Nothing).await?;
        proxy.hold();
        tokio::time::sleep(LONG / 2).await;
        proxy.resume()?;
        kept_through(scene).await
    })
}

fn refused_for_half_a_lease(layout: Layout) -> Checked {
    wait(async {
        let server = Redis::start()?;
        let proxy = Proxy::before(server.address())?;
        let scene = Scene::begin(&url(proxy.address(), layout), LONG, Planted::Nothing).await?;
        proxy.refuse()?;
        tokio::time::sleep(LONG / 2).await;
        proxy.resume()?;
        kept_through(scene).await
    })
}

/// All continue from now on; the holder has kept its lock, and the waiter gets it when the holder ends.
async fn kept_through(mut scene: Scene) -> Checked {
    scene.crowd_works(now()).await?;
    scene.holder_has_kept_it()?;
    let gone = scene.holder_goes().await?;
    scene.waiter_has_it(gone).await?;
    scene.end().await?;
    Ok(())
}

/// It is notified before the waiter gets its lock; and when it is back, it has its turn again.
fn one_that_is_cut_off_for_two_leases(layout: Layout) -> Checked {
    wait(async {
        let server = Redis::start()?;
        let proxy = Proxy::before(server.address())?;
        let (here, there) = (url(server.address(), layout), url(proxy.address(), layout));
        let mut scene = Scene::with_holder_at(&there, &here, SHORT, Planted::Nothing).await?;
        let cut_off = now();
        proxy.hold();
        scene.waiter_has_it(cut_off + u64::try_from(SHORT.as_nanos())?).await?;
        scene.holder_is_told().await?;
        scene.holder_asks_again()?;
        tokio::time::sleep(SHORT).await;
        let back = now();
        proxy.resume()?;
        scene.holder_has_it_again(back).await?;
        scene.end().await?;
        Ok(())
    })
}
