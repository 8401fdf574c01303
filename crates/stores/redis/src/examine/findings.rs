//! Turns findings into verdicts. Pure functions, so that each can be tested without such a server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::STORE_EPOCH_UNIX_SECONDS;
use leasehold_core::{Check, Error, Verdict};
use redis::Value;

use super::info::Info;
use crate::reply::Parts;

/// The oldest supported version.
const OLDEST: (u32, u32) = (6, 2);
/// Clocks that differ by more cause a warning.
const CLOCK_SKEW_WARN: Duration = Duration::from_secs(1);
/// Round trips that take longer cause a warning.
const ROUND_TRIP_WARN: Duration = Duration::from_millis(50);

const UNKNOWN: &str = "unknown: INFO is not allowed";
const ASK_THE_ADMINISTRATOR: &str = "ask the server's administrator, or let this user call INFO and CONFIG GET";

fn ok(check: &'static str, found: impl Into<String>) -> Check {
    Check::new(check, Verdict::Ok, found)
}

fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
    Check::new(check, Verdict::Warn, found).with_advice(advice)
}

fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
    Check::new(check, Verdict::Fail, found).with_advice(advice)
}

/// Redis 6.2 or newer, or Valkey.
pub(super) fn version(info: &Info) -> Check {
    if let Some(version) = info.get("valkey_version") {
        return ok("version", format!("Valkey {version}"));
    }
    let Some(version) = info.get("redis_version").or_else(|| info.get("hello version")) else {
        return warn("version", UNKNOWN, "Redis 6.2 or newer is needed, or Valkey");
    };
    let name = info.get("hello server").unwrap_or("redis");
    let found = format!("{name} {version}");
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST => {
            fail("version", found, "Redis 6.2 or newer is needed, or Valkey")
        }
        (Some(_), Some(_)) => ok("version", found),
        _ => warn("version", found, "Redis 6.2 or newer is needed, or Valkey"),
    }
}

/// A single server, not a cluster or a Sentinel.
pub(super) fn mode(info: &Info) -> Check {
    let clustered = info.get("cluster_enabled") == Some("1");
    match info.get("redis_mode").or_else(|| info.get("server_mode")).or_else(|| info.get("hello mode")) {
        _ if clustered => {
            fail("mode", "a node of a cluster", "redis: is for one server; a cluster moves keys between servers")
        }
        Some("cluster") => {
            fail("mode", "a node of a cluster", "redis: is for one server; a cluster moves keys between servers")
        }
        Some("sentinel") => fail("mode", "a Sentinel, which stores no keys", "use the server that it monitors"),
        Some(mode) => ok("mode", mode),
        None => warn("mode", UNKNOWN, ASK_THE_ADMINISTRATOR),
    }
}

/// What a restart loses.
pub(super) fn persistence(info: &Info) -> Check {
    const CHECK: &str = "persistence";
    const ADVICE: &str = "a lock that the server has forgotten can be granted again while its holder still works; where that matters, \
                          check fences at the resource, or set 'appendonly yes' and 'appendfsync always'";
    let broken = [("aof_last_write_status", "its append-only file"), ("rdb_last_bgsave_status", "snapshots")];
    for (word, what) in broken {
        if info.get(word) == Some("err") {
            let found = format!("the server failed to write {what}, and may refuse every lock until it can");
            return fail(CHECK, found, "check the server's disk; its log says more");
        }
    }
    match (info.get("aof_enabled"), info.get("appendfsync"), info.get("save")) {
        (None, _, _) => warn(CHECK, UNKNOWN, ASK_THE_ADMINISTRATOR),
        (Some("1"), Some("always"), _) => ok(CHECK, "every grant is on disk before it is answered"),
        (Some("1"), Some("everysec"), _) => {
            warn(CHECK, "synced once a second: a crash of the machine loses the locks of the last seconds", ADVICE)
        }
        (Some("1"), Some(_), _) => warn(
            CHECK,
            "synced when the system decides: a crash of the machine loses the locks of about half a minute",
            ADVICE,
        ),
        (Some("1"), None, _) => {
            warn(CHECK, "an append-only file; how often it is synced is unknown", ASK_THE_ADMINISTRATOR)
        }
        (_, _, Some("")) => warn(CHECK, "none: a restart forgets every lock", ADVICE),
        (_, _, Some(save)) => {
            let found =
                format!("snapshots only (save {save}): a restart goes back to the last one, and forgets later locks");
            warn(CHECK, found, ADVICE)
        }
        (_, _, None) => warn(CHECK, "no append-only file: a restart forgets locks", ADVICE),
    }
}

