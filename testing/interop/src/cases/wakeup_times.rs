//! One library waits for a lock that the other releases: how long after the release it has it.

use std::time::Duration;

use super::LONG;
use crate::Failure;
use crate::driver::{Driver, Taken};
use crate::encounter::{Meeting, Way};
use crate::monitor::Monitor;
use crate::peer::{Peer, Waits};

/// Notified by one another, at the 99th percentile: what issue 4 demands of leasehold and Redisson.
const NOTIFIED: Duration = Duration::from_millis(50);
/// The wait that python-redis-lock gets, in whole seconds: nothing else wakes it.
const SIGNALLED: Duration = Duration::from_secs(1);
/// A client that polls may be late on a machine on which other cases run.
const ROOM: Duration = Duration::from_millis(2_000);

/// Ours waits.
pub(super) fn ours(meeting: &mut Meeting) -> Result<String, Failure> {
    woken(meeting, Way::TheirsHolds)
}

/// Theirs waits.
pub(super) fn theirs(meeting: &mut Meeting) -> Result<String, Failure> {
    woken(meeting, Way::OursHolds)
}

fn woken(meeting: &mut Meeting, way: Way) -> Result<String, Failure> {
    let mut monitor = Monitor::of(meeting.servers.first())?;
    let (_, waiter, _) = meeting.sides(way);
    let (rounds, limit) = (rounds(waiter.peer), limit(waiter.peer));
    let mut delays = Vec::new();
    for round in 0..rounds {
        // The first makes connections and loads scripts: it does not count.
        let delay = one(meeting, way, &mut monitor, round)?;
        if round > 0 {
            delays.push(delay);
        }
    }
    delays.sort_unstable();
    let (median, high) = (percentile(&delays, 50), percentile(&delays, 99));
    let told = format!("{:.1} / {:.1} ms", in_ms(median), in_ms(high));
    if high > limit { Err(format!("{told}: more than {limit:?} at the 99th percentile").into()) } else { Ok(told) }
}

fn one(meeting: &mut Meeting, way: Way, monitor: &mut Monitor, round: usize) -> Result<Duration, Failure> {
    let key = meeting.key(format_args!("woken-{round}-"));
    let (holder, waiter, _) = meeting.sides(way);
    holder.must_lock(&key, LONG)?;
    let wait = if waiter.peer.waits == Waits::Signalled { SIGNALLED } else { LONG };
    waiter.begin_lock(&key, LONG, wait)?;
    // The bare name: it stands in the key, and in whatever else the waiter sleeps on.
    settled(waiter, monitor, key.strip_prefix(waiter.peer.prefix).unwrap_or(&key))?;
    let released = holder.must_unlock(&key)?;
    let taken: Taken = waiter.answer(wait)?;
    if !taken.got || taken.at_us < released.from_us {
        let what = if taken.got { "before it is released" } else { "not at all" };
        return Err(format!("{} gets the lock {what}", waiter.peer.name).into());
    }
    waiter.must_unlock(&key)?;
    Ok(Duration::from_micros(taken.at_us - released.from_us))
}

/// Waits until the waiter sleeps, as far as the server shows.
fn settled(waiter: &Driver, monitor: &mut Monitor, name: &str) -> Result<(), Failure> {
    let asks = |command: &str| command.starts_with("\"set\"") || command.starts_with("\"eval");
    match waiter.peer.waits {
        Waits::Subscribed => {
            monitor.until(name, |command| command.contains("subscribe"))?;
            monitor.until(name, asks)
        }
        Waits::Signalled => monitor.until(name, |command| command.contains("blpop")),
        Waits::Asking(pause) => {
            // The holder's, then the waiter's.
            monitor.until(name, asks)?;
            monitor.until(name, asks)?;
            // Not always at the same distance from its next question.
            std::thread::sleep(pause.mul_f64(f64::from(getrandom::u32()?) / f64::from(u32::MAX)));
            Ok(())
        }
    }
}

fn rounds(waiter: Peer) -> usize {
    match waiter.waits {
        Waits::Subscribed => 201,
        Waits::Signalled => 6,
        _ => 21,
    }
}

fn limit(waiter: Peer) -> Duration {
    match waiter.waits {
        Waits::Subscribed => NOTIFIED,
        Waits::Asking(pause) => pause + ROOM,
        Waits::Signalled => SIGNALLED + ROOM,
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

fn in_ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}
