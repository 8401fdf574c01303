//! Fences only grow, whatever happens between two grants.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Break, Fence, Guard};
use tokio::task::JoinSet;

use crate::case::{Checked, Need};
use crate::deployment::Hook;
use crate::hand::{Hand, is_released};
use crate::world::{World, granted, soon};

crate::cases! {
    async over_release_and_expiry needs [Need::Fences];
    async over_break needs [Need::Fences];
    async over_passing_on_and_two_clients needs [Need::Fences];
    async over_blocks needs [Need::Fences];
    async above_what_the_client_has_seen needs [Need::Fences];
    async over_restart needs [Need::Fences, Need::Hook(Hook::Restart)];
}

/// Fences that must grow.
#[derive(Default)]
struct Growing(Mutex<Fence>);

impl Growing {
    fn add(&self, fence: Fence) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(fence > *last, "{fence} came after {}", *last);
        *last = fence;
    }

    async fn grant(&self, lock: &leasehold::Lock) -> Result<Guard, crate::case::Failure> {
        let guard = granted(lock).await?;
        self.add(guard.fence());
        Ok(guard)
    }
}

async fn over_release_and_expiry(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?];
    let growing = Growing::default();
    for at in 0..40 {
        growing.grant(&clients[at % 2].lock("a")?).await?.release().await?;
        drop(growing.grant(&clients[at / 2 % 2].lock("a")?).await?);
    }
    for client in &clients {
        let guard = growing.grant(&client.lock("a")?.lease(world.short())).await?;
        soon("lost", guard.lost()).await?;
        drop(growing.grant(&client.lock("a")?).await?);
    }
    Ok(())
}

async fn over_break(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let growing = Growing::default();
    for _ in 0..5 {
        let broken = growing.grant(&one.lock("a")?).await?;
        two.break_lock("a", Break::Now).await?;
        let guard = growing.grant(&two.lock("a")?).await?;
        assert!(guard.is_valid());
        drop(broken);
        guard.release().await?;
    }
    Ok(())
}

/// In the order of the critical sections, over grants of the store and passing on in memory alike.
async fn over_passing_on_and_two_clients(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?];
    let growing = Arc::new(Growing::default());
    let mut set = JoinSet::new();
    for at in 0..32 {
        let (client, growing) = (clients[at % 2].clone(), growing.clone());
        set.spawn(async move {
            for _ in 0..20 {
                let guard = growing.grant(&client.lock("a")?.budget(Duration::from_millis(2))).await?;
                tokio::task::yield_now().await;
                drop(guard);
            }
            Checked::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    Ok(())
}

/// What was used of a block stays used; what was not released is taken to be used. The blocks are longer than the time that goes by,
/// so that it is the record that counts and not the clock.
async fn over_blocks(world: World) -> Checked {
    const LARGE: u32 = 4_000_000;
    let mut hand = Hand::new(&world).await?;
    let growing = Growing::default();
    for released in [true, false, true] {
        let mut request = hand.asking("a");
        request.block = LARGE;
        let block = hand.take(&request).await?.block;
        growing.add(block.first);
        if block.len > 1 {
            growing.add(block.last());
        }
        let mut release = hand.giving(&request, Some(block.first));
        release.last_used = Some(block.last());
        if released {
            assert!(is_released(hand.release(&release).await?));
        } else {
            hand.break_lock("a", Break::Now).await?;
        }
    }
    let guard = growing.grant(&world.client().await?.lock("a")?).await?;
    Ok(guard.release().await?)
}

async fn above_what_the_client_has_seen(world: World) -> Checked {
    let mut hand = Hand::new(&world).await?;
    let first = hand.asking("a");
    let fence = hand.take(&first).await?.block.first;
    assert!(is_released(hand.release(&hand.giving(&first, Some(fence))).await?));
    let mut next = hand.asking("a");
    next.seen = fence.plus(1_000_000);
    assert!(hand.take(&next).await?.block.first > fence.plus(1_000_000));
    Ok(())
}

async fn over_restart(world: World) -> Checked {
    let growing = Growing::default();
    for _ in 0..3 {
        let client = world.client().await?;
        growing.grant(&client.lock("a")?).await?.release().await?;
        world.restart().await?;
    }
    drop(growing.grant(&world.client().await?.lock("a")?).await?);
    Ok(())
}