/// Whether locks can be evicted to free memory.
pub(super) fn eviction(info: &Info) -> Check {
    const CHECK: &str = "eviction";
    let (Some(limit), Some(policy)) = (info.number("maxmemory"), info.get("maxmemory_policy")) else {
        return warn(
            CHECK,
            UNKNOWN,
            "a server that evicts keys to make room may evict locks: maxmemory-policy noeviction",
        );
    };
    if limit == 0 {
        return ok(CHECK, "no memory limit, so nothing is evicted");
    }
    if policy != "noeviction" {
        let found = format!("{policy} with a limit of {limit} bytes: locks may be evicted, and granted twice");
        return fail(CHECK, found, "set maxmemory-policy noeviction, or keep locks on a server of their own");
    }
    match info.number("used_memory") {
        Some(used) if used >= limit / 10 * 9 => {
            let found =
                format!("noeviction, and {used} of {limit} bytes are used: no new lock is granted when it is full");
            warn(CHECK, found, "give the server more memory, or keep less there")
        }
        _ => ok(CHECK, "noeviction: a full server refuses new locks, and keeps those it has"),
    }
}

/// What a failover loses.
pub(super) fn replicas(info: &Info) -> Check {
    const CHECK: &str = "replicas";
    const LOSES: &str = "a failover forgets locks that were granted in its last moments, and they can be granted again: check fences at the \
                         resource, where that matters";
    match (info.get("role").or_else(|| info.get("hello role")), info.number("connected_slaves")) {
        (Some("slave" | "replica"), _) => fail(CHECK, "this server is itself a replica", "use its master"),
        (Some(_), Some(0)) => ok(CHECK, "none"),
        (Some(_), Some(many)) => {
            let wanted = info.number("min-replicas-to-write").unwrap_or(0);
            let found = match wanted {
                0 => format!("{many}, which receive a grant only after it was answered"),
                _ => format!(
                    "{many}, which receive a grant only after it was answered; with fewer than {wanted}, locks are refused"
                ),
            };
            warn(CHECK, found, LOSES)
        }
        _ => warn(CHECK, UNKNOWN, LOSES),
    }
}

/// What a restart of one server of a quorum loses: nothing that the others do not make up for, if it waits before it
/// votes again.
pub(super) fn persistence_of_member(info: &Info, quarantine: Duration) -> Check {
    let found = persistence(info);
    if found.verdict != Verdict::Warn || quarantine.is_zero() {
        return found;
    }
    let waits = humantime::format_duration(quarantine);
    ok(found.check, format!("{}; it does not vote for {waits} after a restart", found.found))
}

/// A quorum consists of masters without replicas.
pub(super) fn replicas_of_member(info: &Info) -> Check {
    let found = replicas(info);
    match info.number("connected_slaves") {
        Some(many) if many > 0 && found.verdict == Verdict::Warn => {
            let advice = "a replica that takes over has lost the latest grants, and does not know that it must not vote: use masters without \
                          replicas";
            fail(found.check, found.found, advice)
        }
        _ => found,
    }
}

/// When the server started.
pub(super) fn uptime(info: &Info) -> Check {
    match info.number("uptime_in_seconds") {
        Some(seconds) => ok("uptime", humantime::format_duration(Duration::from_secs(seconds)).to_string()),
        None => warn("uptime", UNKNOWN, ASK_THE_ADMINISTRATOR),
    }
}

