//! A number in a file that nothing but the lock protects: several workers on each side add to it, and none of their steps may get lost.

use std::io::Write;
use std::time::Duration;

use serde::Deserialize;
use tempfile::NamedTempFile;

use super::LONG;
use crate::Failure;
use crate::driver::Driver;
use crate::encounter::Meeting;

/// On each side.
const WORKERS: usize = 4;
const UNPROTECTED: Duration = Duration::from_millis(500);
const PROTECTED: Duration = Duration::from_secs(3);

pub(super) fn exact(meeting: &mut Meeting) -> Result<String, Failure> {
    let without = count(meeting, "-", UNPROTECTED)?;
    if without.counted >= without.ours + without.theirs {
        return Err("no step gets lost without a lock either: this shows nothing".into());
    }
    let key = meeting.key("counter");
    let with = count(meeting, &key, PROTECTED)?;
    let told = with.ours + with.theirs;
    if with.counted != told {
        return Err(format!("{told} steps were made, {} were counted", with.counted).into());
    }
    if with.ours == 0 || with.theirs == 0 {
        return Err(format!("one side had no turn: {} and {}", with.ours, with.theirs).into());
    }
    Ok(format!("exact: {} + {}", with.ours, with.theirs))
}

struct Counts {
    ours: u64,
    theirs: u64,
    /// The number in the file.
    counted: u64,
}

fn count(meeting: &mut Meeting, key: &str, span: Duration) -> Result<Counts, Failure> {
    let mut file = NamedTempFile::new()?;
    write!(file, "{:012}", 0)?;
    let path = file.path().to_str().ok_or("a folder with a strange name")?.to_owned();
    begin(&mut meeting.ours, key, &path, span)?;
    begin(&mut meeting.theirs, key, &path, span)?;
    let (ours, theirs) = (end(&mut meeting.ours, span)?, end(&mut meeting.theirs, span)?);
    Ok(Counts { ours, theirs, counted: std::fs::read_to_string(&path)?.parse()? })
}

fn begin(driver: &mut Driver, key: &str, path: &str, span: Duration) -> Result<(), Failure> {
    let name = if key == "-" { key.to_owned() } else { driver.peer.name_of(key)? };
    // Kept where that is how the library is used; a lease that outlasts the case for the rest.
    let lease = if driver.peer.layout == "redisson" || driver.peer.name == "leasehold" { Duration::ZERO } else { LONG };
    driver.tell(&format!("count {name} {path} {} {WORKERS} {}", span.as_millis(), lease.as_millis()))
}

fn end(driver: &mut Driver, span: Duration) -> Result<u64, Failure> {
    #[derive(Deserialize)]
    struct Counted {
        count: u64,
    }
    Ok(driver.answer::<Counted>(span)?.count)
}
