//! What a worker of `crowd` tells over its standard output: one thing a line.

use std::fmt;

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Connected; waits for the start.
    Ready,
    /// So many operations so far.
    Ops(u64),
    /// So many operations took so many nanoseconds.
    Took { nanos: u64, count: u64 },
    /// So many hand-offs from another process took so many nanoseconds.
    HandOff { nanos: u64, count: u64 },
    /// So many errors, and which exit code and message the first one has.
    Errors { count: u64, exit: u8, first: String },
    /// So many calls to the store.
    Calls(u64),
    /// All was told, and the work took so many nanoseconds.
    Done { nanos: u64 },
}

impl Said {
    /// Reads a line.
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

impl fmt::Display for Said {
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
            Said::Ready,
            Said::Ops(7),
            Said::Took { nanos: 1, count: 2 },
            Said::HandOff { nanos: 3, count: 4 },
            Said::Errors { count: 2, exit: 69, first: "the store is away".into() },
            Said::Calls(9),
            Said::Done { nanos: 5 },
        ] {
            assert_eq!(Said::parse(&said.to_string()), Some(said));
        }
        for wrong in ["", "steady", "ops", "took 1", "ops many"] {
            assert_eq!(Said::parse(wrong), None, "{wrong}");
        }
    }
}
