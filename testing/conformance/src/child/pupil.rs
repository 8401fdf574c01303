//! The commands of such a process, and the locks that it holds.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{Attempt, Client, GroupGuard};
use tokio::sync::watch;

use super::planted::Planted;
use super::{fork, recorded, work};
use crate::ask::{Ask, attempt};
use crate::case::Failure;
use crate::chaos::Chaos;

/// Polling interval for changes without an event.
const LOOK: Duration = Duration::from_millis(1);

/// Its client, and the guards that it has, each under a word.
pub(super) struct Pupil {
    pub(super) client: Client,
    /// Counts its calls.
    chaos: Chaos,
    pub(super) who: u64,
    pub(super) bug: Planted,
    guards: Mutex<HashMap<String, GroupGuard>>,
    /// Whether what it records is to end.
    pub(super) enough: watch::Sender<bool>,
}

type Said = Result<String, Failure>;

impl Pupil {
    pub(super) fn new(client: Client, chaos: Chaos, who: u64, bug: Planted) -> Self {
        Self { client, chaos, who, bug, guards: Mutex::default(), enough: watch::Sender::new(false) }
    }

    fn guards(&self) -> MutexGuard<'_, HashMap<String, GroupGuard>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self, slot: &str) -> Result<GroupGuard, Failure> {
        self.guards().remove(slot).ok_or_else(|| format!("nothing is held under {slot:?}").into())
    }

    /// Hears of a command before it is done, in the order of commands.
    pub(super) fn hear(&self, line: &str) {
        if line.contains("\ttake\t") {
            self.chaos.expect_asking();
        }
    }

    /// Executes a command.
    pub(super) async fn perform(&self, words: &[&str]) -> Said {
        match words {
            ["ready"] => Ok("ready".into()),
            ["take", slot, ask @ ..] => self.take(slot, ask).await,
            ["release", slot] => self.release(slot).await,
            ["extend", slot, nanos] => self.extend(slot, nanos).await,
            ["drop", slot] => self.taken(slot).map(|_| "dropped".into()),
            ["look", slot] => self.look(slot),
            ["lost", slot] => self.lost(slot).await,
            ["asleep", name] => self.asleep(name).await,
            ["only when told"] => {
                self.chaos.only_when_told();
                Ok("only when told".into())
            }
            ["close"] => Ok(self.client.close().await.map(|()| "closed".into())?),
            ["fork", slot, how] => {
                let guards = self.guards();
                let guard = guards.get(*slot).ok_or("nothing is held")?;
                fork::beside(&self.client, &guard.guards()[0], *how == "stay")
            }
            ["count", name, folder, times] => work::count(self, name, folder, times.parse()?).await,
            ["turn", folder, ask @ ..] => work::turn(self, folder, ask).await,
            ["work", name, folder] => work::for_ever(self, name, folder).await,
            ["record", history, turns, nanos, ask @ ..] => {
                recorded::record(self, history, turns.parse()?, nanos, ask).await
            }
            ["enough"] => {
                self.enough.send_replace(true);
                Ok("enough".into())
            }
            ["drops", name, times, seed] => work::drops(self, name, times.parse()?, seed.parse()?).await,
            _ => Err(format!("there is no such command: {words:?}").into()),
        }
    }

    async fn take(&self, slot: &str, ask: &[&str]) -> Said {
        let (lock, limit) = Ask::read(&self.client, ask)?;
        match attempt(&lock, limit).await? {
            Attempt::Granted(guard) => {
                let said = format!("granted\t{}", guard.guards()[0].fence());
                self.guards().insert(slot.to_owned(), guard);
                Ok(said)
            }
            Attempt::Busy(_) => Ok("busy".into()),
        }
    }

    async fn release(&self, slot: &str) -> Said {
        let released = self.taken(slot)?.release().await;
        if self.bug == Planted::Believes {
            return Ok("released".into());
        }
        Ok(released.map(|()| "released".into())?)
    }

    /// The guard is out of the way while it is extended.
    async fn extend(&self, slot: &str, nanos: &str) -> Said {
        let guard = self.taken(slot)?;
        let extended = guard.extend(Duration::from_nanos(nanos.parse()?)).await;
        self.guards().insert(slot.to_owned(), guard);
        Ok(extended.map(|()| "extended".into())?)
    }

    /// How many nanoseconds are left to it; none: it may not act.
    fn look(&self, slot: &str) -> Said {
        let guards = self.guards();
        let guard = guards.get(slot).ok_or("nothing is held")?;
        Ok(match guard.time_left() {
            Some(left) => format!("valid\t{}", left.as_nanos()),
            None if self.bug == Planted::Believes => format!("valid\t{}", u32::MAX),
            None => "invalid".into(),
        })
    }

    /// Waits until the pending lock was requested, subscribed to and requested again; then the store has answered.
    async fn asleep(&self, name: &str) -> Said {
        let hints = self.client.capability().hints;
        while !if hints { self.chaos.asked_while_watching() } else { self.chaos.total() > 0 } {
            tokio::time::sleep(LOOK).await;
        }
        self.client.inspect(name).await?;
        Ok("asleep".into())
    }

    async fn lost(&self, slot: &str) -> Said {
        let signal = self.guards().get(slot).ok_or("nothing is held")?.lost_signal();
        Ok(match signal.wait().await {
            Some(loss) => format!("lost\t{loss:?}"),
            None => "kept".into(),
        })
    }
}
