//! What a worker of `crowd` reports on its standard output: one message per line.

use std::fmt;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WorkerReport {
    /// Connected, and waiting for the start.
    Ready,
    /// Number of operations so far.
    Ops(u64),
    /// Number of operations that took this long.
    Took { nanos: u64, count: u64 },
    /// Number of handoffs from another process that took this long.
    HandOff { nanos: u64, count: u64 },
    /// Number of errors, with the exit code and message of the first.
    Errors { count: u64, exit: u8, first: String },
    /// Number of calls to the store.
    Calls(u64),
    /// Everything is reported; how long the work took.
    Done { nanos: u64 },
}

impl WorkerReport {
    /// Parses a line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let word = words.next()?;
        let rest: Vec<&str> = words.collect();
        let number = |index: usize| rest.get(index)?.parse().ok();
        Some(match word {
            "ready" => Self::Ready,
            "ops" => Self::Ops(number(0)?),
            "took" => Self::Took { nanos: number(0)?, count: number(1)? },
            "hand-off" => Self::HandOff { nanos: number(0)?, count: number(1)? },
            "errors" => Self::Errors {
                count: number(0)?,
                exit: rest.get(1)?.parse().ok()?,
                first: (*rest.get(2).unwrap_or(&"")).to_owned(),
            },
            "calls" => Self::Calls(number(0)?),
            "done" => Self::Done { nanos: number(0)? },
            _ => return None,
        })
    }
}

impl fmt::Display for WorkerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Ops(count) => write!(f, "ops {count}"),
            Self::Took { nanos, count } => write!(f, "took {nanos} {count}"),
            Self::HandOff { nanos, count } => write!(f, "hand-off {nanos} {count}"),
            Self::Errors { count, exit, first } => write!(f, "errors {count} {exit} {}", first.replace('\n', " ")),
            Self::Calls(count) => write!(f, "calls {count}"),
            Self::Done { nanos } => write!(f, "done {nanos}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for said in [
            WorkerReport::Ready,
            WorkerReport::Ops(7),
            WorkerReport::Took { nanos: 1, count: 2 },
            WorkerReport::HandOff { nanos: 3, count: 4 },
            WorkerReport::Errors { count: 2, exit: 69, first: "the store is away".into() },
            WorkerReport::Calls(9),
            WorkerReport::Done { nanos: 5 },
        ] {
            assert_eq!(WorkerReport::parse(&said.to_string()), Some(said));
        }
        for wrong in ["", "steady", "ops", "took 1", "ops many"] {
            assert_eq!(WorkerReport::parse(wrong), None, "{wrong}");
        }
    }
}
