//! Owners whose ids look like something else.

use leasehold::{Break, Client, Error, ErrorKind, Owner};
use leasehold_faults::servers::Redis;

use crate::scene::{Case, Checked, S, block_on, number, url};

pub(crate) const CASES: &[Case] = &[
    ("owners::one_that_begins_like_another_is_another", || block_on(one_that_begins_like_another_is_another())),
    ("owners::those_that_mean_something_else_are_refused", || block_on(those_that_mean_something_else_are_refused())),
];

fn refused<T: std::fmt::Debug>(what: Result<T, Error>, kind: ErrorKind) {
    let error = what.expect_err("it must be refused");
    assert_eq!(error.kind(), kind, "{error}");
}

async fn one_that_begins_like_another_is_another() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for (holder, stranger) in [("a/b", "a"), ("a", "a/b"), ("a/b/", "a/b"), ("%.*", "a"), ("a", "%.*")] {
            let (holder, stranger) = (Owner::explicit(holder)?, Owner::explicit(stranger)?);
            let held = client.lock("x").owned_by(&holder).lease(60 * S).acquire().await?;
            held.leave().await.map_err(|(_, error)| error)?;
            let theirs = client.lock("x").owned_by(&stranger);
            refused(theirs.renew(None, 120 * S).await, ErrorKind::NotHolder);
            refused(theirs.release(None).await, ErrorKind::NotHolder);
            refused(theirs.release_all(None).await, ErrorKind::NotHolder);
            assert!(theirs.try_acquire().await?.is_busy(), "{layout}: {stranger:?} re-entered what {holder:?} holds");
            assert!(number(&server, &["PTTL", "x"])? <= 60_000, "{layout}: it was renewed");
            let ours = client.lock("x").owned_by(&holder);
            ours.renew(None, 90 * S).await?;
            ours.release(None).await?;
            assert_eq!(number(&server, &["EXISTS", "x"])?, 0);
        }
    }
    Ok(())
}

async fn those_that_mean_something_else_are_refused() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for owner in ["mode", "leasehold:linger", "leasehold:broken:me"] {
            let lock = client.lock("x").owned_by(&Owner::explicit(owner)?);
            refused(lock.acquire().await, ErrorKind::BadArgument);
            assert_eq!(number(&server, &["DBSIZE"])?, 0, "{layout}: something was written for {owner}");
        }
        // Nor can one be had by giving a lock back that was broken.
        let held = client.lock("x").owned_by(&Owner::explicit("me")?).lease(60 * S).acquire().await?;
        client.break_lock("x", Break::AtLeaseEnd).await?;
        let lock = client.lock("x").owned_by(&Owner::explicit("leasehold:broken:me")?);
        assert!(lock.release(None).await.is_err());
        assert_eq!(number(&server, &["EXISTS", "x"])?, 1, "{layout}: a stranger freed it");
        drop(held);
    }
    Ok(())
}
