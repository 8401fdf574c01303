//! Passing on inside one client: few calls to the store, fences in order, and no client starves another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Event, FenceGate, How, Owner};
use tokio::task::JoinSet;

use crate::case::{Checked, Failure, Need};
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async saves_calls;
    async budget_zero_is_off;
    async first_come_first_served;
    async never_to_or_from_an_explicit_owner;
    async never_from_a_fixed_lease;
    async not_after_the_end;
    async two_clients_share needs [Need::Waiters];
}

/// Runs `tasks` tasks that take the lock `times` times each; returns the calls to acquire and to release.
async fn load(world: &World, budget: Duration, tasks: u64, times: u64) -> Result<(u64, u64), Failure> {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let (gate, last) = (Arc::new(FenceGate::new()), Arc::new(AtomicU64::new(0)));
    let mut set = JoinSet::new();
    for _ in 0..tasks {
        let (lock, gate, last) = (client.lock("a")?.budget(budget), gate.clone(), last.clone());
        set.spawn(async move {
            for _ in 0..times {
                let guard = granted(&lock).await?;
                gate.pass(guard.fence(), guard.owner())?;
                let before = last.swap(guard.fence().get(), Ordering::SeqCst);
                assert!(before < guard.fence().get(), "fences {before} and {} in this order", guard.fence());
                tokio::task::yield_now().await;
                drop(guard);
            }
            Checked::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    world.quiet(&client).await?;
    world.empty().await?;
    Ok((chaos.count(Kind::Acquire), chaos.count(Kind::Release)))
}

async fn saves_calls(world: World) -> Checked {
    let (acquires, releases) = load(&world, Duration::from_secs(1), 64, 20).await?;
    assert!(acquires < 1_280 / 5 && releases < 1_280 / 5, "{acquires} acquires, {releases} releases for 1280 grants");
    Ok(())
}

async fn budget_zero_is_off(world: World) -> Checked {
    let (acquires, releases) = load(&world, Duration::ZERO, 8, 10).await?;
    assert!(acquires >= 80, "{acquires} acquires for 80 grants");
    assert_eq!(releases, 80);
    Ok(())
}

async fn first_come_first_served(world: World) -> Checked {
    let client = world.client().await?;
    let held = granted(&client.lock("a")?).await?;
    let served = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for at in 0..20 {
        let (lock, served, before) = (client.lock("a")?, served.clone(), client.in_use());
        tasks.push(tokio::spawn(async move {
            let guard = granted(&lock).await?;
            assert_eq!(served.fetch_add(1, Ordering::SeqCst), at, "served out of turn");
            guard.release().await?;
            Checked::Ok(())
        }));
        eventually(async || client.in_use() > before).await?;
    }
    held.release().await?;
    for task in tasks {
        soon("a waiter", task).await???;
    }
    Ok(())
}

/// How many acquires the store sees when one holder releases to two that wait.
async fn asked_for(world: &World, lock: impl Fn(&Client) -> leasehold::Lock) -> Result<u64, Failure> {
    let chaos = Chaos::new();
    let client = world.client_over(&chaos).await?;
    let blocker = granted(&client.lock("a")?.budget(Duration::ZERO)).await?;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (lock, before) = (lock(&client), client.in_use());
        tasks.push(tokio::spawn(async move { Ok::<_, Failure>(granted(&lock).await?.release().await?) }));
        eventually(async || client.in_use() > before).await?;
    }
    let before = chaos.count(Kind::Acquire);
    blocker.release().await?;
    for task in tasks {
        soon("a waiter", task).await???;
    }
    Ok(chaos.count(Kind::Acquire) - before)
}

async fn never_to_or_from_an_explicit_owner(world: World) -> Checked {
    let passed_on = |client: &Client| client.lock("a").expect("a name").budget(Duration::from_secs(10));
    assert_eq!(asked_for(&world, passed_on).await?, 1, "nothing was passed on at all");
    let count = AtomicU64::new(0);
    let different = |client: &Client| {
        let owner = Owner::explicit(format!("owner-{}", count.fetch_add(1, Ordering::Relaxed)));
        passed_on(client).owned_by(&owner.expect("a good owner"))
    };
    assert!(asked_for(&world, different).await? >= 3);
    Ok(())
}

async fn never_from_a_fixed_lease(world: World) -> Checked {
    let lock = |client: &Client| {
        client.lock("a").expect("a name").lease(Duration::from_secs(60)).budget(Duration::from_secs(10))
    };
    let asked = asked_for(&world, lock).await?;
    assert!(asked >= 3, "a fixed lease was passed on");
    Ok(())
}

/// An expired lease is not handed to another task: its waiters call the store.
async fn not_after_the_end(world: World) -> Checked {
    let (chaos, passed) = (Chaos::new(), Arc::new(AtomicU64::new(0)));
    let listener = {
        let passed = passed.clone();
        move |event: &Event<'_>| {
            if let Event::Granted { how: How::HandedOff, .. } = event {
                passed.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let client = world.builder().layer(chaos.clone()).listener(listener).connect().await?;
    let lock = client.lock("a")?.keep(world.short() * 2).budget(Duration::from_secs(10));
    let held = granted(&lock).await?;
    chaos.every(Kind::Renew, Fault::Hang);
    let queued = tokio::spawn(async move { lock.acquire().await });
    soon("lost", held.lost()).await?;
    let fence = held.fence();
    drop(held);
    let next = soon("the queued", queued).await???;
    assert!(next.fence() > fence);
    assert_eq!(passed.load(Ordering::SeqCst), 0, "a lease was passed on after its end");
    chaos.calm();
    Ok(())
}

/// Many tasks each: neither client has less than 40 % of the grants.
async fn two_clients_share(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?];
    let counts: Arc<[AtomicU64; 2]> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut set = JoinSet::new();
    for at in 0..32 {
        let lock = clients[at % 2].lock("a")?.budget(Duration::from_millis(5));
        let (counts, stop) = (counts.clone(), stop.clone());
        set.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = granted(&lock).await?;
                counts[at % 2].fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_micros(200)).await;
                drop(guard);
            }
            Checked::Ok(())
        });
    }
    let began = Instant::now();
    let total = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    // However long a busy machine takes for them: the limit is that of the trial.
    while total() <= 1_000 || began.elapsed() <= Duration::from_secs(2) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = set.join_next().await {
        done??;
    }
    let shares = counts.each_ref().map(|count| count.load(Ordering::Relaxed) * 100 / total());
    assert!(shares.iter().all(|share| *share >= 40), "{shares:?} per cent of {} grants", total());
    Ok(())
}
