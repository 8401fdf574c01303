//! Threads instead of tasks: the blocking twin, re-entrant by thread. `cargo run -p leasehold --example blocking`.

use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::Error;
use leasehold::blocking::Client;

fn add_one(client: &Client, counter: &AtomicU32) -> Result<(), Error> {
    let _guard = client.lock("counter")?.acquire()?;
    // Not one atomic step: only the lock makes it right.
    let before = counter.load(Ordering::Relaxed);
    std::thread::yield_now();
    counter.store(before + 1, Ordering::Relaxed);
    Ok(())
}

fn main() -> Result<(), Error> {
    let client = Client::connect("memory:")?;
    let counter = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..250).try_for_each(|_| add_one(&client, &counter)))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that ends"))
    })?;
    println!("counted {}", counter.load(Ordering::Relaxed));
    assert_eq!(counter.load(Ordering::Relaxed), 1000);

    // A thread that holds the lock takes it again.
    let outer = client.lock("counter")?.acquire()?;
    add_one(&client, &counter)?;
    outer.release()
}
