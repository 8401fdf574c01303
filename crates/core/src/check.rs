//! What an examination of a store found: is it fit to keep locks?

use crate::error::ErrorKind;

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but something should be known or done.
    Warn,
    /// It cannot keep locks like this.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What was looked at, in a word or two: `permissions`, `clock`.
    pub check: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found, for people.
    pub found: String,
    /// What to do about it, where there is something.
    pub advice: Option<String>,
    /// The kind of error that it failed with, where it failed with one.
    pub error: Option<ErrorKind>,
}

impl Check {
    /// A check without advice.
    pub fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { check, verdict, found: found.into(), advice: None, error: None }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Says which kind of error it failed with.
    #[must_use]
    pub fn with_error(mut self, kind: ErrorKind) -> Self {
        self.error = Some(kind);
        self
    }
}
