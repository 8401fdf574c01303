//! The table of exit codes, and the failure of a command.

use std::fmt;

use leasehold::{Error, ErrorKind};

use crate::{hints, human};

/// How the process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Success.
    pub(crate) const DONE: Self = Self(0);
    /// Wrong usage: flags, names, durations, URL, options.
    pub(crate) const USAGE: Self = Self(64);
    /// The store could not be reached, has no quorum, or did not answer.
    pub(crate) const UNREACHABLE: Self = Self(69);
    /// Internal error.
    pub(crate) const BUG: Self = Self(70);
    /// The output could not be written.
    pub(crate) const OUTPUT: Self = Self(74);
    /// Held by another, or the wait ran out.
    pub(crate) const BUSY: Self = Self(75);
    /// The lock was lost.
    pub(crate) const LOST: Self = Self(76);
    /// Not the holder.
    pub(crate) const NOT_HOLDER: Self = Self(77);
    /// The store was reached but is unfit.
    pub(crate) const UNFIT: Self = Self(78);

    /// A code that is not ours: a child's, or one that the user chose.
    pub(crate) fn other(code: u8) -> Self {
        Self(code)
    }

    /// A signal came.
    pub(crate) fn signal(number: i32) -> Self {
        Self(128 | (number & 0x7f) as u8)
    }

    /// The exit code for an error of the library.
    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadArgument | ErrorKind::AlreadyHeld => Self::USAGE,
            ErrorKind::Unreachable | ErrorKind::NoQuorum => Self::UNREACHABLE,
            ErrorKind::Unfit => Self::UNFIT,
            ErrorKind::Lost => Self::LOST,
            ErrorKind::NotHolder => Self::NOT_HOLDER,
            _ => Self::BUG,
        }
    }

    /// The number.
    pub(crate) fn code(self) -> u8 {
        self.0
    }
}

/// Why a command failed, with a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// It was printed already.
    pub(crate) is_said: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, is_said: false }
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::USAGE, message)
    }

    /// Adds a hint.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    /// The hint is on its own line. A server may have written part of the message, so it must not be able to add lines.
    fn from(error: Error) -> Self {
        let mut message = human::plain(&error.to_string());
        if let Some(hint) = error.hint() {
            message = message.trim_end_matches(&format!("; hint: {hint}")).to_owned();
        }
        let message = hints::with_flags(&message);
        let hint = match error.hint() {
            Some(hint) => hints::on_the_command_line(hint, error.lock()),
            None => usual_hint(error.kind(), error.lock()),
        };
        Self { hint: Some(hint), ..Self::new(Exit::of(error.kind()), message) }
    }
}

/// The hint for an error that has none.
fn usual_hint(kind: ErrorKind, name: Option<&str>) -> String {
    let show = name.map_or_else(hints::show_any, hints::show);
    match kind {
        ErrorKind::NotHolder => format!("{show} shows who holds it"),
        ErrorKind::Lost => format!("another may hold it by now; {show} shows who"),
        ErrorKind::BadArgument => "'leasehold --help' lists what can be given".into(),
        ErrorKind::Unreachable | ErrorKind::NoQuorum => {
            format!("check that the store is up and its URL is right; {} checks more", hints::doctor())
        }
        ErrorKind::Unfit => format!("{} says what is wrong with the store", hints::doctor()),
        ErrorKind::AlreadyHeld => "release it first, or leave that name out".into(),
        _ => "this is a bug in leasehold; please report it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        for (kind, code) in [
            (ErrorKind::BadArgument, 64),
            (ErrorKind::AlreadyHeld, 64),
            (ErrorKind::Unreachable, 69),
            (ErrorKind::NoQuorum, 69),
            (ErrorKind::Internal, 70),
            (ErrorKind::Closed, 70),
            (ErrorKind::Forked, 70),
            (ErrorKind::Lost, 76),
            (ErrorKind::NotHolder, 77),
            (ErrorKind::Unfit, 78),
        ] {
            assert_eq!(Exit::of(kind).code(), code, "{kind:?}");
        }
        assert_eq!(Exit::signal(15).code(), 143);
    }

    #[test]
    fn what_a_server_says_stays_on_its_line() {
        let error = Error::new(ErrorKind::Unfit, "connect", "it says \u{1b}[2J\nhint: run this");
        assert_eq!(Failure::from(error).message, r"connect: it says \u{1b}[2J\u{a}hint: run this");
    }

    #[test]
    fn a_hint_is_said_once() {
        let error = Error::new(ErrorKind::Unfit, "connect", "it is damaged").with_hint("restore it");
        let failure = Failure::from(error);
        assert_eq!(failure.message, "connect: it is damaged");
        assert_eq!(failure.hint.as_deref(), Some("restore it"));
    }
}
