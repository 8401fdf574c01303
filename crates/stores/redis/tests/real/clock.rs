//! A server whose clock is set.

use leasehold::port::{Acquire, Acquired, Block, Break, Names, Release};
use leasehold::{Client, ErrorKind, Fence, Loss, Name, Owner, Store};
use leasehold_core::fence::{BLOCK_MAX, FENCE_JUMP};
use leasehold_core::time::ClockBounds;
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use leasehold_redis::Redis as Server;
use tokio::task::JoinSet;

use crate::scene::{Case, Checked, LIMIT, S, block_on, number, url};
use crate::stale::{asking, giving, store};

pub(crate) const CASES: &[Case] = &[
    ("clock::set_forward", || block_on(set_forward())),
    ("clock::set_back", || block_on(set_back())),
    ("clock::fences_are_kept_for_a_week_after_each_grant", || block_on(fences_are_kept_for_a_week())),
    ("clock::set_back_no_fence_of_a_block_is_granted_again", || block_on(a_block_is_granted_once())),
    ("clock::set_back_a_release_frees_no_fence_below_its_grant", || block_on(a_release_frees_no_more_than_its_block())),
    ("clock::set_back_what_the_client_knows_of_it_counts", || block_on(what_the_client_knows_counts())),
];

const LAYOUTS: [&str; 2] = ["redisson", "plain"];

/// Keys expire early: another client gets the lock before its holder is notified, by the next renewal.
async fn set_forward() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let url = format!("{}?layout={layout}", url(&server));
        let (one, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
        let held = one.lock("a")?.keep(15 * S).acquire().await?;
        server.set_clock(60)?;
        let next = other.lock("a")?.try_acquire().await?.granted().ok_or("it did not expire")?;
        assert!(next.fence() > held.fence(), "{layout}: fences went back");
        let loss = tokio::time::timeout(LIMIT, held.lost()).await?;
        assert_eq!(loss, Loss::Gone, "{layout}: it was told by the clock, and not by a renewal");
        assert_eq!(held.release().await.expect_err("it was lost").kind(), ErrorKind::Lost);
        next.release().await?;
        // Locks that come later know nothing of it.
        let later = one.lock("a")?.keep(3 * S).acquire().await?;
        tokio::time::sleep(6 * S).await;
        assert!(later.is_valid());
    }
    Ok(())
}

/// Keys live longer, so waiters wait; fences go on from the last one.
async fn set_back() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let url = format!("{}?layout={layout}", url(&server));
        let (one, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
        let held = one.lock("a")?.lease(2 * S).acquire().await?;
        let kept = one.lock("b")?.keep(4 * S).acquire().await?;
        server.set_clock(-3_600)?;
        let fence = held.fence();
        assert!(other.lock("a")?.acquire_within(6 * S).await?.is_busy(), "{layout}: it ended in time");
        assert!(!held.is_valid(), "{layout}: the holder goes by its own clock");
        assert!(number(&server, &["PTTL", "a"])? > 3_000_000, "{layout}: its key did not live on");
        assert!(kept.is_valid(), "{layout}: it is renewed all the same");
        // An operator ends it.
        other.break_lock("a", leasehold::Break::Now).await?;
        let next = other.lock("a")?.acquire().await?;
        assert!(next.fence() > fence, "{layout}: fences went back");
        let before = kept.fence();
        kept.release().await?;
        let again = other.lock("b")?.owned_by(&Owner::explicit("me")?).acquire().await?;
        assert!(again.fence() > before, "{layout}: fences went back");
    }
    Ok(())
}

