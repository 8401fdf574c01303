//! Five independent servers, of which some die, forget, or stand still; `redlock:` over them.
//!
//! - [`outages`]: as long as three of five servers are up, everything works.
//! - [`data_loss`]: a server that came back without its data does not help to grant a lock twice.
//! - [`late_votes`]: servers that missed a grant have it soon after.
//! - [`refused_clients`]: a refused client leaves nothing behind.
//! - [`settings`]: settings that are refused before they do harm.

mod data_loss;
mod late_votes;
mod outages;
mod refused_clients;
mod settings;

use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, ErrorKind, Guard};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::{Checked, Proof};

pub(crate) fn cases() -> impl Iterator<Item = &'static Proof> {
    let cases = outages::CASES.iter().chain(data_loss::CASES).chain(late_votes::CASES);
    cases.chain(refused_clients::CASES).chain(settings::CASES)
}

const SERVERS: usize = 5;
const MAJORITY: usize = 3;
/// Long enough for a busy machine to renew in time, short enough to be waited for.
const QUARANTINE: Duration = Duration::from_secs(12);
/// How long a server is waited for: longer than by default, because the machine is busy.
const LIMIT: Duration = Duration::from_secs(1);
/// How late something may be that must happen, before it counts as never.
const PATIENCE: Duration = Duration::from_secs(90);
/// Polling interval for changes without an event.
const LOOK: Duration = Duration::from_millis(10);
/// The lock.
const NAME: &str = "job";

/// Five servers, and with which quarantine they are used.
struct Five {
    servers: Vec<Redis>,
    quarantine: Duration,
}

impl Five {
    fn start(settings: &Settings, quarantine: Duration) -> Result<Self, Failure> {
        let servers = (0..SERVERS).map(|_| Redis::with(settings.clone())).collect::<Result<_, _>>()?;
        Ok(Self { servers, quarantine })
    }

    /// Five that vote, all of them.
    async fn voting(settings: &Settings, quarantine: Duration) -> Result<Self, Failure> {
        let five = Self::start(settings, quarantine)?;
        if !quarantine.is_zero() {
            let client = five.client().await?;
            five.until(
                "all vote",
                || five.servers.iter().try_fold(true, |all, server| Ok(all & votes(server)?)),
                || poke(&client),
            )
            .await?;
            client.close().await?;
        }
        Ok(five)
    }

    fn url(&self) -> String {
        let places: Vec<String> = self.servers.iter().map(|server| server.address().to_string()).collect();
        let (quarantine, limit) = (self.quarantine.as_millis(), LIMIT.as_millis());
        format!("redlock://{}?quarantine={quarantine}ms&limit={limit}ms", places.join(","))
    }

    async fn client(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.url()).await?)
    }

    /// Waits until it is so; after every look something is done meanwhile.
    async fn until<F: Future<Output = Checked>>(
        &self,
        what: &str,
        so: impl Fn() -> Result<bool, Failure>,
        meanwhile: impl Fn() -> F,
    ) -> Checked {
        let began = Instant::now();
        while !so()? {
            if began.elapsed() > PATIENCE {
                return Err(format!("{what}: not within {PATIENCE:?}").into());
            }
            meanwhile().await?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Takes a lock that exactly three servers have, with a lease that is not renewed: the last two are made to forget
    /// it, once no call is in flight that would tell them of it again.
    async fn granted_on_three(&self, client: &Client, lease: Duration) -> Result<Guard, Failure> {
        let guard = client.lock(NAME)?.lease(lease).try_acquire().await?.granted().ok_or("nobody else has it")?;
        self.until("all have it", || self.all_have_it(), async || Ok(())).await?;
        // A late server was asked twice; both calls are answered by then, or too late.
        tokio::time::sleep(LIMIT).await;
        for server in &self.servers[MAJORITY..] {
            server.command(&["DEL", NAME])?;
        }
        let holding: Vec<bool> = self.servers.iter().map(holds).collect::<Result<_, _>>()?;
        assert_eq!(holding, [true, true, true, false, false]);
        Ok(guard)
    }
}

impl Five {
    fn all_have_it(&self) -> Result<bool, Failure> {
        self.servers.iter().try_fold(true, |all, server| Ok(all & holds(server)?))
    }
}

/// A call goes to all servers, so that they check their epoch.
async fn poke(client: &Client) -> Checked {
    match client.lock("poke")?.try_acquire().await {
        Ok(Attempt::Granted(guard)) => Ok(guard.release().await?),
        Ok(Attempt::Busy(_)) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NoQuorum => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a server has something of the lock.
fn holds(server: &Redis) -> Result<bool, Failure> {
    Ok(server.command(&["EXISTS", NAME])?.number()? == 1)
}

/// A server's birth: of which run, since when in microseconds.
fn birth(server: &Redis) -> Result<Option<(String, u64, Duration)>, Failure> {
    let kept = server.command(&["GET", "leasehold_birth"])?;
    let Ok(kept) = kept.text() else { return Ok(None) };
    let [run, since, quarantine, _] = kept.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("no birth: {kept:?}").into());
    };
    Ok(Some((run.to_owned(), since.parse()?, Duration::from_millis(quarantine.parse()?))))
}

/// Whether a server votes, as it stands in the record of its birth.
fn votes(server: &Redis) -> Result<bool, Failure> {
    let Some((run, since, quarantine)) = birth(server)? else { return Ok(false) };
    if run != run_of(server)? {
        return Ok(false);
    }
    let time = server.command(&["TIME"])?;
    let [seconds, micros] = time.texts()?[..] else { return Err("no time".into()) };
    let now = seconds.parse::<u64>()? * 1_000_000 + micros.parse::<u64>()?;
    Ok(u128::from(now.saturating_sub(since)) >= quarantine.as_micros())
}

fn run_of(server: &Redis) -> Result<String, Failure> {
    let info = server.command(&["INFO", "server"])?;
    let run = info.text()?.lines().find_map(|line| line.strip_prefix("run_id:")).ok_or("no run")?;
    Ok(run.to_owned())
}
