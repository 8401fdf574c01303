//! A fence that no clock has counted: its name is refused, others are not hurt, and an operator can repair it.

use leasehold::port::BreakOptions;
use leasehold::{Break, Client, ErrorKind, Owner, Verdict};
use leasehold_faults::servers::Redis;
use leasehold_redis::Config;

use crate::scene::{Case, Checked, block_on, number, url};

pub(crate) const CASES: &[Case] = &[
    ("poison::a_fence_that_no_clock_has_counted_is_unfit", || block_on(unfit_until_reset())),
    ("poison::a_fence_that_is_days_ahead_is_gone_on_from", || block_on(days_ahead())),
    ("poison::redissons_token_is_repaired_as_well", || block_on(redissons_token())),
    ("poison::a_quorum_outvotes_it", || block_on(a_quorum_outvotes_it())),
];

const KEY: &str = "leasehold_fence:{x}";
const DAY: u64 = 24 * 3_600 * 8_000_000;

/// What leaves no number to go on from, with that of the server's clock.
fn poisons(clock: u64) -> Vec<String> {
    let far = (clock + 8 * DAY + DAY / 24).to_string();
    let record = format!("{far} 1 30000 b9a2c5a0-5f0b-4b8e-9d3c-0a1b2c3d4e5f:61 p\n1\nhost\n");
    let words =
        ["9007199254740991", "999999999999999999999999999999", "0", "0 1 30000 x p\n", "none", "-5", "+x", "", "1e300"];
    words.into_iter().map(str::to_owned).chain([far, record]).collect()
}

async fn unfit_until_reset() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let at = format!("{}?layout={layout}", url(&server));
        let (client, fresh) = (Client::connect(&at).await?, Client::connect(&at).await?);
        let clock = client.lock("other")?.acquire().await?.fence().get();
        for poison in poisons(clock) {
            server.command(&["SET", KEY, &poison, "PX", "600000"])?;
            for tried in [
                client.lock("x")?.try_acquire().await,
                client.lock("x")?.owned_by(&Owner::explicit("me")?).try_acquire().await,
            ] {
                let error = tried.expect_err("it is granted");
                assert_eq!(error.kind(), ErrorKind::Unfit, "{layout} {poison:?}: {error}");
                assert!(error.hint().is_some_and(|hint| hint.contains("reset_fence")), "{layout}: {error}");
            }
            assert_eq!(
                client.lock_all(["w", "x"])?.try_acquire().await.expect_err("one is unfit").kind(),
                ErrorKind::Unfit
            );
            assert_eq!(server.command(&["GET", KEY])?.text()?, poison, "{layout}: it was touched");
            assert_eq!(number(&server, &["EXISTS", "w", "x"])?, 0, "{layout}");
            let unhurt = client.lock("other")?.acquire().await?;
            assert!(unhurt.fence().get() < clock + DAY, "{layout} {poison:?}: it spreads");
            unhurt.release().await?;
            let checks = Client::builder(&at).examine().await?;
            let found = checks.iter().find(|check| check.check == "fence records").ok_or("no such check")?;
            assert!(found.verdict == Verdict::Fail && found.found.contains("x ("), "{layout}: {found:?}");
            // Only on an explicit request.
            client.break_lock("x", Break::Now).await?;
            assert_eq!(client.lock("x")?.try_acquire().await.expect_err("it is unfit").kind(), ErrorKind::Unfit);
            client.break_lock("x", BreakOptions::from(Break::Now).reset_fence()).await?;
            let repaired = fresh.lock("x")?.acquire().await?;
            assert!(
                (clock..clock + DAY).contains(&repaired.fence().get()),
                "{layout} {poison:?}: {:?}",
                repaired.fence()
            );
            repaired.release().await?;
            let checks = Client::builder(&at).examine().await?;
            assert!(
                checks.iter().any(|check| check.check == "fence records" && check.verdict == Verdict::Ok),
                "{layout}"
            );
        }
    }
    Ok(())
}

async fn days_ahead() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        let ahead = client.lock("other")?.acquire().await?.fence().get() + 7 * DAY;
        server.command(&["SET", KEY, &ahead.to_string(), "PX", "600000"])?;
        for step in 1..=3 {
            let held = client.lock("x")?.acquire().await?;
            assert_eq!(held.fence().get(), ahead + step, "{layout}");
            held.release().await?;
        }
        // What was seen of one name counts for no other, also while it is held.
        let _held = client.lock("x")?.acquire().await?;
        for name in ["other", "new"] {
            let fence = client.lock(name)?.acquire().await?.fence().get();
            assert!(fence < ahead - 6 * DAY, "{layout}: it spreads to {name}: {fence} after {ahead}");
        }
    }
    Ok(())
}

async fn redissons_token() -> Checked {
    let server = Redis::start()?;
    let client = Client::connect(&url(&server)).await?;
    server.command(&["SET", "redisson_lock_token:{x}", "9007199254740991"])?;
    assert_eq!(client.lock("x")?.try_acquire().await.expect_err("it is unfit").kind(), ErrorKind::Unfit);
    client.break_lock("x", BreakOptions::from(Break::Now).reset_fence()).await?;
    let held = client.lock("x")?.acquire().await?;
    let raised = server.command(&["GET", "redisson_lock_token:{x}"])?.text()?.to_owned();
    assert_eq!(raised, held.fence().to_string(), "Redisson would give out the same number again");
    Ok(())
}

async fn a_quorum_outvotes_it() -> Checked {
    let servers = [Redis::start()?, Redis::start()?, Redis::start()?];
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let client = Client::connect(&format!("redlock://{}?quarantine=0s&limit=5s&timeout=10s", places.join(","))).await?;
    let before = client.lock("x")?.acquire().await?;
    let fence = before.fence();
    before.release().await?;
    servers[0].command(&["SET", KEY, "9007199254740991", "PX", "600000"])?;
    let held = client.lock("x")?.acquire().await?;
    assert!(held.fence() > fence && held.fence().get() < fence.get() + DAY, "{:?} after {fence:?}", held.fence());
    held.release().await?;
    servers[1].command(&["SET", KEY, "no number", "PX", "600000"])?;
    let error = client.lock("x")?.try_acquire().await.expect_err("a majority is unfit");
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    client.break_lock("x", BreakOptions::from(Break::Now).reset_fence()).await?;
    let repaired = client.lock("x")?.acquire().await?;
    assert!(repaired.fence() > fence && repaired.fence().get() < fence.get() + DAY);
    let place = format!("//{}", servers[2].address());
    let config = Config::new("redis", &place, &[("layout".into(), "plain".into())], None)?;
    let checks = leasehold_redis::examine(&config).await?;
    assert!(checks.iter().any(|check| check.check == "fence records" && check.verdict == Verdict::Ok));
    Ok(())
}
