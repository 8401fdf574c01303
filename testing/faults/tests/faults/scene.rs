//! Several processes on one store, each with its part, and the history that they write.

use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_conformance::ask::Ask;
use leasehold_conformance::child::planted::Planted;
use leasehold_conformance::remote::{Pending, Remote};
use leasehold_faults::Failure;
use leasehold_faults::history::{Forgot, History, Hold, Promise, Stamp, Story, now};
use tempfile::TempDir;

use crate::Checked;

/// No client waits longer than this once the store is back and the lock is free: about a second, plus a margin for a
/// busy machine.
pub(crate) const AWAKE_WITHIN: Duration = Duration::from_secs(20);
/// How late something may be that must happen, before it counts as never.
const PATIENCE: Duration = Duration::from_secs(90);
/// Polling interval for changes without an event.
const LOOK: Duration = Duration::from_millis(10);
/// The lost signal may come this much later than it should, where four cases at a time have two processors and others use them too.
pub(crate) const TOLD_LATE: Duration = Duration::from_secs(5);
/// How long one that works holds a lock.
const MOMENT: Duration = Duration::from_millis(3);
/// As many turns as there is time for.
const MANY: u64 = u64::MAX;
/// How long one that holds on to it does.
const EVER: Duration = Duration::from_secs(3600);
/// How many processes work under one lock, with how many tasks each.
const CROWD: (usize, usize) = (3, 2);

/// The lock that one holds and one waits for.
pub(crate) const HELD: &str = "held";
/// The lock that goes from hand to hand.
const BUSY: &str = "busy";

/// A process on the stage.
pub(crate) struct Player {
    pub(crate) remote: Remote,
    records: Vec<Pending>,
}

/// The stage.
pub(crate) struct Scene {
    folder: TempDir,
    pub(crate) history: History,
    lease: Duration,
    pub(crate) holder: Player,
    pub(crate) waiter: Player,
    crowd: Vec<Player>,
}

impl Scene {
    /// One that holds a lock, one that waits for it, and several that work under another.
    pub(crate) async fn begin(url: &str, lease: Duration, bug: Planted) -> Result<Self, Failure> {
        Self::with_holder_at(url, url, lease, bug).await
    }

    /// The same, with a way of its own to the store for the one that holds.
    pub(crate) async fn with_holder_at(
        holders: &str,
        url: &str,
        lease: Duration,
        bug: Planted,
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let history = History::at(&folder.path().join("history"));
        let mut scene = Self {
            folder,
            history,
            lease,
            holder: Player::at(holders, bug)?,
            waiter: Player::at(url, if bug == Planted::FirstFence { bug } else { Planted::Nothing })?,
            crowd: Vec::new(),
        };
        let path = scene.path()?;
        scene.holder.record(&path, 1, EVER, &Ask::of(HELD).keep(lease))?;
        let holder = scene.holder.remote.who;
        scene.until("somebody holds it", |story| first(story, holder, 0).is_some()).await?;
        scene.waiter.record(&path, MANY, MOMENT, &Ask::of(HELD).keep(lease))?;
        for _ in 0..CROWD.0 {
            let mut player = Player::at(url, Planted::Nothing)?;
            for _ in 0..CROWD.1 {
                player.record(&path, MANY, MOMENT, &Ask::of(BUSY).keep(lease))?;
            }
            scene.crowd.push(player);
        }
        scene.crowd_works(0).await?;
        let client = Client::connect(url).await?;
        let began = Instant::now();
        while client.inspect(HELD).await?.waiters != Some(1) {
            if began.elapsed() > PATIENCE {
                return Err("nobody waits".into());
            }
            tokio::time::sleep(LOOK).await;
        }
        client.close().await?;
        Ok(scene)
    }

    fn path(&self) -> Result<String, Failure> {
        Ok(self.folder.path().join("history").to_str().ok_or("a path of UTF-8")?.to_owned())
    }

    /// The holder requests a lock that it has lost. Returns the time.
    pub(crate) fn holder_asks_again(&mut self) -> Result<Stamp, Failure> {
        let (at, path) = (now(), self.path()?);
        self.holder.record(&path, 1, MOMENT, &Ask::of(HELD).keep(self.lease))?;
        Ok(at)
    }

    /// That the holder has the lock again soon after a moment.
    pub(crate) async fn holder_has_it_again(&self, after: Stamp) -> Checked {
        self.has_it_soon("the one that lost it", self.holder.remote.who, after).await
    }

