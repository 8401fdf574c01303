//! Checks whether the servers of a quorum are fit: each on its own, and compared with the others.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Check, Error, Verdict};
use leasehold_redis::{Seen, examine_member};

use crate::config::Config;
use crate::error;

/// Clocks that differ by more cause a warning.
const CLOCKS_DIFFER: Duration = Duration::from_millis(500);
/// If they differ by more, a fence that one server accepts is refused by another.
const CLOCKS_PART: Duration = Duration::from_secs(1);

/// The checks of every server, under its label, and those of all servers together.
///
/// # Errors
///
/// If no server can be reached.
///
/// # Cancel safety
///
/// This only reads: dropping the future leaves nothing behind.
pub async fn examine(config: &Config) -> Result<Vec<Check>, Error> {
    let mut found = Vec::new();
    // One after the other: parallel calls would measure the load that they cause.
    for server in config.servers() {
        found.push((server.label(), examine_member(server).await));
    }
    let majority = config.servers().len() / 2 + 1;
    let reached = found.iter().filter(|(_, seen)| seen.is_ok()).count();
    if let (0, Some((_, Err(first)))) = (reached, found.first()) {
        return Err(error::none_reached(
            first,
            found.iter().filter_map(|(label, seen)| Some((*label, seen.as_ref().err()?))),
        ));
    }
    let mut checks = Vec::new();
    let mut servers = Vec::new();
    for (label, seen) in found {
        match seen {
            Ok(seen) => {
                checks.extend(seen.checks.iter().cloned().map(|check| labelled(label, check)));
                servers.push((label, seen));
            }
            Err(error) => checks.push(labelled(label, unreachable(&error, reached, majority))),
        }
    }
    checks.push(different(&servers));
    checks.push(clocks(&servers));
    Ok(checks)
}

fn labelled(label: &str, mut check: Check) -> Check {
    check.found = format!("{label}: {}", check.found);
    check
}

fn unreachable(error: &Error, reached: usize, majority: usize) -> Check {
    let (verdict, advice) = if reached >= majority {
        (Verdict::Warn, "the others are a majority and continue; bring it back before more of them fail")
    } else {
        (Verdict::Fail, "no lock is granted without a majority of the servers")
    };
    Check::new("reaching", verdict, error.message()).with_advice(advice)
}

/// One server under two addresses would vote twice.
fn different(servers: &[(&str, Seen)]) -> Check {
    const CHECK: &str = "different servers";
    let mut by_run: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (label, seen) in servers {
        if let Some(run) = &seen.run {
            by_run.entry(run).or_default().push(label);
        }
    }
    if let Some(same) = by_run.values().find(|labels| labels.len() > 1) {
        let found = format!("{} are one server, whose vote counts twice", same.join(" and "));
        return Check::new(CHECK, Verdict::Fail, found).with_advice("name every server once, by one address");
    }
    let known: usize = by_run.len();
    if known < servers.len() {
        let found = format!("{} do not identify themselves", servers.len() - known);
        return Check::new(CHECK, Verdict::Warn, found).with_advice("let this user call INFO");
    }
    let found = if known == 1 { "only one was reached".into() } else { format!("{known}, all different") };
    Check::new(CHECK, Verdict::Ok, found)
}

/// Fences are accepted only within a second of each server's clock.
fn clocks(servers: &[(&str, Seen)]) -> Check {
    const CHECK: &str = "clocks";
    let mut shown: Vec<(i128, Duration, &str)> =
        servers.iter().filter_map(|(label, seen)| seen.clock.map(|(ahead, within)| (ahead, within, *label))).collect();
    shown.sort_unstable();
    let (Some(first), Some(last)) = (shown.first(), shown.last()) else {
        return Check::new(CHECK, Verdict::Warn, "no server reports its time").with_advice("let this user call TIME");
    };
    if shown.len() == 1 {
        return Check::new(CHECK, Verdict::Ok, "not measured: only one server was reached");
    }
    let apart = Duration::from_micros(u64::try_from(last.0 - first.0).unwrap_or(u64::MAX));
    // The uncertainty of each is half of its round trip.
    let within = (first.1 + last.1) / 2;
    let found = format!("{apart:.1?} apart, give or take {within:.1?}: {} is ahead of {}", last.2, first.2);
    if apart > CLOCKS_PART + within {
        let advice = "a fence within a second of one clock is refused by the other, and locks may not be granted: synchronize them";
        return Check::new(CHECK, Verdict::Fail, found).with_advice(advice);
    }
    if apart > CLOCKS_DIFFER + within {
        let advice = "if they differ by a second or more, one server refuses the other's fences: synchronize them";
        return Check::new(CHECK, Verdict::Warn, found).with_advice(advice);
    }
    Check::new(CHECK, Verdict::Ok, format!("{apart:.1?} apart, give or take {within:.1?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(run: Option<&str>, ahead_ms: i128) -> Seen {
        let clock = Some((ahead_ms * 1_000, Duration::from_millis(1)));
        Seen { checks: Vec::new(), run: run.map(str::to_owned), clock }
    }

    #[test]
    fn one_server_twice_is_seen() {
        let of = |[a, b, c]: [Option<&str>; 3]| different(&[("a", seen(a, 0)), ("b", seen(b, 0)), ("c", seen(c, 0))]);
        assert_eq!(of([Some("1"), Some("2"), Some("3")]).verdict, Verdict::Ok);
        let twice = of([Some("1"), Some("2"), Some("1")]);
        assert_eq!((twice.verdict, twice.found.contains("a and c")), (Verdict::Fail, true));
        assert_eq!(of([Some("1"), Some("2"), None]).verdict, Verdict::Warn);
    }

    #[test]
    fn clocks_that_differ() {
        let of = |ahead: [i128; 3]| clocks(&ahead.map(|ahead| ("a", seen(None, ahead)))).verdict;
        assert_eq!(of([0, 100, -100]), Verdict::Ok);
        assert_eq!(of([0, 400, -400]), Verdict::Warn);
        assert_eq!(of([5_000, 5_000, 3_900]), Verdict::Fail);
        assert_eq!(of([5_000, 5_000, 5_000]), Verdict::Ok);
    }
}
