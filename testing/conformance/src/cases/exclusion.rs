//! At most one holder: tasks and threads add to a number that nothing else protects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{Client, blocking};
use tokio::task::JoinSet;

use crate::case::{Checked, Failure};
use crate::world::{World, granted};

crate::cases! {
    async tasks;
    async tasks_of_two_clients;
    async one_may_act_at_a_time;
    blocking threads;
    blocking what_was_written_is_seen;
}

/// A number that is read, then written after others had their turn: without a lock, additions are lost.
#[derive(Default)]
struct Unprotected(AtomicU64);

impl Unprotected {
    async fn add_one(&self) {
        let count = self.0.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.0.store(count + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

async fn tasks(world: World) -> Checked {
    let client = world.client().await?;
    assert_eq!(count_up(&[client], 32, 50).await?, 1_600);
    Ok(())
}

async fn tasks_of_two_clients(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?];
    assert_eq!(count_up(&clients, 8, 25).await?, 400);
    world.empty().await
}

async fn count_up(clients: &[Client], tasks: u64, times: u64) -> Result<u64, Failure> {
    let number = Arc::new(Unprotected::default());
    let mut set = JoinSet::new();
    for client in clients {
        for _ in 0..tasks {
            let (lock, number) = (client.lock("counter")?, number.clone());
            set.spawn(async move {
                for _ in 0..times {
                    let guard = granted(&lock).await?;
                    number.add_one().await;
                    guard.release().await?;
                }
                Checked::Ok(())
            });
        }
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    Ok(number.get())
}

/// While a guard is valid, no other is: checked by a number of those inside.
async fn one_may_act_at_a_time(world: World) -> Checked {
    let clients = [world.client().await?, world.client().await?, world.client().await?];
    let inside = Arc::new(AtomicU64::new(0));
    let mut set = JoinSet::new();
    for at in 0..12 {
        let (lock, inside) = (clients[at % clients.len()].lock("one")?, inside.clone());
        set.spawn(async move {
            for _ in 0..20 {
                let guard = granted(&lock).await?;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                assert!(guard.is_valid());
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two are inside");
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

fn threads(world: &World) -> Checked {
    let client = blocking::Client::connect(&world.url())?;
    let number = AtomicU64::new(0);
    add_in_threads(&client, &number, 4, 100, |number| {
        let count = number.load(Ordering::Relaxed);
        std::thread::yield_now();
        number.store(count + 1, Ordering::Relaxed);
    })?;
    assert_eq!(number.into_inner(), 400);
    Ok(())
}

/// Several plain words that are written without any order of their own: the next holder sees all of them alike.
fn what_was_written_is_seen(world: &World) -> Checked {
    let client = blocking::Client::connect(&world.url())?;
    let words: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
    add_in_threads(&client, &words, 4, 100, |words| {
        let seen: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert!(seen.iter().all(|word| *word == seen[0]), "a holder saw half of what was written: {seen:?}");
        words.iter().for_each(|word| word.store(seen[0] + 1, Ordering::Relaxed));
    })?;
    assert_eq!(words[0].load(Ordering::Relaxed), 400);
    Ok(())
}

fn add_in_threads<T: Sync>(client: &blocking::Client, data: &T, threads: u32, times: u32, add: fn(&T)) -> Checked {
    std::thread::scope(|scope| {
        let body = || {
            for _ in 0..times {
                let guard = client.lock("data")?.acquire()?;
                add(data);
                guard.release()?;
            }
            Checked::Ok(())
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(body)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}
