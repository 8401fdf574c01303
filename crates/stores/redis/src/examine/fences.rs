//! Names whose last fence cannot come from any clock: their locks are refused until the fence is reset.

use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Name, Verdict};
use redis::Cmd;

use crate::error::WRONG_TYPE_OF_FENCE;
use crate::legible::legible;
use crate::reply::Parts;
use crate::store::{Inner, calling};

/// A scan of a large server stops after this time.
const SCAN_LIMIT: Duration = Duration::from_secs(3);
/// Number of keys that one step of a scan visits.
const KEYS_PER_STEP: usize = 1_000;
/// Maximum number of names that are shown.
const SHOWN_NAMES_MAX: usize = 5;
/// Maximum number of characters shown of a fence.
const FENCE_DIGITS: usize = 24;
const CHECK: &str = "fence records";

/// Scans the fences, within a time limit.
pub(super) async fn check(inner: &Inner) -> Result<Check, Error> {
    let (unfit, all) = match scan(inner).await {
        Err(error) if error.kind() == ErrorKind::Unfit => {
            let advice = "give this user +scan, so that fences too far ahead can be found";
            return Ok(Check::new(CHECK, Verdict::Warn, "not checked: SCAN is not allowed").with_advice(advice));
        }
        scanned => scanned?,
    };
    let among = if all { "" } else { " (among the keys scanned; the server has many)" };
    if unfit.is_empty() {
        return Ok(Check::new(CHECK, Verdict::Ok, format!("none is far ahead of the clock{among}")));
    }
    let named: Vec<String> = unfit.iter().take(SHOWN_NAMES_MAX).map(|(name, last)| shown(name, last)).collect();
    let more = if unfit.len() > SHOWN_NAMES_MAX { ", …" } else { "" };
    let found = format!(
        "{} with a last fence that is more than 8 days ahead of the server's clock, or not a number{among}: {}{more}",
        unfit.len(),
        named.join(", ")
    );
    let advice = "these locks are refused; Client::break_lock (reset_fence) lets the fences of one begin again from the clock. A \
                  resource that has seen a larger fence refuses those until its own record is reset";
    Ok(Check::new(CHECK, Verdict::Fail, found).with_advice(advice))
}

fn shown(name: &Name, last: &str) -> String {
    let last = match last {
        "" => "not a number".to_owned(),
        WRONG_TYPE_OF_FENCE => "another program's value, which only the server's own tools delete".to_owned(),
        last => legible(last, FENCE_DIGITS),
    };
    format!("{name} ({last})")
}

/// Unfit fences by name, and whether the scan visited all keys.
async fn scan(inner: &Inner) -> Result<(Vec<(Name, String)>, bool), Error> {
    let (began, mut unfit, mut cursor) = (leasehold_clock::now(), Vec::new(), "0".to_owned());
    loop {
        let mut command: Cmd = redis::cmd("SCAN");
        command.arg(&cursor).arg("COUNT").arg(KEYS_PER_STEP).arg("MATCH").arg(inner.space.fence_pattern(""));
        let mut parts = Parts::of(inner.connection.query(&command).await?)?;
        cursor = parts.text()?;
        let (mut keys, mut found) = (Vec::new(), parts.list()?);
        while found.left() > 0 {
            keys.push(found.text()?);
        }
        unfit.extend(look(inner, &keys).await?);
        if cursor == "0" {
            return Ok((unfit, true));
        }
        if leasehold_clock::now().since(began) > SCAN_LIMIT {
            return Ok((unfit, false));
        }
    }
}

async fn look(inner: &Inner, keys: &[String]) -> Result<Vec<(Name, String)>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let script = &inner.scripts.fences;
    let mut command = calling(script, keys.len());
    keys.iter().for_each(|key| {
        command.arg(key);
    });
    let mut parts = Parts::of(inner.run(script, command).await?)?;
    parts.time()?;
    let mut unfit = Vec::new();
    while parts.left() > 0 {
        let mut one = parts.list()?;
        let (place, last) = (one.count::<usize>()?, one.text()?);
        let name = place.checked_sub(1).and_then(|at| keys.get(at)).and_then(|key| inner.space.name_of_fence(key));
        unfit.extend(name.map(|name| (name, last)));
    }
    Ok(unfit)
}
