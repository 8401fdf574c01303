//! The one error: what happened, on which store and lock, whether it took effect, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::name::Name;

/// What went wrong, for a program to branch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong: a name, a duration, a URL, an option. Nothing was sent.
    BadArgument,
    /// The store could not be reached or did not answer in time.
    Unreachable,
    /// Too few servers of a quorum answered.
    NoQuorum,
    /// The store was reached but cannot keep this lock: wrong type of key, no rights, damaged or newer file, not supported there.
    Unfit,
    /// The lease was lost: its time ended, or the store no longer has it.
    Lost,
    /// The caller does not hold the lock.
    NotHolder,
    /// This owner already holds one of the names that were to be taken together, and not all of them; or all, in this very client.
    AlreadyHeld,
    /// The client was closed.
    Closed,
    /// The process was forked after the client was made; the child must connect again.
    Forked,
    /// A bug of ours.
    Internal,
}

/// Whether a call took effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Outcome {
    /// It took effect.
    Applied,
    /// It did not, and will not.
    NotApplied,
    /// Nobody knows: the answer was lost. It may even take effect later, until its `not_after`.
    Unknown,
}

/// The error of every operation.
///
/// It never shows credentials: stores are named by their label.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    operation: &'static str,
    message: String,
    store: Option<Arc<str>>,
    lock: Option<Name>,
    hint: Option<&'static str>,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    failures: Vec<Error>,
}

