//! leasehold as one more driver: does what peers/PROTOCOL.md describes, with the public library.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, ErrorKind, Fence, Guard, Lock, Owner};
use serde_json::{Value, json};

use crate::Failure;
use crate::clock::now_us;

/// How long a counting worker waits for the lock before it checks the time again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Obeys until standard input ends.
pub fn drive(arguments: &[String]) -> Result<(), Failure> {
    let [layout, ports, keep_ms] = arguments else { return Err("drive LAYOUT PORT[,PORT…] KEEP_MS".into()) };
    let places: Vec<String> = ports.split(',').map(|port| format!("127.0.0.1:{port}")).collect();
    let url = match &places[..] {
        [place] => format!("redis://{place}?layout={layout}&keep={keep_ms}ms"),
        // The servers have just started, and cases ask for leases that outlast them: no server that is new could vote for those.
        several => format!("redlock://{}?quarantine=0s&layout={layout}&keep={keep_ms}ms", several.join(",")),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let client = runtime.block_on(Client::connect(&url))?;
    let mut ours = Ours { client, held: HashMap::new() };
    println!("{}", json!({"ready": true, "library": "leasehold", "version": env!("CARGO_PKG_VERSION")}));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        if words == ["quit"] {
            break;
        }
        let answer = runtime.block_on(ours.run(&words)).unwrap_or_else(|error| json!({"error": error.to_string()}));
        println!("{answer}");
    }
    // What is held stays held until its lease ends, as with a process that dies.
    std::process::exit(0)
}

struct Ours {
    client: Client,
    held: HashMap<String, Guard>,
}

impl Ours {
    async fn run(&mut self, words: &[&str]) -> Result<Value, Failure> {
        match words {
            ["lock", name, lease, wait] => self.lock(name, millis(lease)?, millis(wait)?).await,
            ["unlock", name] => self.unlock(name).await,
            ["stranger", name] => self.stranger(name).await,
            ["token", name] => self.token(name).await,
            ["turns", name, span, _] => self.turns(name, millis(span)?).await,
            ["count", name, file, span, workers, lease] => {
                let lock = (*name != "-").then(|| self.with_lease(name, millis(lease).unwrap_or_default()));
                count(lock, file, millis(span)?, workers.parse()?).await
            }
            _ => Err(format!("no command {words:?}").into()),
        }
    }

    fn with_lease(&self, name: &str, lease: Duration) -> Lock {
        let lock = self.client.lock(name).expect("a name");
        if lease.is_zero() { lock } else { lock.lease(lease) }
    }

    async fn lock(&mut self, name: &str, lease: Duration, wait: Duration) -> Result<Value, Failure> {
        let lock = self.with_lease(name, lease);
        let from = now_us();
        let attempt = if wait.is_zero() { lock.try_acquire().await? } else { lock.acquire_within(wait).await? };
        let at = now_us();
        let guard = attempt.granted();
        let got = guard.is_some();
        if let Some(guard) = guard {
            self.held.insert(name.to_owned(), guard);
        }
        Ok(json!({"got": got, "from_us": from, "at_us": at}))
    }

    async fn unlock(&mut self, name: &str) -> Result<Value, Failure> {
        let guard = self.held.remove(name).ok_or("it was not taken")?;
        let from = now_us();
        let released = match guard.release().await {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::Lost => false,
            Err(error) => return Err(error.into()),
        };
        Ok(json!({"released": released, "from_us": from, "at_us": now_us()}))
    }

    /// With the holder's own fence, where it has one: only the owner is wrong, and the store has to say so.
    async fn stranger(&self, name: &str) -> Result<Value, Failure> {
        let holders = self.client.inspect(name).await?.holders;
        let fence = holders.first().and_then(|holder| holder.fence).unwrap_or(Fence::new(1));
        let lease = self.client.detached(name, &Owner::explicit("stranger")?)?;
        let from = now_us();
        let released = match lease.release(Some(fence)).await {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotHolder => false,
            Err(error) => return Err(error.into()),
        };
        Ok(json!({"released": released, "from_us": from, "at_us": now_us()}))
    }

    async fn turns(&self, name: &str, span: Duration) -> Result<Value, Failure> {
        let (lock, end) = (self.client.lock(name)?, Instant::now() + span);
        let mut turns = Vec::new();
        while Instant::now() < end {
            let guard = lock.acquire().await?;
            turns.push([now_us(), now_us()]);
            guard.release().await?;
        }
        Ok(json!({"turns": turns}))
    }

    async fn token(&self, name: &str) -> Result<Value, Failure> {
        let guard = self.client.lock(name)?.acquire().await?;
        let token = guard.fence().get();
        guard.release().await?;
        Ok(json!({"token": token}))
    }
}

async fn count(lock: Option<Lock>, file: &str, span: Duration, workers: usize) -> Result<Value, Failure> {
    let end = Instant::now() + span;
    let mut running = Vec::new();
    for _ in 0..workers {
        let counter = OpenOptions::new().read(true).write(true).open(file)?;
        running.push(tokio::spawn(count_until(end, lock.clone(), counter)));
    }
    let mut total = 0;
    for worker in running {
        total += worker.await??;
    }
    Ok(json!({"count": total}))
}

async fn count_until(end: Instant, lock: Option<Lock>, counter: File) -> Result<u64, Failure> {
    let mut done = 0;
    while Instant::now() < end {
        let guard = match &lock {
            None => None,
            Some(lock) => match lock.acquire_within(PATIENCE).await? {
                Attempt::Granted(guard) => Some(guard),
                Attempt::Busy(_) => continue,
            },
        };
        add_one(&counter).await?;
        if let Some(guard) = guard {
            guard.release().await?;
        }
        done += 1;
    }
    Ok(done)
}

async fn add_one(counter: &File) -> Result<(), Failure> {
    let mut digits = [0; 12];
    counter.read_exact_at(&mut digits, 0)?;
    let value: u64 = std::str::from_utf8(&digits)?.parse()?;
    tokio::task::yield_now().await;
    counter.write_all_at(format!("{:012}", value + 1).as_bytes(), 0)?;
    Ok(())
}

fn millis(text: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(text.parse()?))
}