/// Their expiry is not set with every grant, but only if the last time was hours ago: for single acquires and for
/// batches.
async fn fences_are_kept_for_a_week() -> Checked {
    const HOUR: i64 = 3_600;
    const WEEK_MS: i64 = 7 * 24 * HOUR * 1_000;
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for hours in [0, 1, 2, 3, 4, 23, 24, 47, 215, 216, 100, 101] {
            server.set_clock(hours * HOUR)?;
            client.lock("alone")?.acquire().await?.release().await?;
            let taking: JoinSet<_> = (0..200)
                .map(|at| client.lock(format!("n{at}")).expect("a name"))
                .map(|lock| async move { lock.acquire().await?.release().await })
                .collect();
            taking.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
            for name in ["alone".to_owned()].into_iter().chain((0..200).map(|at| format!("n{at}"))) {
                let left = number(&server, &["PTTL", &format!("leasehold_fence:{{{name}}}")])?;
                assert!(left >= WEEK_MS, "{layout}: the fence of {name} is kept for {left} ms, {hours} hours on");
            }
        }
    }
    Ok(())
}

/// A request for two names, which no short cut serves.
fn asking_for_two(number: u64, block: u32) -> Acquire {
    let names = ["x", "y"].map(|name| Name::new(name).expect("a good name"));
    Acquire { names: Names::Many(names.into()), block, ..asking(number) }
}

async fn granted(store: &Server, request: Acquire) -> Result<Block, Failure> {
    match store.acquire(request).await?.result {
        Acquired::Granted(grants) => Ok(grants[0].block),
        other => Err(format!("not granted: {other:?}").into()),
    }
}

async fn release(store: &Server, taken: &Acquire, grant: Block, last_used: Option<Fence>) -> Checked {
    for name in taken.names.as_slice() {
        let release = Release { name: name.clone(), last_used, ..giving(taken, Some(grant.first)) };
        store.release(release).await?;
    }
    Ok(())
}

/// A store whose next grant of the two names is a whole block at its clock. Its first one was a jump ahead of that.
async fn with_blocks(server: &Redis, layout: &str) -> Result<Server, Failure> {
    let store = store(server, layout)?;
    let first = asking_for_two(1, 1);
    let grant = granted(&store, first.clone()).await?;
    release(&store, &first, grant, None).await?;
    server.set_clock(1)?;
    Ok(store)
}

/// How much of a broken lock's block was used is unknown. Without a clock ahead of it, only the record tells.
async fn a_block_is_granted_once() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let store = with_blocks(&server, layout).await?;
        let taken = asking_for_two(2, BLOCK_MAX);
        let block = granted(&store, taken.clone()).await?;
        assert_eq!(block.len, BLOCK_MAX, "{layout}");
        for name in taken.names.as_slice() {
            store.break_lock(name.clone(), Break::Now.into()).await?;
        }
        server.set_clock(-3_600)?;
        let next = granted(&store, asking_for_two(3, 1)).await?;
        assert_eq!(next.first, block.last().plus(1), "{layout}: a fence of {block:?} is granted again");
    }
    Ok(())
}

/// The rest of a block is free again; what was granted before it is not, whatever the release says.
async fn a_release_frees_no_more_than_its_block() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let store = with_blocks(&server, layout).await?;
        let taken = asking_for_two(2, 100);
        let block = granted(&store, taken.clone()).await?;
        let below = Fence::new(block.first.get() - 50);
        release(&store, &taken, block, Some(below)).await?;
        server.set_clock(-3_600)?;
        let next = granted(&store, asking_for_two(3, 1)).await?;
        assert_eq!(next.first, block.first.plus(1), "{layout}");
    }
    Ok(())
}

/// A server that forgot and whose clock was set back jumps ahead of where a client has seen the clock.
async fn what_the_client_knows_counts() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let store = store(&server, layout)?;
        let floor = store.clock().await?.at;
        let clock = ClockBounds { floor, ceiling: floor + 5 * S };
        server.set_clock(-3_600)?;
        for request in [Acquire { clock, ..asking(1) }, Acquire { clock, ..asking_for_two(2, 1) }] {
            let block = granted(&store, request).await?;
            assert!(block.first >= Fence::at(clock.ceiling).plus(FENCE_JUMP), "{layout}: {block:?} follows the clock");
            assert_eq!(block.len, 1, "{layout}");
        }
    }
    Ok(())
}
