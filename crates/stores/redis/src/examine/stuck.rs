//! Locks without an expiry, of ours, of Redisson's or of the plain recipe's: nobody else ever gets them.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Name, Verdict};
use redis::Cmd;

use crate::config::Layout;
use crate::list;
use crate::reply::Parts;
use crate::store::Inner;

/// A large server is not gone through to its end.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many keys are gone through in one step.
const STEP: usize = 1_000;
/// So many locks are looked at in one call.
const AT_ONCE: usize = 200;
/// So many are named.
const NAMED: usize = 5;

/// Goes through the keys for a while.
pub(super) async fn check(inner: &Inner) -> Result<Check, Error> {
    const CHECK: &str = "without expiry";
    let (names, all) = match scan(inner).await {
        Err(error) if error.kind() == ErrorKind::Unfit => {
            let advice = "give this user +scan to have locks looked for that nobody will ever get";
            return Ok(Check::new(CHECK, Verdict::Warn, "not looked for: SCAN is not allowed").with_advice(advice));
        }
        scanned => scanned?,
    };
    let names: Vec<Name> = names.into_iter().collect();
    let mut stuck = Vec::new();
    for some in names.chunks(AT_ONCE) {
        let (_, found) = list::inspect(inner, some.to_vec(), list::Which::listed(inner.layout)).await?;
        let forever = found.into_iter().filter(|found| found.holders.iter().any(|holder| holder.left.is_none()));
        stuck.extend(forever.map(|found| found.name));
    }
    let among = if all { "" } else { " (among those looked at: the server has many keys)" };
    if stuck.is_empty() {
        return Ok(Check::new(CHECK, Verdict::Ok, format!("no lock{among}")));
    }
    let named: Vec<&str> = stuck.iter().take(NAMED).map(Name::as_str).collect();
    let more = if stuck.len() > NAMED { ", …" } else { "" };
    let found = format!("{} held for ever{among}: {}{more}", stuck.len(), named.join(", "));
    let advice = "Client::inspect says who holds it; if nobody does any more, Client::break_lock (Break::Now) frees it";
    Ok(Check::new(CHECK, Verdict::Warn, found).with_advice(advice))
}

/// Names that may be locks, and whether all keys were gone through. In the plain layout a lock looks like any other
/// string; those are known that leasehold has granted lately, by their fences.
async fn scan(inner: &Inner) -> Result<(BTreeSet<Name>, bool), Error> {
    let began = leasehold_clock::now();
    let (mut names, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let mut command: Cmd = redis::cmd("SCAN");
        command.arg(&cursor).arg("COUNT").arg(STEP);
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
        if leasehold_clock::now().since(began) > PATIENCE {
            return Ok((names, false));
        }
    }
}
