//! A server whose clock is set.

use leasehold::{Client, ErrorKind, Loss, Owner};
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use tokio::task::JoinSet;

use crate::scene::{Case, Checked, LIMIT, S, block_on, number, url};

pub(crate) const CASES: &[Case] = &[
    ("clock::set_forward", || block_on(set_forward())),
    ("clock::set_back", || block_on(set_back())),
    ("clock::fences_are_kept_for_a_week_after_each_grant", || block_on(fences_are_kept_for_a_week())),
];

const LAYOUTS: [&str; 2] = ["redisson", "plain"];

/// Keys expire early: another has the lock before its holder is told, which happens with the next renewal.
async fn set_forward() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let url = format!("{}?layout={layout}", url(&server));
        let (one, other) = (Client::connect(&url).await?, Client::connect(&url).await?);
        let held = one.lock("a").keep(15 * S).acquire().await?;
        server.set_clock(60)?;
        let next = other.lock("a").try_acquire().await?.granted().ok_or("it did not expire")?;
        assert!(next.fence() > held.fence(), "{layout}: fences went back");
        let loss = tokio::time::timeout(LIMIT, held.lost()).await?;
        assert_eq!(loss, Loss::Gone, "{layout}: it was told by the clock, and not by a renewal");
        assert_eq!(held.release().await.expect_err("it was lost").kind(), ErrorKind::Lost);
        next.release().await?;
        // Locks that come later know nothing of it.
        let later = one.lock("a").keep(3 * S).acquire().await?;
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
        let held = one.lock("a").lease(2 * S).acquire().await?;
        let kept = one.lock("b").keep(4 * S).acquire().await?;
        server.set_clock(-3_600)?;
        let fence = held.fence();
        assert!(other.lock("a").acquire_within(6 * S).await?.is_busy(), "{layout}: it ended in time");
        assert!(!held.is_valid(), "{layout}: the holder goes by its own clock");
        assert!(number(&server, &["PTTL", "a"])? > 3_000_000, "{layout}: its key did not live on");
        assert!(kept.is_valid(), "{layout}: it is renewed all the same");
        // An operator ends it.
        other.break_lock("a", leasehold::Break::Now).await?;
        let next = other.lock("a").acquire().await?;
        assert!(next.fence() > fence, "{layout}: fences went back");
        let before = kept.fence();
        kept.release().await?;
        let again = other.lock("b").owned_by(&Owner::explicit("me")?).acquire().await?;
        assert!(again.fence() > before, "{layout}: fences went back");
    }
    Ok(())
}

/// Their expiry is not set with every grant, but whenever the last one was hours ago: for one that is asked for alone, and for many.
async fn fences_are_kept_for_a_week() -> Checked {
    const HOUR: i64 = 3_600;
    const WEEK_MS: i64 = 7 * 24 * HOUR * 1_000;
    for layout in LAYOUTS {
        let server = Redis::with(Settings::default().settable_clock())?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for hours in [0, 1, 2, 3, 4, 23, 24, 47, 215, 216, 100, 101] {
            server.set_clock(hours * HOUR)?;
            client.lock("alone").acquire().await?.release().await?;
            let taking: JoinSet<_> = (0..200)
                .map(|at| client.lock(format!("n{at}")))
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