/// Whether a server of a quorum votes: not for a quarantine after it may have forgotten. `scripts/lib/server_epoch.lua`
/// makes the same decision.
pub(super) fn voting(info: &Info, kept: Option<&str>, quarantine: Duration, now_micros: i128) -> Check {
    const CHECK: &str = "voting";
    let spoken = humantime::format_duration;
    let parts: Vec<&str> = kept.map(|kept| kept.split(' ').collect()).unwrap_or_default();
    let Some(here) = info.get("run_id") else {
        return fail(
            CHECK,
            UNKNOWN,
            "a server that cannot tell whether it forgot does not vote: let this user call INFO",
        );
    };
    let [run, born, of, synced] = parts[..] else {
        return ok(CHECK, "it has not been asked for a vote yet (there is no leasehold_birth)");
    };
    let of = Duration::from_millis(of.parse().unwrap_or(0));
    if of != quarantine {
        let found = format!("it is used with a quarantine of {}, not {}", spoken(of), spoken(quarantine));
        return fail(CHECK, found, "give every client the same `quarantine`, the one in leasehold_birth");
    }
    if quarantine.is_zero() {
        let found = "it votes even right after losing its data: there is no quarantine";
        return warn(
            CHECK,
            found,
            "a server that restarts empty can help a second client to the same lock: set quarantine=60s",
        );
    }
    let is_synced = info.get("aof_enabled") == Some("1") && info.get("appendfsync") == Some("always");
    if run != here && !(synced == "1" && is_synced) {
        let found = format!("it was restarted since its last vote, and does not vote for {}", spoken(quarantine));
        return warn(CHECK, found, "it waits until every lock that it may have forgotten is over");
    }
    let age = u64::try_from(now_micros - born.parse::<i128>().unwrap_or(now_micros)).unwrap_or(0);
    let age = Duration::from_secs(Duration::from_micros(age).as_secs());
    match quarantine.checked_sub(age) {
        Some(left) if !left.is_zero() => {
            let found =
                format!("it does not vote for another {} (leasehold_birth is {} old)", spoken(left), spoken(age));
            warn(CHECK, found, "it waits until every lock that it may have forgotten is over")
        }
        _ => ok(CHECK, format!("it votes; it has forgotten nothing for {} (leasehold_birth)", spoken(age))),
    }
}

/// Duration of a round trip.
pub(super) fn latency(median: Duration, worst: Duration, limit: Duration) -> Check {
    let found = format!("{median:.1?} per round trip, {worst:.1?} at worst");
    if median >= ROUND_TRIP_WARN || worst >= limit / 2 {
        return warn(
            "latency",
            found,
            format!("calls are given up after {limit:?} (?timeout=); leases should be many times that"),
        );
    }
    ok("latency", found)
}

/// The server's clock compared with ours; no lease depends on ours.
pub(super) fn clock(ahead: i128, within: Duration, server_micros: i128) -> Check {
    if server_micros < i128::from(STORE_EPOCH_UNIX_SECONDS) * 1_000_000 {
        return fail("clock", "the server's clock is before 2020", "set it: fences are counted from there");
    }
    let differs = Duration::from_micros(u64::try_from(ahead.unsigned_abs()).unwrap_or(u64::MAX));
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    if differs > CLOCK_SKEW_WARN + within {
        let advice = "no lease depends on it; but fences follow the server's clock, so it must not be set back, and a server that \
                      takes over must not be behind";
        return warn("clock", format!("{differs:.1?} {way} ours"), advice);
    }
    ok("clock", format!("{differs:.1?} {way} ours, give or take {within:.1?}"))
}

/// Our own wall clock.
pub(super) fn wall_micros() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_micros()).unwrap_or(i128::MAX)
}

