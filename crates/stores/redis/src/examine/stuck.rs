//! Locks without an expiry, of leasehold, Redisson or the plain recipe: they are never free again.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Name, Verdict};
use redis::Cmd;

use crate::config::Layout;
use crate::list;
use crate::reply::Parts;
use crate::store::Inner;

/// A scan of a large server stops after this time.
const SCAN_LIMIT: Duration = Duration::from_secs(3);
/// Number of keys that one step of a scan visits.
const KEYS_PER_STEP: usize = 1_000;
/// Maximum number of locks inspected in one call.
const LOCKS_PER_CALL: usize = 200;
/// Maximum number of names that are shown.
const SHOWN_NAMES_MAX: usize = 5;

/// Scans the keys, within a time limit.
pub(super) async fn check(inner: &Inner) -> Result<Check, Error> {
    const CHECK: &str = "without expiry";
    let (names, all) = match scan(inner).await {
        Err(error) if error.kind() == ErrorKind::Unfit => {
            let advice = "give this user +scan, so that locks without an expiry can be found";
            return Ok(Check::new(CHECK, Verdict::Warn, "not checked: SCAN is not allowed").with_advice(advice));
        }
        scanned => scanned?,
    };
    let names: Vec<Name> = names.into_iter().collect();
    let mut stuck = Vec::new();
    for some in names.chunks(LOCKS_PER_CALL) {
        let (_, found) = list::inspect(inner, some.to_vec(), list::Which::listed(inner.layout)).await?;
        let forever = found.into_iter().filter(|found| found.holders.iter().any(|holder| holder.left.is_none()));
        stuck.extend(forever.map(|found| found.name));
    }
    let among = if all { "" } else { " (among the keys scanned; the server has many)" };
    if stuck.is_empty() {
        return Ok(Check::new(CHECK, Verdict::Ok, format!("no lock{among}")));
    }
    let named: Vec<&str> = stuck.iter().take(SHOWN_NAMES_MAX).map(Name::as_str).collect();
    let more = if stuck.len() > SHOWN_NAMES_MAX { ", …" } else { "" };
    let found = format!("{} held for ever{among}: {}{more}", stuck.len(), named.join(", "));
    let advice = "Client::inspect shows its holder; if that is gone, Client::break_lock (Break::Now) frees it";
    Ok(Check::new(CHECK, Verdict::Warn, found).with_advice(advice))
}

/// Names that may be locks, and whether the scan visited all keys. In the plain layout a lock looks like any other
/// string; the locks that leasehold granted lately are known by their fences.
async fn scan(inner: &Inner) -> Result<(BTreeSet<Name>, bool), Error> {
    let began = leasehold_clock::now();
    let (mut names, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let mut command: Cmd = redis::cmd("SCAN");
        command.arg(&cursor).arg("COUNT").arg(KEYS_PER_STEP);
        match inner.layout {
            Layout::Redisson => command.arg("TYPE").arg("hash").arg("MATCH").arg(inner.space.pattern("")),
            Layout::Plain => command.arg("TYPE").arg("string").arg("MATCH").arg(inner.space.fence_pattern("")),
        };
        let mut parts = Parts::of(inner.connection.query(&command).await?)?;
        cursor = parts.text()?;
        let mut found = parts.list()?;
        while found.left() > 0 {
            let key = found.text()?;
            names.extend(match inner.layout {
                Layout::Redisson => inner.space.name_of_lock(&key),
                Layout::Plain => inner.space.name_of_fence(&key),
            });
        }
        if cursor == "0" {
            return Ok((names, true));
        }
        if leasehold_clock::now().since(began) > SCAN_LIMIT {
            return Ok((names, false));
        }
    }
}
