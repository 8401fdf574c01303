//! Only the holder releases: late, foreign and repeated releases take nothing away.

use leasehold::port::{ReleaseScope, Released, Renewed, StoreOwner};

use crate::case::{Checked, Need};
use crate::hand::{Hand, LONG, is_busy, is_released};
use crate::world::{World, granted};

crate::cases! {
    async by_another;
    async twice;
    async after_its_end;
    async an_old_lease_of_the_same_owner needs [Need::Fences];
    async an_old_lease_of_a_shared_owner needs [Need::SharedReentrance];
    async what_was_never_taken;
    async drop_gives_back;
}

async fn by_another(world: World) -> Checked {
    let (mut one, mut two) = (Hand::new(&world).await?, Hand::new(&world).await?);
    let held = one.asking("a");
    let grant = one.take(&held).await?;
    let foreign = two.asking("a");
    for fence in [None, Some(grant.block.first)] {
        for give in [
            ReleaseScope::Hold(foreign.request),
            ReleaseScope::Hold(held.request),
            ReleaseScope::One(foreign.request),
            ReleaseScope::All,
        ] {
            let mut release = two.giving(&foreign, fence);
            release.scope = give;
            assert_eq!(two.release(&release).await?, Released::NotHeld, "{release:?}");
        }
    }
    assert!(matches!(one.renew(&held, grant.block.first, LONG).await?, Renewed::Kept { .. }));
    assert!(is_busy(&two.acquire(&foreign).await?));
    Ok(())
}

async fn twice(world: World) -> Checked {
    let (mut one, mut two) = (Hand::new(&world).await?, Hand::new(&world).await?);
    let first = one.asking("a");
    let grant = one.take(&first).await?;
    let release = one.giving(&first, Some(grant.block.first));
    assert!(is_released(one.release(&release).await?));
    assert_eq!(one.release(&release).await?, Released::NotHeld);
    let second = two.asking("a");
    two.take(&second).await?;
    assert_eq!(one.release(&release).await?, Released::NotHeld);
    assert_eq!(two.inspect("a").await?.holders.len(), 1);
    Ok(())
}

async fn after_its_end(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let mut first = hand.asking("a");
    first.lease = world.short();
    let grant = hand.take(&first).await?;
    let next = granted(&world.client().await?.lock("a")?).await?;
    assert_eq!(hand.release(&hand.giving(&first, Some(grant.block.first))).await?, Released::NotHeld);
    assert_eq!(hand.release(&hand.giving(&first, None)).await?, Released::NotHeld);
    assert_eq!(hand.renew(&first, grant.block.first, LONG).await?, Renewed::Lost);
    assert_eq!(hand.inspect("a").await?.holders[0].fence, Some(next.fence()));
    Ok(())
}

/// An older lease of the same owner is a different lease.
async fn an_old_lease_of_the_same_owner(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let owner = hand.asking("a");
    old_and_new(&mut hand, owner.owner).await
}

async fn an_old_lease_of_a_shared_owner(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    old_and_new(&mut hand, StoreOwner::Shared("me".into())).await
}

async fn old_and_new(hand: &mut Hand, owner: StoreOwner) -> Checked {
    let mut old = hand.asking("a");
    old.owner = owner.clone();
    let old_fence = hand.take(&old).await?.block.first;
    assert!(is_released(hand.release(&hand.giving(&old, Some(old_fence))).await?));
    let mut new = hand.asking("a");
    new.owner = owner;
    let new_fence = hand.take(&new).await?.block.first;
    assert!(new_fence > old_fence);
    assert_eq!(hand.renew(&old, old_fence, LONG).await?, Renewed::Lost);
    for give in [
        ReleaseScope::Hold(old.request),
        ReleaseScope::Hold(new.request),
        ReleaseScope::One(hand.request()),
        ReleaseScope::All,
    ] {
        let mut release = hand.giving(&old, Some(old_fence));
        release.scope = give;
        assert_eq!(hand.release(&release).await?, Released::NotHeld, "{give:?}");
    }
    assert!(matches!(hand.renew(&new, new_fence, LONG).await?, Renewed::Kept { .. }));
    assert!(is_released(hand.release(&hand.giving(&new, Some(new_fence))).await?));
    Ok(())
}

async fn what_was_never_taken(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let never = hand.asking("a");
    assert_eq!(hand.release(&hand.giving(&never, None)).await?, Released::NotHeld);
    assert_eq!(hand.renew(&never, leasehold::Fence::new(1), LONG).await?, Renewed::Lost);
    assert!(hand.inspect("a").await?.holders.is_empty());
    world.empty().await
}

async fn drop_gives_back(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    drop(granted(&one.lock("a")?).await?);
    let guard = granted(&two.lock("a")?).await?;
    drop((guard, one, two));
    world.empty().await
}