/// Parses the answer to TIME.
pub(super) fn time_micros(answer: Value) -> Result<i128, Error> {
    let mut parts = Parts::of(answer)?;
    let mut number = || parts.text().map(|text| text.parse::<i128>().unwrap_or_default());
    Ok(number()? * 1_000_000 + number()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(check: &Check, verdict: Verdict, word: &str) {
        assert_eq!(check.verdict, verdict, "{check:?}");
        assert!(check.found.contains(word), "{word:?} is missing in {check:?}");
        assert!(verdict == Verdict::Ok || check.advice.is_some(), "nothing is advised: {check:?}");
    }

    #[test]
    fn versions() {
        let of = |found| version(&[("redis_version", found)].into());
        is(&of("6.0.16"), Verdict::Fail, "6.0.16");
        is(&of("5.0.7"), Verdict::Fail, "5.0.7");
        for good in ["6.2.0", "7.0.15", "10.0.0"] {
            is(&of(good), Verdict::Ok, good);
        }
        let valkey = [("valkey_version", "8.1.1"), ("redis_version", "7.2.4")];
        is(&version(&valkey.into()), Verdict::Ok, "Valkey 8.1.1");
        is(&version(&[("hello version", "6.0.9")].into()), Verdict::Fail, "6.0.9");
        is(&version(&Info::default()), Verdict::Warn, "unknown: INFO");
    }

    #[test]
    fn clocks() {
        let now = wall_micros();
        let ms = Duration::from_millis(1);
        is(&clock(-400, ms, now), Verdict::Ok, "behind ours");
        is(&clock(5_000_000, ms, now), Verdict::Warn, "5.0s ahead of ours");
        is(&clock(-5_000_000, ms, now), Verdict::Warn, "5.0s behind ours");
        is(&clock(5_000_000, ms * 6_000, now), Verdict::Ok, "ahead");
        is(&clock(0, ms, 0), Verdict::Fail, "2020");
    }

    #[test]
    fn votes_of_a_quorum() {
        let minute = Duration::from_secs(60);
        let of = |kept, at: i128| voting(&[("run_id", "a1")].into(), kept, minute, at * 1_000_000);
        is(&of(None, 100), Verdict::Ok, "not been asked");
        is(&of(Some("a1 100000000 60000 0"), 130), Verdict::Warn, "another 30s");
        is(&of(Some("a1 100000000 60000 0"), 161), Verdict::Ok, "it votes");
        is(&of(Some("b2 100000000 60000 1"), 161), Verdict::Warn, "restarted");
        is(&of(Some("a1 100000000 5000 0"), 161), Verdict::Fail, "of 5s, not 1m");
        let synced = [("run_id", "a1"), ("aof_enabled", "1"), ("appendfsync", "always")];
        is(&voting(&synced.into(), Some("b2 100000000 60000 1"), minute, 161_000_000), Verdict::Ok, "it votes");
        is(&voting(&synced.into(), Some(" 0 0 0"), Duration::ZERO, 161_000_000), Verdict::Warn, "no quarantine");
        is(&voting(&Info::default(), None, minute, 0), Verdict::Fail, "unknown: INFO");
    }

    #[test]
    fn servers_of_a_quorum_are_masters_without_replicas() {
        is(&replicas_of_member(&[("role", "master"), ("connected_slaves", "1")].into()), Verdict::Fail, "1, which");
        is(&replicas_of_member(&[("role", "slave"), ("connected_slaves", "0")].into()), Verdict::Fail, "itself");
        is(&replicas_of_member(&[("role", "master"), ("connected_slaves", "0")].into()), Verdict::Ok, "none");
        let forgets = [("aof_enabled", "0"), ("save", "")];
        is(&persistence_of_member(&forgets.into(), Duration::from_secs(60)), Verdict::Ok, "does not vote for 1m");
        is(&persistence_of_member(&forgets.into(), Duration::ZERO), Verdict::Warn, "forgets every lock");
    }

    #[test]
    fn a_server_that_forbids_info_is_a_warning() {
        let nothing = Info::default();
        for check in [mode(&nothing), persistence(&nothing), eviction(&nothing), replicas(&nothing)] {
            is(&check, Verdict::Warn, "unknown: INFO");
        }
    }

    #[test]
    fn a_sentinel_is_no_store() {
        is(&mode(&[("redis_mode", "sentinel")].into()), Verdict::Fail, "Sentinel");
    }
}
