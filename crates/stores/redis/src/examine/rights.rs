//! Whether this user has the needed rights. Every command that the scripts call is tried in a way that changes nothing.
//! (ACL DRYRUN would need a newer server and the right to call it.)

use std::collections::BTreeSet;

use leasehold_core::{Check, Error, ErrorKind, Name, Verdict};
use redis::RedisError;

use super::Server;
use crate::config::Layout;
use crate::keys::Space;
use crate::script::Scripts;

/// Commands with arguments that find nothing or are invalid; an invalid one is refused only after the rights were
/// checked.
const PROBES: &[&[&str]] = &[
    &["DEL", KEY],
    &["EXISTS", KEY],
    &["GET", KEY],
    &["GETRANGE", KEY, "0", "0"],
    &["HDEL", KEY, "field"],
    &["HGET", KEY, "field"],
    &["HKEYS", KEY],
    &["HLEN", KEY],
    &["HSET", KEY, "field", "value", "a field without a value"],
    &["HSTRLEN", KEY, "field"],
    &["MGET", KEY],
    &["PEXPIRE", KEY, "1"],
    &["PTTL", KEY],
    &["PUBLISH", CHANNEL, ""],
    &["SET", KEY, "value", "no option"],
    &["TIME"],
    &["ZADD", KEY, "no number", "member"],
    &["ZCARD", KEY],
    &["ZCOUNT", KEY, "0", "0"],
    &["ZRANGE", KEY, "0", "0"],
    &["ZRANGEBYSCORE", KEY, "0", "0"],
    &["ZREM", KEY, "member"],
    &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
    &["EVAL", "return 0", "0"],
];
const KEY: &str = "<key>";
const CHANNEL: &str = "<channel>";
/// What is needed besides the commands of the scripts.
const OUTSIDE: &[&str] = &["TIME", "EVALSHA", "EVAL"];
/// What the library itself sends; these commands cannot be tried alone. `+scan` is for `list` only: without it locks
/// still work.
const CONNECTION: &str = "+hello +select +unsubscribe +scan";

/// What is missing.
#[derive(Default)]
struct Missing {
    commands: BTreeSet<String>,
    keys: BTreeSet<String>,
    channels: BTreeSet<String>,
}

/// Tries every command.
pub(super) async fn check(server: &Server) -> Result<Vec<Check>, Error> {
    let (layout, space) = (server.store.0.layout, &server.store.0.space);
    // No lock has this name, and nothing is created.
    let probe = format!("leasehold-doctor-{}-{}", std::process::id(), leasehold_clock::now().as_nanos());
    let name = Name::new(probe)?;
    let keys = space.keys(&name);
    let hints = space.hint_channel(name.as_str());
    let mut missing = Missing::default();
    for probe in needed(Scripts::of(layout)) {
        let words = probe.iter().map(|word| match *word {
            KEY => keys.lock(),
            CHANNEL => &hints,
            word => word,
        });
        let tried = server.ask(&words.collect::<Vec<_>>()).await.map(drop);
        missing.note(tried, probe, (keys.lock(), &hints))?;
    }
    for key in [keys.fence(), keys.record(), keys.waitlist(), keys.waiter_expiries(), keys.token()] {
        if layout == Layout::Redisson || key != keys.token() {
            let read = server.ask(&["GETRANGE", &key, "0", "0"]).await.map(drop);
            missing.note(read, &["GETRANGE"], (&key, ""))?;
            missing.note(server.ask(&["PEXPIRE", &key, "1"]).await.map(drop), &["PEXPIRE"], (&key, ""))?;
        }
    }
    let mut channels = vec![hints.clone()];
    if layout == Layout::Redisson {
        let tried = server.ask(&["PUBLISH", &keys.channel(), "-0"]).await.map(drop);
        missing.note(tried, &["PUBLISH"], ("", &keys.channel()))?;
        channels.push(keys.channel());
    }
    for channel in channels {
        let tried = server.store.0.connection.subscribe(vec![channel.clone()]).await;
        missing.note(tried, &["SUBSCRIBE"], ("", &channel))?;
        server.store.0.connection.unsubscribe(&[channel]).await;
    }
    let mut checks = vec![missing.verdict(layout, space)];
    if refusal(server.ask(&["SCAN", "0", "COUNT", "1"]).await.map(drop))?.is_some() {
        let found = "SCAN is not allowed, so 'list' does not work";
        checks.push(Check::new("looking", Verdict::Warn, found).with_advice("give this user +scan"));
    }
    Ok(checks)
}

