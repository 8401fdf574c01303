//! How fast Redisson is on one lock: 64 threads of one process, and eight processes. What leasehold is compared with.

use std::time::Duration;

use leasehold_faults::servers::Redis;
use serde::Deserialize;

use crate::Failure;
use crate::driver::Driver;
use crate::peer::Peer;

const SECONDS: u64 = 10;
/// Also for the part that does not count.
const TAKES: Duration = Duration::from_secs(SECONDS + 30);
/// Redisson's default.
const KEEP: Duration = Duration::from_secs(30);

/// Measures both, and prints operations a second.
pub(crate) fn run() -> Result<(), Failure> {
    println!("{}", serde_json::json!({"hot_64_threads": of(1, 64)?, "crowd_8_processes": of(8, 1)?}));
    Ok(())
}

/// Lock and unlock, all together, a second.
fn of(processes: usize, threads: usize) -> Result<u64, Failure> {
    #[derive(Deserialize)]
    struct Measured {
        operations: u64,
    }
    let redisson = Peer::measured_redisson().ok_or("no Redisson")?;
    let server = Redis::start()?;
    let drivers: Result<Vec<Driver>, Failure> =
        (0..processes).map(|_| Driver::keeping(KEEP, redisson, &[server.address()])).collect();
    let mut drivers = drivers?;
    for driver in &mut drivers {
        driver.tell(&format!("bench bench {threads} {SECONDS}"))?;
    }
    let mut operations = 0;
    for driver in &mut drivers {
        operations += driver.answer::<Measured>(TAKES)?.operations;
    }
    Ok(operations / SECONDS)
}
