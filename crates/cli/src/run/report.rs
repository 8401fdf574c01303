//! `--report`: the result of a run as JSON, to tell a command's own exit code from ours.

use std::io;

use leasehold::GroupGuard;
use serde::Serialize;

use super::destination::Destination;
use super::message::Ended;
use super::runner::Why;
use crate::exit::{Exit, Failure};
use crate::output;

const LOST: &str = "lost";
/// Above this, a number is not exact in every JSON reader.
const EXACT_MAX: u64 = 1 << 53;

/// Result of a run. Unknown values are null.
#[derive(Serialize, Debug, Default)]
pub(crate) struct Report {
    /// The lock; several as they were given, in order.
    pub(crate) name: String,
    pub(crate) store: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence_text: Option<String>,
    /// Every lock, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) locks: Vec<NameAndFence>,
    pub(crate) waited_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    /// `done`, `busy`, `lost`, `not_started`, `signal`, `unreachable`, `unfit`, `usage`, `bug`.
    pub(crate) outcome: &'static str,
    /// Why it was lost: `time_ended`, `gone`, `broken`, `no_guardian`.
    pub(crate) reason: Option<&'static str>,
    pub(crate) child_code: Option<u8>,
    pub(crate) child_signal: Option<u8>,
    /// The exit code of this process.
    pub(crate) exit_code: u8,
    pub(crate) message: Option<String>,
}

/// One of several locks.
#[derive(Serialize, Debug)]
pub(crate) struct NameAndFence {
    pub(crate) name: String,
    pub(crate) fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence_text: Option<String>,
}

impl NameAndFence {
    pub(crate) fn new(name: String, fence: u64) -> Self {
        Self { name, fence, fence_text: text(fence) }
    }
}

fn text(fence: u64) -> Option<String> {
    (fence > EXACT_MAX).then(|| fence.to_string())
}

impl Report {
    /// Of these names, as given.
    pub(crate) fn of(names: &str) -> Self {
        Self { name: names.to_owned(), ..Self::default() }
    }

    /// The fences of a grant, in the order of names.
    fn granted(&mut self, mut locks: Vec<NameAndFence>) {
        self.fence = locks.first().map(|lock| lock.fence);
        self.fence_text = self.fence.and_then(text);
        if locks.len() == 1 {
            locks.clear();
        }
        self.locks = locks;
    }

    /// The lock was granted.
    pub(crate) fn took(&mut self, guard: &GroupGuard) {
        self.owner = Some(guard.guards()[0].owner().to_string());
        self.granted(guard.fences().map(|(name, fence)| NameAndFence::new(name.to_string(), fence.get())).collect());
    }

    /// The lock was lost, or would have been.
    pub(crate) fn lost(&mut self, why: Why) {
        self.outcome = LOST;
        self.reason = Some(match why {
            Why::TimeEnded | Why::MaxHold => "time_ended",
            Why::NoGuardian => "no_guardian",
            Why::Lost => "gone",
            Why::Broken => "broken",
        });
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.outcome == LOST
    }

    /// Sets the exit code.
    pub(crate) fn conclude(&mut self, done: &Result<Exit, Failure>) {
        let (exit, message) = match done {
            Ok(exit) => (*exit, None),
            Err(failure) => (failure.exit, Some(failure.message.clone())),
        };
        (self.exit_code, self.message) = (exit.code(), message);
        if self.outcome.is_empty() {
            self.outcome = match exit {
                Exit::USAGE => "usage",
                Exit::UNREACHABLE => "unreachable",
                Exit::UNFIT => "unfit",
                exit if exit.code() > 128 => "signal",
                _ => "bug",
            };
        }
    }

    /// How the command ended.
    pub(crate) fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Code(code) => self.child_code = Some(code),
            Ended::Signal(number) => self.child_signal = Some(number),
        }
    }

    /// Writes it to its destination.
    pub(crate) fn write(&self, to: Destination) -> io::Result<()> {
        let mut json = output::json_bytes(self)?;
        json.push(b'\n');
        to.write(&json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null_and_a_large_fence_has_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        let mut report = Report { name: "a".into(), outcome: "done", ..Report::default() };
        report.granted(vec![NameAndFence::new("a".into(), EXACT_MAX + 1)]);
        report.ended(Ended::Code(75));
        report.write(Destination::new(&file).unwrap()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(json["child_code"], 75);
        assert_eq!(json["fence_text"], (EXACT_MAX + 1).to_string());
        assert!(json["held_ms"].is_null() && json.get("locks").is_none());
    }
}
