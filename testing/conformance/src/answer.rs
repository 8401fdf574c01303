//! The answer of another process: words, and when the command began and ended, on the clock of the machine's boot.

use std::time::Duration;

use crate::case::{Checked, Failure};

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it began.
    pub began: u64,
    /// When it was done.
    pub ended: u64,
    words: Vec<String>,
}

impl Answer {
    /// From a line: a number, two times, words.
    pub fn read(line: &str) -> Option<(u64, Self)> {
        let mut parts = line.split('\t');
        let mut number = || parts.next()?.parse().ok();
        let (order, began, ended) = (number()?, number()?, number()?);
        Some((order, Self { began, ended, words: parts.map(str::to_owned).collect() }))
    }

    /// Its words.
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// The fence, where a lock was granted.
    ///
    /// # Errors
    ///
    /// Where it was not.
    pub fn fence(&self) -> Result<u64, Failure> {
        match self.words().as_slice() {
            ["granted", fence] => Ok(fence.parse()?),
            _ => Err(format!("not granted: {:?}", self.words).into()),
        }
    }

    /// Whether it is these words.
    pub fn is(&self, words: &[&str]) -> bool {
        self.words == words
    }

    /// That it is these words.
    ///
    /// # Errors
    ///
    /// Where it is not.
    pub fn must_be(&self, words: &[&str]) -> Checked {
        if self.is(words) { Ok(()) } else { Err(format!("{:?} instead of {words:?}", self.words).into()) }
    }

    /// How long after a moment it was done.
    pub fn after(&self, moment: u64) -> Duration {
        Duration::from_nanos(self.ended.saturating_sub(moment))
    }
}
