//! Take a lock, work under it, give it back: `cargo run -p leasehold --example basic`.

use std::time::Duration;

use leasehold::{Attempt, Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;

    // Waits until the lock is ours; renewed for as long as the guard lives.
    let guard = client.lock("invoices")?.label("the example").acquire().await?;
    println!("mine, with fence {} and {:?} left", guard.fence(), guard.time_left());

    // Another task finds it busy, and is told by whom.
    match client.lock("invoices")?.acquire_within(Duration::from_millis(100)).await? {
        Attempt::Granted(_) => println!("this cannot be"),
        Attempt::Busy(holder) => println!("busy: held by {:?}, fence {:?}", holder.label, holder.fence),
    }

    // The work is dropped should the lock be lost.
    let total = guard.protect(async { (1..=10).sum::<u32>() }).await?;
    println!("worked: {total}");

    // The same owner takes it again without asking the store.
    let again = client.lock("invoices")?.owned_by(guard.owner()).acquire().await?;
    println!("re-entered: {} guards, the same fence {}", again.holds(), again.fence());
    again.release().await?;

    guard.release().await?;
    client.close().await
}
