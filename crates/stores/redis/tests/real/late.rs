//! Calls that sit in a dead socket and arrive late, around a release in a batch that a subscriber received.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Guard};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use tokio::task::JoinSet;

use crate::scene::{Case, Checked, KEPT_LONG, MS, block_on, eventually, number};

/// Enough to share calls.
const MANY: usize = 120;
/// It depends on the moment whether a release shares a call.
const TRIES: usize = 8;

pub(crate) const CASES: &[Case] =
    &[("late::what_comes_after_a_shared_release_is_taken_back", || block_on(a_late_copy()))];

/// A proxy between a client and its server. Once armed, it holds back the first acquire of `n0`, with the whole
/// connection, and then the notification of the first waiter of `n0`.
#[derive(Default)]
struct Between {
    armed: AtomicBool,
    kept: Mutex<Option<(Vec<u8>, TcpStream)>>,
    tells_from: Mutex<Option<SystemTime>>,
    told: AtomicBool,
}

impl Between {
    fn start(server: SocketAddr) -> Result<(Arc<Self>, SocketAddr), Failure> {
        let (between, listener) = (Arc::new(Self::default()), TcpListener::bind("127.0.0.1:0")?);
        let (at, all) = (listener.local_addr()?, between.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if all.clone().join(client, server).is_err() {
                    return;
                }
            }
        });
        Ok((between, at))
    }

    fn join(self: Arc<Self>, client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
        let server = TcpStream::connect(server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || self.carry(client, server));
        Ok(())
    }

    fn carry(&self, mut client: TcpStream, mut server: TcpStream) -> std::io::Result<()> {
        let (mut room, mut is_dead) = (vec![0; 1 << 20], false);
        loop {
            let count = client.read(&mut room)?;
            if count == 0 {
                // What was kept back is still on its way.
                return if is_dead { Ok(()) } else { server.shutdown(Shutdown::Both) };
            }
            let some = &room[..count];
            if is_dead {
                continue;
            }
            let asks = has(some, "leasehold_fence:{n0}");
            if asks && self.armed.swap(false, Ordering::SeqCst) {
                *locked(&self.kept) = Some((some.to_vec(), server.try_clone()?));
                is_dead = true;
                continue;
            }
            if let Some(from) =
                (!asks && has(some, "leasehold_heard:{n0}")).then(|| *locked(&self.tells_from)).flatten()
            {
                self.told.store(true, Ordering::SeqCst);
                std::thread::sleep(from.duration_since(SystemTime::now()).unwrap_or_default());
            }
            server.write_all(some)?;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// A subscriber to releases of `n0`.
fn listener(server: &Redis) -> Result<TcpStream, Failure> {
    let mut listener = TcpStream::connect(server.address())?;
    listener.write_all(b"SUBSCRIBE redisson_lock__channel:{n0}\r\n")?;
    listener.read_exact(&mut [0; 1])?;
    let mut room = [0; 4096];
    let _ = listener.read(&mut room)?;
    Ok(listener)
}

async fn give_all(guards: impl IntoIterator<Item = Guard>) -> Checked {
    let mut giving: JoinSet<_> = guards.into_iter().map(Guard::release).collect();
    while let Some(given) = giving.join_next().await {
        given??;
    }
    Ok(())
}

/// Until when an acquire may be executed that was caught on its way.
fn end_of(late: &[u8]) -> Result<SystemTime, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
    let text = String::from_utf8_lossy(late);
    let numbers = text.split("\r\n").filter_map(|word| word.parse::<u64>().ok());
    let end = numbers.into_iter().find(|number| number.abs_diff(now) < 20_000_000).ok_or("it has no end")?;
    Ok(UNIX_EPOCH + Duration::from_micros(end))
}

/// An acquire sits in a dead socket; sent again, it is granted, and released in a batch that a subscriber receives.
/// Then the first copy arrives, before it is too late: what it takes is released, and not left to its lease.
async fn a_late_copy() -> Checked {
    for _ in 0..TRIES {
        if overtaken().await? {
            return Ok(());
        }
    }
    Err("it never shared a call".into())
}

/// Whether it came to that.
async fn overtaken() -> Result<bool, Failure> {
    let server = Redis::start()?;
    let (between, at) = Between::start(server.address())?;
    let client = Client::connect(&format!("redis://{at}?timeout=1s&{KEPT_LONG}")).await?;
    // Every script is known to the server then.
    let mut taking: JoinSet<_> = (0..MANY)
        .map(|at| client.lock(format!("n{at}")).expect("a name"))
        .map(|lock| async move { lock.acquire().await })
        .collect();
    let mut guards = Vec::new();
    while let Some(taken) = taking.join_next().await {
        guards.push(taken??);
    }
    let heard = listener(&server)?;
    give_all(guards).await?;
    drop(heard);
    let mut others = Vec::new();
    for at in 1..MANY {
        others.push(client.lock(format!("n{at}"))?.acquire().await?);
    }
    between.armed.store(true, Ordering::SeqCst);
    let stuck = client.lock("n0")?.acquire().await?;
    let (late, mut on_its_way) = locked(&between.kept).take().ok_or("it was not kept back")?;
    let end = end_of(&late)?;
    let Ok(pause) = (end - 300 * MS).duration_since(SystemTime::now()) else { return Ok(false) };
    *locked(&between.tells_from) = Some(end + 200 * MS);
    let mut heard = listener(&server)?;
    let comes_through = std::thread::spawn(move || {
        let given_back = heard.read(&mut [0; 4096]);
        given_back.and_then(|_| on_its_way.write_all(&late)).map(|()| on_its_way)
    });
    tokio::time::sleep(pause).await;
    let rest = others.split_off(others.len() / 2);
    give_all(others.into_iter().chain([stuck]).chain(rest)).await?;
    let _open = comes_through.join().map_err(|_| "the late one was not sent")??;
    if !between.told.load(Ordering::SeqCst) {
        return Ok(false);
    }
    eventually("what the late sending took is given back", || Ok(number(&server, &["EXISTS", "n0"])? == 0)).await?;
    Ok(true)
}
