//! What processes did under a lock, written down by themselves in one file, and checked: one at a time, under growing fences.
//!
//! A line is added in one write, so the order of lines is the order of what happened. The lock protects none of it.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::case::{Checked, Failure};

/// The file of one lock.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

/// When processes were killed, on the clock of the machine's boot: from then on, what they were doing is over.
pub type Killed = HashMap<u64, u64>;

/// A line: a process entered or left.
#[derive(Clone, Copy, Debug)]
struct Line {
    comes: bool,
    who: u64,
    fence: u64,
    at: u64,
}

impl Ledger {
    /// Of this file.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Records an entry.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn comes(&self, who: u64, fence: u64) -> Checked {
        self.add("in", who, fence)
    }

    /// Records an exit.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn goes(&self, who: u64, fence: u64) -> Checked {
        self.add("out", who, fence)
    }

    fn add(&self, what: &str, who: u64, fence: u64) -> Checked {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0)?;
        let line = format!("{what} {who} {fence} {}\n", leasehold_clock::now().as_nanos());
        Ok(file.write_all(line.as_bytes())?)
    }

    /// Checks that only one process was inside at a time, except for processes killed inside, and that each fence was
    /// larger than all before. Returns the number of entries.
    ///
    /// # Errors
    ///
    /// What was wrong.
    pub fn check(&self, killed: &Killed) -> Result<usize, Failure> {
        let text = std::fs::read_to_string(&self.0)?;
        let lines = text.lines().map(|line| read(line).ok_or(format!("no line of a ledger: {line:?}")));
        check(&lines.collect::<Result<Vec<Line>, String>>()?, killed)
    }
}

fn check(lines: &[Line], killed: &Killed) -> Result<usize, Failure> {
    let (mut inside, mut fence, mut times): (Option<Line>, u64, usize) = (None, 0, 0);
    for line in lines {
        match inside {
            None if !line.comes => return Err(format!("it went out and was not in: {line:?}").into()),
            Some(other) if line.comes && killed.get(&other.who).is_none_or(|at| *at > line.at) => {
                return Err(format!("two are inside: {other:?} and {line:?}").into());
            }
            Some(other) if !line.comes && (other.who, other.fence) != (line.who, line.fence) => {
                return Err(format!("it went out while another was inside: {line:?}, {other:?}").into());
            }
            _ => {}
        }
        if line.comes && line.fence <= fence {
            return Err(format!("the fence did not grow beyond {fence}: {line:?}").into());
        }
        fence = fence.max(line.fence);
        times += usize::from(line.comes);
        inside = line.comes.then_some(*line);
    }
    Ok(times)
}

fn read(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let [what, who, fence, at] = words.as_slice() else { return None };
    let (who, fence, at) = (who.parse().ok()?, fence.parse().ok()?, at.parse().ok()?);
    Some(Line { comes: *what == "in", who, fence, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(lines: &[&str], killed: &[(u64, u64)]) -> Result<usize, String> {
        let lines: Vec<Line> = lines.iter().map(|line| read(line).unwrap()).collect();
        check(&lines, &killed.iter().copied().collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_after_another_under_growing_fences() {
        assert_eq!(checked(&["in 1 5 0", "out 1 5 1", "in 2 6 2", "out 2 6 3"], &[]), Ok(2));
        assert!(checked(&["in 1 5 0", "out 1 5 1", "in 2 5 2"], &[]).unwrap_err().contains("did not grow"));
        assert!(checked(&["in 1 5 0", "in 2 6 2"], &[]).unwrap_err().contains("two are inside"));
        assert!(checked(&["in 1 5 0", "out 2 6 2"], &[]).unwrap_err().contains("another"));
        assert!(checked(&["out 1 5 0"], &[]).unwrap_err().contains("not in"));
    }

    #[test]
    fn who_was_killed_inside_is_out_from_then_on_and_not_before() {
        assert_eq!(checked(&["in 1 5 0", "in 2 6 9"], &[(1, 8)]), Ok(2));
        assert!(checked(&["in 1 5 0", "in 2 6 9"], &[(1, 10)]).is_err());
        assert!(checked(&["in 1 5 0", "in 2 6 9", "out 1 5 10"], &[(1, 8)]).is_err());
    }
}
