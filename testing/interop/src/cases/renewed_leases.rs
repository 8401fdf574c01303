//! A lock that is kept alive stays busy to the other one for as long as it is kept, and no longer than a lease after its holder was killed.

use std::time::{Duration, Instant};

use super::{EARLY, LONG};
use crate::Failure;
use crate::clock::now_us;
use crate::driver::{Driver, KEEP, Taken};
use crate::encounter::{BOTH, Meeting, Way};
use crate::peer::Waits;

/// Several leases long.
const HELD: Duration = KEEP.saturating_mul(3);
/// For a busy machine, and the longest pause between two questions.
const ROOM: Duration = Duration::from_millis(4_000);

pub(super) fn each_way(meeting: &mut Meeting) -> Result<String, Failure> {
    for way in BOTH {
        let key = meeting.key(way);
        let (holder, other, _) = meeting.sides(way);
        holder.must_lock(&key, kept(holder))?;
        other.begin_lock(&key, LONG, HELD)?;
        if !holder.peer.watchdog {
            renew_by_hand(holder, &key)?;
        }
        let taken: Taken = other.answer(HELD)?;
        if taken.got {
            return Err(format!("{} gets what {} keeps", other.peer.name, holder.peer.name).into());
        }
        holder.must_unlock(&key)?;
        other.must_lock(&key, LONG)?;
        other.must_unlock(&key)?;
    }
    Ok(if meeting.theirs.peer.watchdog { "each way" } else { "each way, it by hand" }.into())
}

/// As a program would that has nothing to do it: twice a lease, beyond the time that the other one waits.
fn renew_by_hand(holder: &mut Driver, key: &str) -> Result<(), Failure> {
    let end = Instant::now() + HELD;
    while Instant::now() < end {
        std::thread::sleep(KEEP / 2);
        holder.renew(key, KEEP)?;
    }
    Ok(())
}

fn kept(holder: &Driver) -> Duration {
    if holder.peer.watchdog { Duration::ZERO } else { KEEP }
}

pub(super) fn killed(meeting: &mut Meeting) -> Result<String, Failure> {
    // Ours is killed with the second, when it gets no more commands.
    let by_ours = after_killing(meeting, Way::TheirsHolds)?;
    let (ours, theirs, servers) = (meeting.ours.peer, meeting.theirs.peer, meeting.servers.addresses());
    meeting.theirs = Driver::start(theirs, &servers)?;
    let by_theirs = after_killing(meeting, Way::OursHolds)?;
    meeting.ours = Driver::start(ours, &servers)?;
    Ok(format!("after {} / {} ms", by_ours.as_millis(), by_theirs.as_millis()))
}

/// How long after the killing the other one has it.
fn after_killing(meeting: &mut Meeting, way: Way) -> Result<Duration, Failure> {
    let key = meeting.key(format_args!("killed-{way}"));
    let (holder, other, _) = meeting.sides(way);
    let held = holder.must_lock(&key, Duration::ZERO)?;
    let wait = if other.peer.waits == Waits::Signalled { KEEP + Duration::from_secs(1) } else { LONG };
    other.begin_lock(&key, LONG, wait)?;
    let at = now_us();
    holder.kill()?;
    let taken: Taken = other.answer(wait)?;
    let late = Duration::from_micros(taken.at_us.saturating_sub(at));
    if Duration::from_micros(taken.at_us) + EARLY < Duration::from_micros(held.from_us) + KEEP {
        return Err(format!("{} has the lock before the lease is over", other.peer.name).into());
    }
    if !taken.got || late > KEEP + ROOM {
        return Err(format!("{} does not have the lock {late:?} after its holder was killed", other.peer.name).into());
    }
    other.must_unlock(&key)?;
    Ok(late)
}
