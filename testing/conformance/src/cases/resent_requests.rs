//! A request that is sent again is done once: by its id.

use leasehold::port::{ReleaseScope, Released};

use crate::case::{Checked, Need};
use crate::hand::{Hand, is_busy, is_released};
use crate::world::World;

crate::cases! {
    async an_acquire_is_granted_once;
    async an_acquire_with_a_block needs [Need::Fences];
    async a_shared_owner_is_counted_once needs [Need::SharedReentrance];
    async a_release_counts_once needs [Need::SharedReentrance];
    async any_one_hold_counts_once needs [Need::SharedReentrance];
    async many_repeats_among_many_holds needs [Need::SharedReentrance];
    async a_repeat_after_the_release_is_a_new_grant;
}

async fn an_acquire_is_granted_once(world: World) -> Checked {
    let (mut hand, mut other) = (Hand::new(&world).await?, Hand::new(&world).await?);
    let request = hand.asking("a");
    let first = hand.take(&request).await?;
    let again = hand.take(&request).await?;
    assert_eq!((first.block, first.holds), (again.block, again.holds));
    assert!(again.left <= first.left, "a repeat lengthened the lease");
    assert!(is_released(hand.release(&hand.giving(&request, Some(first.block.first))).await?));
    let next = other.asking("a");
    other.take(&next).await?;
    Ok(())
}

async fn an_acquire_with_a_block(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let mut request = hand.asking("a");
    request.block = 17;
    let first = hand.take(&request).await?.block;
    assert!((1..=17).contains(&first.len));
    request.block = 3;
    assert_eq!(hand.take(&request).await?.block, first, "a repeat has the block of the grant");
    Ok(())
}

async fn a_shared_owner_is_counted_once(world: World) -> Checked {
    let (mut one, mut two) = (Hand::new(&world).await?, Hand::new(&world).await?);
    let (first, second) = (one.asking_as("a", "me"), two.asking_as("a", "me"));
    let grant = one.take(&first).await?;
    assert_eq!(grant.holds, 1);
    assert_eq!(one.take(&first).await?.holds, 1);
    let reentry = two.take(&second).await?;
    assert_eq!((reentry.holds, reentry.block), (2, grant.block));
    assert_eq!(two.take(&second).await?.holds, 2);
    assert_eq!(one.take(&first).await?.holds, 2);
    let fence = Some(grant.block.first);
    assert_eq!(one.release(&one.giving(&first, fence)).await?, Released::StillHeld(1));
    assert!(is_released(two.release(&two.giving(&second, fence)).await?));
    world.empty().await
}

async fn a_release_counts_once(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let asked = [hand.asking_as("a", "me"), hand.asking_as("a", "me"), hand.asking_as("a", "me")];
    let mut fence = None;
    for request in &asked {
        fence = Some(hand.take(request).await?.block.first);
    }
    for _ in 0..3 {
        assert_eq!(hand.release(&hand.giving(&asked[1], fence)).await?, Released::StillHeld(2));
    }
    assert_eq!(hand.release(&hand.giving(&asked[0], fence)).await?, Released::StillHeld(1));
    assert_eq!(hand.release(&hand.giving(&asked[1], fence)).await?, Released::StillHeld(1));
    assert!(is_released(hand.release(&hand.giving(&asked[2], fence)).await?));
    assert_eq!(hand.release(&hand.giving(&asked[2], fence)).await?, Released::NotHeld);
    Ok(())
}

/// For a release that does not know the request: its own id counts.
async fn any_one_hold_counts_once(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let (first, second) = (hand.asking_as("a", "me"), hand.asking_as("a", "me"));
    hand.take(&first).await?;
    let fence = Some(hand.take(&second).await?.block.first);
    let mut one = hand.giving(&first, fence);
    one.scope = ReleaseScope::One(hand.request());
    assert_eq!(hand.release(&one).await?, Released::StillHeld(1));
    assert_eq!(hand.release(&one).await?, Released::StillHeld(1), "sent twice, counted twice");
    one.scope = ReleaseScope::One(hand.request());
    assert!(is_released(hand.release(&one).await?));
    Ok(())
}

async fn many_repeats_among_many_holds(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let asked: Vec<_> = (0..40).map(|_| hand.asking_as("a", "me")).collect();
    let mut fence = None;
    for (at, request) in (1..).zip(&asked) {
        let grant = hand.take(request).await?;
        assert_eq!(grant.holds, at);
        fence = Some(grant.block.first);
    }
    let mut left = 40;
    for request in &asked[..39] {
        left -= 1;
        for _ in 0..2 {
            assert_eq!(hand.release(&hand.giving(request, fence)).await?, Released::StillHeld(left));
        }
    }
    assert!(is_released(hand.release(&hand.giving(&asked[39], fence)).await?));
    Ok(())
}

/// The store may have forgotten the request: a new grant has a new fence, so the two are not confused.
async fn a_repeat_after_the_release_is_a_new_grant(world: World) -> Checked {
    let (mut hand, mut other) = (Hand::new(&world).await?, Hand::new(&world).await?);
    let request = hand.asking("a");
    let fence = hand.take(&request).await?.block.first;
    assert!(is_released(hand.release(&hand.giving(&request, Some(fence))).await?));
    let next = other.asking("a");
    let between = other.take(&next).await?.block.first;
    assert!(is_busy(&hand.acquire(&request).await?));
    assert!(is_released(other.release(&other.giving(&next, Some(between))).await?));
    assert!(hand.take(&request).await?.block.first > between);
    Ok(())
}
