//! Handing a lock from process to process: left to its explicit owner, renewed and released without a guard.

use std::time::Duration;

use leasehold::{ErrorKind, Fence, Owner};

use crate::case::{Checked, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::hand::{Hand, LONG};
use crate::world::{World, granted, granted_all, soon};

crate::cases! {
    async left_to_its_owner needs [Need::OutlivesProcess, Need::SharedReentrance];
    async several_left_to_their_owner needs [Need::OutlivesProcess, Need::SharedReentrance, Need::SeveralNames];
    async what_cannot_be_left needs [Need::SharedReentrance];
    async left_after_a_lost_answer needs [Need::OutlivesProcess, Need::SharedReentrance];
    async renewed_without_a_guard needs [Need::SharedReentrance];
    async released_hold_by_hold needs [Need::SharedReentrance];
    async released_at_once needs [Need::SharedReentrance];
    async by_a_stranger needs [Need::SharedReentrance];
    async of_an_older_grant needs [Need::SharedReentrance, Need::Fences];
    async when_nobody_holds_it;
    async bad_arguments;
}

const MINUTE: Duration = Duration::from_secs(60);

/// A client that closes releases what it holds, but not what it left to its owner.
async fn left_to_its_owner(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let guard = granted(&one.lock("a")?.owned_by(&me).lease(MINUTE)).await?;
    let (fence, signal) = (guard.fence(), guard.lost_signal());
    guard.leave().await.map_err(|(_, error)| error)?;
    assert_eq!(soon("the signal", signal.wait()).await?, None, "nothing was lost");
    world.quiet(&one).await?;
    soon("close", one.close()).await??;
    assert!(two.lock("a")?.try_acquire().await?.is_busy(), "it was given back");
    let again = granted(&two.lock("a")?.owned_by(&me)).await?;
    assert_eq!(again.fence(), fence, "the owner re-enters");
    again.release().await?;
    assert_eq!(two.detached("a", &me)?.release(Some(fence)).await?, 0);
    world.empty().await
}

async fn several_left_to_their_owner(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let guard = granted_all(&one.lock_all(["a", "b"])?.owned_by(&me).lease(MINUTE)).await?;
    guard.leave().await.map_err(|(_, error)| error)?;
    one.close().await?;
    assert_eq!(two.list("").await?.len(), 2);
    for name in ["a", "b"] {
        assert_eq!(two.detached(name, &me)?.release(None).await?, 0);
    }
    world.empty().await
}

/// The guard comes back, and is as good as before.
async fn what_cannot_be_left(world: World) -> Checked {
    let (client, other) = (world.client().await?, world.client().await?);
    let me = Owner::explicit("me")?;
    let refused = if world.capability.outlives_process { ErrorKind::BadArgument } else { ErrorKind::Unfit };
    for lock in [client.lock("a")?.owned_by(&me), client.lock("a")?.lease(MINUTE)] {
        let guard = granted(&lock).await?;
        let (guard, error) = guard.leave().await.err().ok_or("it was left")?;
        assert_eq!(error.kind(), refused, "{error}");
        assert!(guard.is_valid());
        assert!(other.lock("a")?.try_acquire().await?.is_busy());
        guard.release().await?;
    }
    world.quiet(&client).await?;
    world.empty().await
}

/// The first sending is still open somewhere: it is waited for, so that it takes nothing when the owner has released the lock.
async fn left_after_a_lost_answer(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let me = Owner::explicit("me")?;
    chaos.next(Kind::Acquire, 1, Fault::Park);
    let guard = granted(&client.lock("a")?.owned_by(&me).lease(MINUTE)).await?;
    soon("leave", guard.leave()).await?.map_err(|(_, error)| error)?;
    assert_eq!(client.detached("a", &me)?.release(None).await?, 0);
    chaos.deliver().await;
    assert!(!client.inspect("a").await?.is_held(), "a late sending took it again");
    world.quiet(&client).await
}

async fn renewed_without_a_guard(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let client = world.client().await?;
    let mut taken = hand.asking_as("a", "me");
    taken.lease = MINUTE;
    let fence = hand.take(&taken).await?.block.first;
    let mine = client.detached("a", &Owner::explicit("me")?)?;
    for fence in [None, Some(fence)] {
        let left = mine.renew(fence, MINUTE * 3).await?;
        assert!(left > MINUTE * 2 && left <= MINUTE * 3, "{left:?}");
    }
    assert!(mine.renew(None, MINUTE).await? > MINUTE, "a renewal never shortens");
    let holder = &client.inspect("a").await?.holders[0];
    assert!(holder.left.is_some_and(|left| left > MINUTE * 2), "{holder:?}");
    assert_eq!((holder.fence, holder.holds), (Some(fence), Some(1)));
    Ok(())
}

async fn released_hold_by_hold(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let client = world.client().await?;
    for _ in 0..3 {
        let taken = hand.asking_as("a", "me");
        hand.take(&taken).await?;
    }
    let mine = client.detached("a", &Owner::explicit("me")?)?;
    for left in [2, 1, 0] {
        assert!(client.lock("a")?.try_acquire().await?.is_busy());
        assert_eq!(mine.release(None).await?, left);
    }
    assert_eq!(mine.release(None).await.map_err(|error| error.kind()), Err(ErrorKind::NotHolder));
    world.empty().await
}

async fn released_at_once(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let client = world.client().await?;
    for _ in 0..3 {
        let taken = hand.asking_as("a", "me");
        hand.take(&taken).await?;
    }
    client.detached("a", &Owner::explicit("me")?)?.release_all(None).await?;
    world.empty().await
}

async fn by_a_stranger(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let client = world.client().await?;
    let taken = hand.asking_as("a", "me");
    let fence = hand.take(&taken).await?.block.first;
    let stranger = client.detached("a", &Owner::explicit("stranger")?)?;
    for fence in [None, Some(fence)] {
        for error in [
            stranger.renew(fence, LONG).await.err(),
            stranger.release(fence).await.err(),
            stranger.release_all(fence).await.err(),
        ] {
            let error = error.ok_or("a stranger was let in")?;
            assert_eq!(error.kind(), ErrorKind::NotHolder);
            assert!(error.to_string().contains("\"me\" does"), "it says who holds it: {error}");
        }
    }
    assert_eq!(client.inspect("a").await?.holders[0].holds, Some(1));
    Ok(())
}

async fn of_an_older_grant(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let client = world.client().await?;
    let taken = hand.asking_as("a", "me");
    let fence = hand.take(&taken).await?.block.first;
    let older = Some(Fence::new(fence.get() - 1));
    let mine = client.detached("a", &Owner::explicit("me")?)?;
    for error in
        [mine.renew(older, LONG).await.err(), mine.release(older).await.err(), mine.release_all(older).await.err()]
    {
        assert_eq!(error.ok_or("an older lease was taken for this one")?.kind(), ErrorKind::NotHolder);
    }
    assert_eq!(mine.release(Some(fence)).await?, 0);
    world.empty().await
}

async fn when_nobody_holds_it(world: World) -> Checked {
    let client = world.client().await?;
    let mine = client.detached("a", &Owner::explicit("me")?)?;
    for error in
        [mine.renew(None, LONG).await.err(), mine.release(None).await.err(), mine.release_all(None).await.err()]
    {
        let error = error.ok_or("nobody held it")?;
        assert_eq!(error.kind(), ErrorKind::NotHolder);
        assert!(error.to_string().contains("nobody"), "{error}");
    }
    world.empty().await
}

async fn bad_arguments(world: World) -> Checked {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let me = Owner::explicit("me")?;
    let guard = granted(&client.lock("b")?).await?;
    let generated = guard.owner().clone();
    guard.release().await?;
    let before = chaos.total();
    let mine = client.detached("a", &me)?;
    for error in [
        client.detached("a", &generated).err(),
        client.detached("", &me).err(),
        mine.renew(None, Duration::ZERO).await.err(),
        mine.renew(None, Duration::MAX).await.err(),
    ] {
        assert_eq!(error.ok_or("it was accepted")?.kind(), ErrorKind::BadArgument);
    }
    assert_eq!(chaos.total(), before, "something was sent");
    Ok(())
}
