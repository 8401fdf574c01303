//! Adds to a number in a file, under a lock but without any other protection.

use std::time::Duration;

use leasehold::blocking::Client;

use crate::case::Checked;

/// Reads the number, lets others have their turn, and writes it back with one added.
pub(super) fn count(url: &str, file: &str, times: &str) -> Checked {
    let client = Client::connect(url)?;
    for _ in 0..times.parse()? {
        let guard = client.lock("counter").acquire()?;
        let count: u64 = std::fs::read_to_string(file)?.trim().parse()?;
        std::thread::sleep(Duration::from_micros(50));
        std::fs::write(file, (count + 1).to_string())?;
        guard.release()?;
    }
    Ok(())
}
