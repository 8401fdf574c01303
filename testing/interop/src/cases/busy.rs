//! A lock that one library holds is busy to the other, and free once it is released.

use std::time::Duration;

use super::LONG;
use crate::Failure;
use crate::encounter::{BOTH, Meeting};

pub(super) fn each_way(meeting: &mut Meeting) -> Result<String, Failure> {
    for way in BOTH {
        let key = meeting.key(way);
        let (holder, other, _) = meeting.sides(way);
        holder.must_lock(&key, LONG)?;
        if other.lock(&key, LONG, Duration::ZERO)?.got {
            return Err(format!("{} gets what {} holds", other.peer.name, holder.peer.name).into());
        }
        holder.must_unlock(&key)?;
        other.must_lock(&key, LONG)?;
        other.must_unlock(&key)?;
    }
    Ok("each way".into())
}