    /// Waits until the history shows it.
    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Story) -> bool) -> Result<Story, Failure> {
        let began = Instant::now();
        loop {
            let story = self.history.read()?;
            if so(&story) {
                return Ok(story);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{what}: not within {PATIENCE:?}").into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes down that the store forgot, from a moment until now.
    pub(crate) fn forgot(&self, from: Stamp, everything: bool) -> Result<Stamp, Failure> {
        let to = now();
        self.history.forgot(Forgot { from, to, everything })?;
        Ok(to)
    }

    /// That the one that waits has the lock soon after a moment.
    pub(crate) async fn waiter_has_it(&self, after: Stamp) -> Checked {
        self.has_it_soon("the one that waits", self.waiter.remote.who, after).await
    }

    /// Checks that every worker is granted its lock soon after a moment.
    pub(crate) async fn crowd_works(&self, after: Stamp) -> Checked {
        for player in &self.crowd {
            self.has_it_soon("one that works", player.remote.who, after).await?;
        }
        Ok(())
    }

    /// That a process is granted a lock soon after a moment; at the beginning, whenever it comes.
    async fn has_it_soon(&self, which: &str, who: u64, after: Stamp) -> Checked {
        let story = self.until(which, |story| first(story, who, after).is_some()).await?;
        let slept = first(&story, who, after).map_or(0, |hold| hold.granted - after);
        let slept = Duration::from_nanos(slept);
        if after > 0 && slept > AWAKE_WITHIN {
            return Err(format!("{which} slept for {slept:?} after the store was back").into());
        }
        Ok(())
    }

    /// That the holder has kept its lock so far.
    pub(crate) fn holder_has_kept_it(&self) -> Checked {
        let story = self.history.read()?;
        let holds: Vec<&Hold> = story.all().filter(|hold| hold.name == HELD).collect();
        match holds.as_slice() {
            [hold] if hold.told.is_none() => Ok(()),
            other => Err(format!("the holder has lost its lock: {other:?}").into()),
        }
    }

    /// Checks that the holder was notified of the loss.
    pub(crate) async fn holder_is_told(&self) -> Checked {
        let who = self.holder.remote.who;
        let told = |story: &Story| first(story, who, 0).is_some_and(|hold| hold.told.is_some());
        self.until("the holder is told", told).await.map(drop)
    }

    /// The holder releases its lock. Returns the time of the command.
    pub(crate) async fn holder_goes(&mut self) -> Result<Stamp, Failure> {
        let at = now();
        self.holder.ends().await?;
        Ok(at)
    }

    /// All processes end, and what they saw is checked. Returns the history.
    pub(crate) async fn end(mut self) -> Result<Story, Failure> {
        for player in [&mut self.holder, &mut self.waiter].into_iter().chain(&mut self.crowd) {
            player.ends().await?;
        }
        let story = self.history.read()?;
        // A third of the lease until the next renewal, and the time to find out.
        let known_within = self.lease / 3 + TOLD_LATE;
        story.check(Promise { known_within, told_late: TOLD_LATE })?;
        Ok(story)
    }
}

impl Player {
    fn at(url: &str, bug: Planted) -> Result<Self, Failure> {
        Ok(Self { remote: Remote::at(url, bug)?, records: Vec::new() })
    }

    /// This many turns of this length.
    fn record(&mut self, path: &str, turns: u64, span: Duration, ask: &Ask) -> Checked {
        let (turns, span) = (turns.to_string(), span.as_nanos().to_string());
        let words: Vec<&str> =
            ["record", path, &turns, &span].into_iter().chain(ask.words().iter().map(String::as_str)).collect();
        self.records.push(self.remote.begin(&words)?);
        Ok(())
    }

    async fn ends(&mut self) -> Checked {
        self.remote.ask(&["enough"]).await?.must_be(&["enough"])?;
        for record in self.records.drain(..) {
            let answer = tokio::time::timeout(PATIENCE, record).await??;
            if answer.words().first() != Some(&"recorded") {
                return Err(format!("it did not record: {:?}", answer.words()).into());
            }
        }
        Ok(())
    }
}

/// The first lock that a process was granted after a moment.
fn first(story: &Story, who: u64, after: Stamp) -> Option<&Hold> {
    story.all().filter(|hold| hold.who == who && hold.granted > after).min_by_key(|hold| hold.granted)
}
