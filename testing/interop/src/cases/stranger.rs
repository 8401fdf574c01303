//! A client that does not hold a lock cannot release it.

use super::LONG;
use crate::Failure;
use crate::encounter::{BOTH, Meeting};
use crate::monitor::Monitor;

pub(super) fn each_way(meeting: &mut Meeting) -> Result<String, Failure> {
    let mut monitor = Monitor::of(meeting.servers.first())?;
    let mut silent = false;
    for way in BOTH {
        let key = meeting.key(way);
        let (holder, other, servers) = meeting.sides(way);
        holder.must_lock(&key, LONG)?;
        let before = servers.settled(&key)?;
        let answer = other.stranger(&key)?.released;
        // It is the server that refuses, not the library by itself.
        monitor.until(&key, |command| command.starts_with("\"dump\""))?;
        monitor.until(&key, |_| true)?;
        if answer == Some(true)
            || servers.settled(&key)? != before
            || servers.each(&["PTTL", &key])?.iter().any(|left| !left.number().is_ok_and(|left| left > 0))
        {
            return Err(format!("{} releases what {} holds", other.peer.name, holder.peer.name).into());
        }
        silent |= answer.is_none();
        holder.must_unlock(&key)?;
        servers.settled(&key)?;
        if servers.each(&["EXISTS", &key])?.iter().any(|there| !there.number().is_ok_and(|there| there == 0)) {
            return Err(format!("{} leaves {key} behind", holder.peer.name).into());
        }
    }
    Ok(if silent { "refused, it is not told" } else { "refused each way" }.into())
}
