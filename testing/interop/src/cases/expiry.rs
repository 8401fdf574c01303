//! A lease of the one that ends by itself: the other has to wait for its end, gets the lock then, and keeps it when the first one comes too late.

use std::time::Duration;

use super::{EARLY, LONG};
use crate::Failure;
use crate::driver::Taken;
use crate::encounter::{BOTH, Meeting, Way};
use crate::peer::{Peer, Waits};

const LEASE: Duration = Duration::from_secs(2);
/// For a busy machine, on which other cases run as well.
const ROOM: Duration = Duration::from_millis(1_500);

pub(super) fn each_way(meeting: &mut Meeting) -> Result<String, Failure> {
    let mut late = Vec::new();
    for way in BOTH {
        late.push(after_the_end(meeting, way)?);
    }
    Ok(format!("after {} / {} ms", late[1].as_millis(), late[0].as_millis()))
}

/// How long after the end the other one has it.
fn after_the_end(meeting: &mut Meeting, way: Way) -> Result<Duration, Failure> {
    let key = meeting.key(way);
    let (holder, other, servers) = meeting.sides(way);
    let held = holder.must_lock(&key, LEASE)?;
    let wait = wait_of(other.peer);
    other.begin_lock(&key, LONG, wait)?;
    let taken: Taken = other.answer(wait)?;
    let (name, at) = (other.peer.name, Duration::from_micros(taken.at_us));
    if at + EARLY < Duration::from_micros(held.from_us) + LEASE {
        return Err(format!("{name} has the lock before the lease is over").into());
    }
    let late = at.saturating_sub(Duration::from_micros(held.at_us) + LEASE);
    if !taken.got || late > longest(other.peer) {
        return Err(format!("{name} does not have the lock {late:?} after the end of the lease").into());
    }
    let before = servers.settled(&key)?;
    if holder.unlock(&key)?.released == Some(true) {
        return Err(format!("{} says that it released what it had lost", holder.peer.name).into());
    }
    if servers.settled(&key)? != before {
        return Err(format!("{} comes too late, and touches what {name} holds", holder.peer.name).into());
    }
    other.must_unlock(&key)?;
    Ok(late)
}

fn wait_of(waiter: Peer) -> Duration {
    // It sleeps for all of its time.
    if waiter.waits == Waits::Signalled { LEASE + Duration::from_secs(1) } else { LONG }
}

fn longest(waiter: Peer) -> Duration {
    match waiter.waits {
        Waits::Subscribed => ROOM,
        Waits::Asking(pause) => pause + ROOM,
        Waits::Signalled => wait_of(waiter) - LEASE + ROOM,
    }
}