/// The probes for the commands of these scripts, and for running scripts.
fn needed(scripts: &'static Scripts) -> impl Iterator<Item = &'static [&'static str]> {
    let called =
        |probe: &[&str]| OUTSIDE.contains(&probe[0]) || scripts.of_locks().any(|script| calls(&script.text, probe[0]));
    PROBES.iter().copied().filter(move |probe| called(probe))
}

fn calls(script: &str, command: &str) -> bool {
    script.contains(&format!("call('{command}'"))
}

/// Why a command was refused for lack of rights. Any other failure shows that it is allowed.
fn refusal(tried: Result<(), Error>) -> Result<Option<String>, Error> {
    let Err(error) = tried else { return Ok(None) };
    if error.kind() != ErrorKind::Unfit {
        return Err(error);
    }
    let native = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<RedisError>());
    let unknown = native.and_then(RedisError::detail).is_some_and(|detail| detail.starts_with("unknown command"));
    let refused = unknown || native.and_then(RedisError::code) == Some("NOPERM");
    Ok(refused.then(|| error.message().to_owned()))
}

impl Missing {
    fn note(&mut self, tried: Result<(), Error>, probe: &[&str], (key, channel): (&str, &str)) -> Result<(), Error> {
        let Some(refused) = refusal(tried)? else { return Ok(()) };
        if refused.contains("access") && refused.contains("channel") {
            self.channels.insert(channel.to_owned());
        } else if refused.contains("access") && refused.contains("key") {
            self.keys.insert(key.to_owned());
        } else {
            self.commands.insert(right(probe));
        }
        Ok(())
    }

    fn verdict(&self, layout: Layout, space: &Space) -> Check {
        let parts = [("commands", &self.commands), ("keys", &self.keys), ("channels", &self.channels)];
        let lacks = parts.iter().filter(|(_, missing)| !missing.is_empty());
        let lacks: Vec<String> = lacks
            .map(|(what, missing)| format!("{what} {}", missing.iter().cloned().collect::<Vec<_>>().join(" ")))
            .collect();
        if lacks.is_empty() {
            return Check::new("permissions", Verdict::Ok, "this user has all rights that locks need");
        }
        let rights: Vec<String> = needed(Scripts::of(layout)).map(right).collect();
        let all = space.pattern("");
        // On older servers every user may use every channel by default.
        let channels = if space.0.is_empty() { "" } else { "resetchannels " };
        let advice = format!(
            "what is needed: ACL SETUSER … ~{all} {channels}&{all} {CONNECTION} +subscribe {}",
            rights.join(" ")
        );
        let found = format!("this user may not use {}", lacks.join("; "));
        Check::new("permissions", Verdict::Fail, found).with_advice(advice)
    }
}

/// As ACL SETUSER takes it.
fn right(probe: &[&str]) -> String {
    let command = probe[0].to_lowercase();
    format!("+{command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_script_calls_is_tried() {
        for layout in [Layout::Redisson, Layout::Plain] {
            let needed: BTreeSet<&str> = needed(Scripts::of(layout)).map(|probe| probe[0]).collect();
            let mut called = BTreeSet::new();
            for script in Scripts::of(layout).of_locks() {
                let calls =
                    script.text.split("call('").skip(1).filter_map(|rest| rest.split_once('\'')).map(|call| call.0);
                called.extend(calls.filter(|call| call.chars().all(|c| c.is_ascii_uppercase())));
            }
            assert!(
                called.contains("PTTL") && called.contains("PUBLISH"),
                "the scripts call their commands otherwise now"
            );
            called.extend(OUTSIDE);
            assert_eq!(needed, called);
        }
    }
}
