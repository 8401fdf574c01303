//! Owners whose ids look like something else.

use leasehold::{Break, Client, Error, ErrorKind, Fence, Owner};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;

use crate::scene::{Case, Checked, S, block_on, number, url};

pub(crate) const CASES: &[Case] = &[
    ("owners::one_that_begins_like_another_is_another", || block_on(one_that_begins_like_another_is_another())),
    ("owners::those_that_mean_something_else_are_refused", || block_on(those_that_mean_something_else_are_refused())),
    ("owners::one_that_is_spelled_like_a_generated_one_is_refused", || block_on(spelled_like_a_generated_one())),
    ("owners::of_a_quorum_they_are_refused_alike", || block_on(refused_by_a_quorum())),
    ("owners::what_another_library_holds_is_nobodys_here", || block_on(of_another_library())),
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
            let held = client.lock("x")?.owned_by(&holder).lease(60 * S).acquire().await?;
            held.leave().await.map_err(|(_, error)| error)?;
            let lock = client.lock("x")?.owned_by(&stranger);
            let theirs = client.detached("x", &stranger)?;
            refused(theirs.renew(None, 120 * S).await, ErrorKind::NotHolder);
            refused(theirs.release(None).await, ErrorKind::NotHolder);
            refused(theirs.release_all(None).await, ErrorKind::NotHolder);
            assert!(lock.try_acquire().await?.is_busy(), "{layout}: {stranger:?} re-entered what {holder:?} holds");
            assert!(number(&server, &["PTTL", "x"])? <= 60_000, "{layout}: it was renewed");
            let ours = client.detached("x", &holder)?;
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
            let lock = client.lock("x")?.owned_by(&Owner::explicit(owner)?);
            refused(lock.acquire().await, ErrorKind::BadArgument);
            assert_eq!(number(&server, &["DBSIZE"])?, 0, "{layout}: something was written for {owner}");
        }
        // Nor can one be had by giving a lock back that was broken.
        let held = client.lock("x")?.owned_by(&Owner::explicit("me")?).lease(60 * S).acquire().await?;
        client.break_lock("x", Break::AtLeaseEnd).await?;
        let stranger = client.detached("x", &Owner::explicit("leasehold:broken:me")?)?;
        assert!(stranger.release(None).await.is_err());
        assert_eq!(number(&server, &["EXISTS", "x"])?, 1, "{layout}: a stranger freed it");
        drop(held);
    }
    Ok(())
}

/// Everything that an explicit owner can do with a lock is refused.
async fn all_is_refused(client: &Client, owner: &str) -> Checked {
    let owner = Owner::explicit(owner)?;
    let (lock, lease) = (client.lock("x")?.owned_by(&owner), client.detached("x", &owner)?);
    refused(lock.acquire().await, ErrorKind::BadArgument);
    refused(lock.try_acquire().await, ErrorKind::BadArgument);
    refused(lease.renew(Some(Fence::new(1)), 120 * S).await, ErrorKind::BadArgument);
    refused(lease.release(None).await, ErrorKind::BadArgument);
    refused(lease.release_all(None).await, ErrorKind::BadArgument);
    Ok(())
}

/// The owner of what is held, as the server keeps it.
fn kept_owner(server: &Redis, layout: &str) -> Result<String, Failure> {
    if layout == "redisson" {
        let fields = server.command(&["HKEYS", "x"])?;
        return Ok(fields.texts()?.first().ok_or("it is not held")?.to_string());
    }
    let value = server.command(&["GET", "x"])?;
    Ok(value.text()?.rsplit_once('/').ok_or("no request")?.0.to_owned())
}

/// It would re-enter and release what the generated one holds.
async fn spelled_like_a_generated_one() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let at = format!("{}?layout={layout}", url(&server));
        let (client, other) = (Client::connect(&at).await?, Client::connect(&at).await?);
        let held = client.lock("x")?.lease(60 * S).acquire().await?;
        let kept = kept_owner(&server, layout)?;
        all_is_refused(&other, &kept).await?;
        // With the request behind it, it is another owner.
        let longer = Owner::explicit(format!("{kept}/{kept}"))?;
        assert!(other.lock("x")?.owned_by(&longer).try_acquire().await?.is_busy());
        refused(other.detached("x", &longer)?.release(None).await, ErrorKind::NotHolder);
        assert_eq!(kept_owner(&server, layout)?, kept);
        assert!(number(&server, &["PTTL", "x"])? <= 60_000, "{layout}: it was renewed");
        held.release().await?;
    }
    Ok(())
}

async fn refused_by_a_quorum() -> Checked {
    let servers = [Redis::start()?, Redis::start()?, Redis::start()?];
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let client = Client::connect(&format!("redlock://{}?quarantine=0s", places.join(","))).await?;
    for owner in ["mode", "leasehold:linger", "01234567-89ab-cdef-fedc-ba9876543210:42"] {
        all_is_refused(&client, owner).await?;
    }
    for server in &servers {
        assert_eq!(number(server, &["DBSIZE"])?, 0, "something was written");
    }
    Ok(())
}

/// In the plain layout a value that begins with an owner and a slash is of that owner only where a request follows.
async fn of_another_library() -> Checked {
    let server = Redis::start()?;
    let client = Client::connect(&format!("{}?layout=plain", url(&server))).await?;
    for value in ["me/1", "me/", "me/token:x", "me"] {
        server.command(&["SET", "x", value, "PX", "60000"])?;
        let me = Owner::explicit("me")?;
        let (lock, lease) = (client.lock("x")?.owned_by(&me), client.detached("x", &me)?);
        assert!(lock.try_acquire().await?.is_busy(), "{value}");
        refused(lease.renew(None, 120 * S).await, ErrorKind::NotHolder);
        refused(lease.release(None).await, ErrorKind::NotHolder);
        refused(lease.release_all(None).await, ErrorKind::NotHolder);
        assert_eq!(server.command(&["GET", "x"])?.text()?, value);
        assert!(number(&server, &["PTTL", "x"])? <= 60_000, "{value}: it was renewed");
    }
    Ok(())
}
