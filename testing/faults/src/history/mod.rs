//! What processes did with locks, written down by themselves in one file, on the clock of the machine's boot; and its checks.
//!
//! A stamp is evidence, whatever the machine does between two instructions. The stamp of a grant is taken after the
//! answer. The stamp of *valid* is taken before the guard was found valid; that of *untold*, before the loss signal was
//! found unset. So a holder was valid from its grant at least until its last such stamp, and a late check never blames
//! it for what it did not see.
//!
//! One file a check: [`exclusion`], [`fences`], [`lost_before`], [`loss_signals`].

pub mod exclusion;
pub mod fences;
pub mod loss_signals;
pub mod lost_before;
mod wait_order;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Failure;

/// Nanoseconds on the clock of the machine's boot.
pub type Stamp = u64;

/// Now.
pub fn now() -> Stamp {
    leasehold_clock::now().as_nanos()
}

/// The file of one history. It is written by several processes, a line in one write.
#[derive(Clone, Debug)]
pub struct History(PathBuf);

/// A granted lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The process.
    pub who: u64,
    /// The lock.
    pub name: String,
    /// Its fence.
    pub fence: u64,
    /// When it was requested.
    pub asked: Stamp,
    /// When its grant had been answered.
    pub granted: Stamp,
    /// When it was still valid, at last.
    pub valid: Option<Stamp>,
    /// The last time when its loss had not been signalled.
    pub untold: Option<Stamp>,
    /// When its loss was signalled.
    pub told: Option<Stamp>,
}

/// Something that the store forgot, on purpose of the test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgot {
    /// Not before.
    pub from: Stamp,
    /// Not after: from here on it answers again.
    pub to: Stamp,
    /// Everything; otherwise what is younger than a copy.
    pub everything: bool,
}

/// What is promised of a history.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// After the store lost its data: the longest time until every holder knows, or its lease is over.
    pub known_within: Duration,
    /// How much later than it should the lost signal may come, where the machine has no time for the thread that gives it.
    pub told_late: Duration,
}

/// What a history has.
#[derive(Default, Debug)]
pub struct Story {
    /// By name, in the order of [`Hold::granted`].
    pub holds: BTreeMap<String, Vec<Hold>>,
    /// In the order of time.
    pub forgot: Vec<Forgot>,
}

impl History {
    /// In this file.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Writes that a lock was granted: once when it was, and once more when it ends, with what was seen meanwhile.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn hold(&self, hold: &Hold) -> Result<(), Failure> {
        self.add(&wait_order::of_hold(hold))
    }

    /// Writes that the store forgot something.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn forgot(&self, forgot: Forgot) -> Result<(), Failure> {
        self.add(&wait_order::of_forgot(forgot))
    }

    fn add(&self, line: &str) -> Result<(), Failure> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0)?;
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Reads it, as far as it is written.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or has lines that are none.
    pub fn read(&self) -> Result<Story, Failure> {
        if !self.0.exists() {
            return Ok(Story::default());
        }
        let text = std::fs::read_to_string(&self.0)?;
        // What another process is about to write ends without its end.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        Story::read(whole)
    }

    /// Checks everything that is promised. Answers how many locks were granted.
    ///
    /// # Errors
    ///
    /// What was wrong.
    pub fn check(&self, promise: Promise) -> Result<usize, Failure> {
        let story = self.read()?;
        story.check(promise)?;
        Ok(story.grants())
    }
}

impl Story {
    fn read(text: &str) -> Result<Self, Failure> {
        let (mut holds, mut forgot) = (BTreeMap::new(), Vec::new());
        for line in text.lines() {
            match wait_order::read(line).ok_or_else(|| format!("no line of a history: {line:?}"))? {
                // The later line of a hold has all that the first has.
                wait_order::Line::Hold(hold) => drop(holds.insert((hold.who, hold.name.clone(), hold.granted), hold)),
                wait_order::Line::Forgot(what) => forgot.push(what),
            }
        }
        let mut story = Self { holds: BTreeMap::new(), forgot };
        for hold in holds.into_values() {
            story.holds.entry(hold.name.clone()).or_default().push(hold);
        }
        for holds in story.holds.values_mut() {
            holds.sort_by_key(|hold| hold.granted);
        }
        Ok(story)
    }

    /// How many locks were granted.
    pub fn grants(&self) -> usize {
        self.holds.values().map(Vec::len).sum()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values().flatten()
    }

    /// Checks everything that is promised.
    ///
    /// # Errors
    ///
    /// What was wrong.
    pub fn check(&self, promise: Promise) -> Result<(), Failure> {
        for holds in self.holds.values() {
            loss_signals::check(holds, &self.forgot, promise)?;
            exclusion::check(holds, &self.forgot, promise)?;
            fences::check(holds, &self.forgot, promise)?;
            lost_before::check(holds, &self.forgot, promise)?;
        }
        Ok(())
    }
}

impl Forgot {
    /// Whether a moment is in the time where locks of before it may still be believed in.
    fn is_unsure(&self, at: Stamp, promise: Promise) -> bool {
        self.from <= at && at <= self.sure_from(promise)
    }

    fn sure_from(&self, promise: Promise) -> Stamp {
        self.to + nanos(promise.known_within)
    }
}

/// Whether the store had forgotten something not long before this moment, so that two may believe that they hold the lock.
fn is_unsure(at: Stamp, forgot: &[Forgot], promise: Promise) -> bool {
    forgot.iter().any(|forgot| forgot.is_unsure(at, promise))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