impl Error {
    /// An error of `kind` in `operation` that had no effect.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            outcome: Outcome::NotApplied,
            operation,
            message: message.into(),
            store: None,
            lock: None,
            hint: None,
            retry_after: None,
            source: None,
            failures: Vec::new(),
        }))
    }

    /// Several things that were done together failed, or one of them: that one's error. None where nothing failed.
    ///
    /// The kind is that of the gravest, the outcome unknown where one of them is; each is in [`Error::failures`].
    pub fn of_several(operation: &'static str, failures: impl IntoIterator<Item = Self>) -> Option<Self> {
        let each = |failure: Self| if failure.failures().is_empty() { vec![failure] } else { failure.0.failures };
        let mut failures: Vec<Self> = failures.into_iter().flat_map(each).collect();
        if failures.len() < 2 {
            return failures.pop();
        }
        let gravest = failures.iter().min_by_key(|failure| (failure.kind() != ErrorKind::Lost) as u8)?;
        let unknown = failures.iter().any(|failure| failure.outcome() == Outcome::Unknown);
        let outcome = if unknown { Outcome::Unknown } else { gravest.outcome() };
        let said: Vec<String> = failures.iter().map(Self::to_string).collect();
        let what = format!("{} failures: {}", said.len(), said.join("; "));
        let mut error = Self::new(gravest.kind(), operation, what).with_outcome(outcome);
        error.0.failures = failures;
        Some(error)
    }

    /// Sets whether it took effect.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// Sets what was being done.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        self.0.operation = operation;
        self
    }

    /// Names the store, by a label without credentials.
    #[must_use]
    pub fn on_store(mut self, label: &Arc<str>) -> Self {
        self.0.store.get_or_insert_with(|| label.clone());
        self
    }

    /// Names the lock.
    #[must_use]
    pub fn on_lock(mut self, name: &Name) -> Self {
        self.0.lock.get_or_insert_with(|| name.clone());
        self
    }

    /// Names the lock, where it is known.
    #[must_use]
    pub fn on_lock_if(self, name: Option<&Name>) -> Self {
        match name {
            Some(name) => self.on_lock(name),
            None => self,
        }
    }

    /// Says what to try.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.0.hint = Some(hint);
        self
    }

    /// Says in how long the same call may succeed.
    #[must_use]
    pub fn with_retry_after(mut self, left: Option<Duration>) -> Self {
        self.0.retry_after = left;
        self
    }

    /// Keeps the native error.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether it took effect.
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// What was being done.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// On which store, where one was involved.
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// On which lock, where one was involved.
    pub fn lock(&self) -> Option<&str> {
        self.0.lock.as_ref().map(Name::as_str)
    }

    /// Every failure by itself, where several things were done together and more than one of them failed; else none.
    pub fn failures(&self) -> &[Error] {
        &self.0.failures
    }

    /// What happened, without where and what to try.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to try, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        self.0.hint
    }

    /// In how long the same call may succeed, where the store answered and said so: of a quorum, when enough of its servers vote.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the same call may succeed later without a change on the caller's side.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unreachable | ErrorKind::NoQuorum)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        f.write_str(inner.operation)?;
        match (&inner.lock, &inner.store) {
            (Some(lock), Some(store)) => write!(f, " [lock {:?} on {store}]", lock.as_str())?,
            (Some(lock), None) => write!(f, " [lock {:?}]", lock.as_str())?,
            (None, Some(store)) => write!(f, " [{store}]")?,
            (None, None) => {}
        }
        write!(f, ": {}", inner.message)?;
        if inner.outcome == Outcome::Unknown {
            f.write_str("; it is not known whether it took effect")?;
        }
        if let Some(hint) = inner.hint {
            write!(f, "; hint: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("outcome", &self.0.outcome)
            .field("message", &format_args!("{self}"))
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.source.as_deref().map(|source| source as _);
        source.or_else(|| self.0.failures.first().map(|first| first as _))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_happened_where_and_what_to_try() {
        let error = Error::new(ErrorKind::Unreachable, "acquire", "no answer within 500 ms")
            .with_outcome(Outcome::Unknown)
            .on_store(&Arc::from("redis://host:6379"))
            .on_lock(&Name::new("a").unwrap())
            .with_hint("is the server up?")
            .with_source(std::io::Error::other("reset"));
        let text = error.to_string();
        for part in ["acquire", "500 ms", "\"a\"", "redis://host:6379", "not known", "hint: is the server up?"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(error.is_retryable());
        assert_eq!(error.source().unwrap().to_string(), "reset");
    }

    #[test]
    fn several_failures_are_each_told() {
        let lost = Error::new(ErrorKind::Lost, "release", "the lock was lost").on_lock(&Name::new("a").unwrap());
        let dead = Error::new(ErrorKind::Unreachable, "release", "no answer").with_outcome(Outcome::Unknown);
        assert!(Error::of_several("release", []).is_none());
        let one = Error::of_several("release", [dead.clone()]).unwrap();
        assert_eq!((one.kind(), one.failures().len()), (ErrorKind::Unreachable, 0));
        let both = Error::of_several("release", [dead, lost]).unwrap();
        assert_eq!((both.kind(), both.outcome(), both.failures().len()), (ErrorKind::Lost, Outcome::Unknown, 2));
        assert!(both.to_string().contains("no answer") && both.to_string().contains("the lock was lost"), "{both}");
    }

    #[test]
    fn each_part_is_told_as_it_was_given() {
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        let plain = Error::new(ErrorKind::Unfit, "acquire", "it is too old");
        assert_eq!((plain.store(), plain.lock(), plain.hint(), plain.failures().len()), (None, None, None, 0));
        assert_eq!(
            (plain.outcome(), plain.message(), plain.operation()),
            (Outcome::NotApplied, "it is too old", "acquire")
        );
        assert_eq!(plain.to_string(), "acquire: it is too old");
        assert!(plain.source().is_none());
        let told =
            plain.on_store(&Arc::from("x")).on_store(&Arc::from("y")).on_lock_if(None).on_lock_if(Some(&a)).on_lock(&b);
        assert_eq!((told.store(), told.lock()), (Some("x"), Some("a")), "who knew it first knows best");
        let told = told.during("renew").with_hint("try").with_outcome(Outcome::Applied);
        assert_eq!((told.operation(), told.hint(), told.outcome()), ("renew", Some("try"), Outcome::Applied));
        assert_eq!(told.to_string(), "renew [lock \"a\" on x]: it is too old; hint: try");
    }

    #[test]
    fn only_what_may_be_better_later_is_tried_again() {
        let retryable = |kind| Error::new(kind, "acquire", "").is_retryable();
        assert!(retryable(ErrorKind::Unreachable) && retryable(ErrorKind::NoQuorum));
        for kind in [ErrorKind::BadArgument, ErrorKind::Unfit, ErrorKind::Lost, ErrorKind::NotHolder, ErrorKind::Closed]
        {
            assert!(!retryable(kind), "{kind:?}");
        }
    }

    #[test]
    fn failures_of_failures_are_told_in_one_row() {
        let failure = |kind| Error::new(kind, "release", "no answer").with_source(std::io::Error::other("reset"));
        let two = Error::of_several("release", [failure(ErrorKind::Unreachable), failure(ErrorKind::Unfit)]).unwrap();
        assert_eq!((two.kind(), two.outcome()), (ErrorKind::Unreachable, Outcome::NotApplied));
        assert_eq!(two.source().unwrap().to_string(), two.failures()[0].to_string());
        let three = Error::of_several("release", [two, failure(ErrorKind::Lost)]).unwrap();
        assert_eq!((three.failures().len(), three.kind()), (3, ErrorKind::Lost));
        assert!(three.to_string().contains("3 failures"), "{three}");
    }
}
