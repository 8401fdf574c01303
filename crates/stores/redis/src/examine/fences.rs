//! Names whose last fence no clock has counted: they are refused until somebody resets it.

use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Name, Verdict};
use redis::Cmd;

use crate::error::WRONG_TYPE_OF_FENCE;
use crate::legible::legible;
use crate::reply::Parts;
use crate::store::{Inner, calling};

/// A large server is not gone through to its end.
const PATIENCE: Duration = Duration::from_secs(3);
/// Keys that one step of a scan goes through.
const STEP: usize = 1_000;
/// Names that are shown.
const NAMED: usize = 5;
/// The longest number that is shown of a fence.
const FENCE_DIGITS: usize = 24;
const CHECK: &str = "fence records";

/// Goes through the fences for a while.
pub(super) async fn check(inner: &Inner) -> Result<Check, Error> {
    let (unfit, all) = match scan(inner).await {
        Err(error) if error.kind() == ErrorKind::Unfit => {
            let advice = "give this user +scan to have fences looked for that are too far ahead";
            return Ok(Check::new(CHECK, Verdict::Warn, "not looked at: SCAN is not allowed").with_advice(advice));
        }
        scanned => scanned?,
    };
    let among = if all { "" } else { " (among those looked at: the server has many keys)" };
    if unfit.is_empty() {
        return Ok(Check::new(CHECK, Verdict::Ok, format!("none is far ahead of the clock{among}")));
    }
    let named: Vec<String> = unfit.iter().take(NAMED).map(|(name, last)| shown(name, last)).collect();
    let more = if unfit.len() > NAMED { ", …" } else { "" };
    let found = format!(
        "{} with a last fence that is more than 8 days ahead of the server's clock, or no number{among}: {}{more}",
        unfit.len(),
        named.join(", ")
    );
    let advice = "these locks are refused; Client::break_lock (reset_fence) lets the fences of one begin again from the clock. A \
                  resource that has seen a larger fence refuses those until its own record is reset";
    Ok(Check::new(CHECK, Verdict::Fail, found).with_advice(advice))
}

fn shown(name: &Name, last: &str) -> String {
    let last = match last {
        "" => "no number".to_owned(),
        WRONG_TYPE_OF_FENCE => "another program's value, which only the server's own tools delete".to_owned(),
        last => legible(last, FENCE_DIGITS),
    };
    format!("{name} ({last})")
}

/// Unfit fences by name, and whether all keys were gone through.
async fn scan(inner: &Inner) -> Result<(Vec<(Name, String)>, bool), Error> {
    let (began, mut unfit, mut cursor) = (leasehold_clock::now(), Vec::new(), "0".to_owned());
    loop {
        let mut command: Cmd = redis::cmd("SCAN");
        command.arg(&cursor).arg("COUNT").arg(STEP).arg("MATCH").arg(inner.space.fence_pattern(""));
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
        if leasehold_clock::now().since(began) > PATIENCE {
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
