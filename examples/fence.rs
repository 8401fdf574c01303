//! Why a lock needs a fence: a holder that slept through its lease is refused at the resource. `cargo run -p leasehold --example fence`.

use std::time::Duration;

use leasehold::{Client, Error, FenceGate, Guard};

/// A resource that checks fences: the gate and the write are one step, because both happen behind `&mut self`.
#[derive(Default)]
struct Ledger {
    gate: FenceGate,
    lines: Vec<String>,
}

impl Ledger {
    fn write(&mut self, guard: &Guard, line: &str) -> Result<(), Error> {
        self.gate.pass(guard.fence(), guard.owner())?;
        self.lines.push(line.to_owned());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mut ledger = Ledger::default();

    // A fixed lease of 50 ms, and a holder that is busy elsewhere for longer.
    let slow = client.lock("ledger")?.lease(Duration::from_millis(50)).acquire().await?;
    let loss = slow.lost().await;
    println!("the slow holder was told: {loss:?}");

    // Meanwhile another one got the lock, with a larger fence, and writes.
    let quick = client.lock("ledger")?.acquire().await?;
    ledger.write(&quick, "by the quick one")?;

    // The slow one, had it not listened, would be refused.
    match ledger.write(&slow, "by the slow one") {
        Ok(()) => println!("this cannot be"),
        Err(error) => println!("refused: {error}"),
    }
    assert_eq!(ledger.lines, ["by the quick one"]);
    Ok(())
}
