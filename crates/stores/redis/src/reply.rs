//! Parses the replies of the scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::fence::FENCE_JUMP;
use leasehold_core::port::{
    About, Acquire, Acquired, BreakRefusal, Broken, Busy, Cooldown, Granted, Holder, Inspected, Notification, Released,
    Renewed,
};
use leasehold_core::quorum::{RenewedVote, Vote, Voted, VotingStatus};
use leasehold_core::time::STORE_EPOCH_UNIX_SECONDS;
use leasehold_core::{Block, Error, ErrorKind, Fence, Name, StoreOwner, StoreTime};
use redis::Value;
use smallvec::smallvec;

use crate::error;
use crate::keys;
use crate::legible::{OWNER_MAX, VALUE_MAX, legible};

const EPOCH_MICROS: u64 = STORE_EPOCH_UNIX_SECONDS * 1_000_000;
/// The largest integer that a script counts exactly.
const EXACT: u64 = 1 << 53;

/// A point on the server's clock, in microseconds since 1970.
pub(crate) fn micros(time: StoreTime) -> u64 {
    (time.as_nanos() / 1_000).saturating_add(EPOCH_MICROS).min(EXACT)
}

pub(crate) fn store_time(micros: u64) -> StoreTime {
    StoreTime::from_nanos(micros.saturating_sub(EPOCH_MICROS).saturating_mul(1_000))
}

/// Milliseconds, rounded up: an engine with a coarser unit may hold longer than asked, never shorter.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(EXACT)
}

/// A reply that is a list, read from the front.
pub(crate) struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    pub(crate) fn of(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            other => Err(error::unreadable(&format!("expected a list, got {}", kind_of(&other)))),
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    fn next(&mut self) -> Result<Value, Error> {
        self.0.next().ok_or_else(|| error::unreadable("it is too short"))
    }

    pub(crate) fn list(&mut self) -> Result<Self, Error> {
        Self::of(self.next()?)
    }

    pub(crate) fn number(&mut self) -> Result<i64, Error> {
        match self.next()? {
            Value::Int(number) => Ok(number),
            other => Err(error::unreadable(&format!("expected a number, got {}", kind_of(&other)))),
        }
    }

    pub(crate) fn count<T: TryFrom<i64>>(&mut self) -> Result<T, Error> {
        T::try_from(self.number()?).map_err(|_| error::unreadable("a number out of range"))
    }

    pub(crate) fn text(&mut self) -> Result<String, Error> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Ok(text),
            other => Err(error::unreadable(&format!("expected text, got {}", kind_of(&other)))),
        }
    }

    pub(crate) fn time(&mut self) -> Result<StoreTime, Error> {
        Ok(store_time(self.count()?))
    }

    pub(crate) fn fence(&mut self) -> Result<Fence, Error> {
        Ok(Fence::new(self.count()?))
    }

    fn millis(&mut self) -> Result<Duration, Error> {
        Ok(Duration::from_millis(self.count()?))
    }
}

/// The kind of a value: the value itself may be of any size.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) | Value::Double(_) | Value::BigNumber(_) | Value::Boolean(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. } | Value::Okay => "a text",
        _ => "a list",
    }
}

/// The outcome of an acquire, and the server's clock.
pub(crate) fn acquired(value: Value, names: &[Name]) -> Result<(StoreTime, Acquired), Error> {
    let mut parts = Parts::of(value)?;
    let (what, at) = (parts.text()?, parts.time()?);
    let acquired = match what.as_str() {
        "granted" => Acquired::Granted((0..names.len()).map(|_| granted(parts.list()?)).collect::<Result<_, Error>>()?),
        "busy" => Acquired::Busy(Box::new(busy(&mut parts, names)?)),
        "late" => Acquired::TooLate,
        "unfit" => return Err(unfit_fence(&mut parts, names)?),
        "foreign" => {
            let name = named(&mut parts, names)?;
            return Err(error::foreign_record(&parts.text()?).on_lock(&name));
        }
        "already" => {
            let name = named(&mut parts, names)?;
            let what = "this owner already holds one of the names; release it first, or take it alone to re-enter";
            return Err(Error::new(ErrorKind::AlreadyHeld, "acquire", what).on_lock(&name));
        }
        other => return Err(error::unreadable(other)),
    };
    Ok((at, acquired))
}

/// The grant of an ordinary acquire, from its first fence.
pub(crate) fn granted_as_asked(request: &Acquire, first: Fence, is_jump: bool) -> Result<Acquired, Error> {
    let block = match is_jump {
        true => Block { first: first.plus(FENCE_JUMP), len: 1 },
        false => Block { first, len: request.block.max(1) },
    };
    // A jump from no fence is not a fence.
    if first == Fence::NONE || !are_fences(block) {
        return Err(error::unreadable(NO_FENCES).during("acquire"));
    }
    let granted = Granted { block, holds: 1, left: Duration::from_millis(millis(request.lease)) };
    Ok(Acquired::Granted(smallvec![granted]))
}

const NO_FENCES: &str = "a grant without a fence, or with one out of range";

/// Whether a script can have granted these fences.
fn are_fences(block: Block) -> bool {
    block.first != Fence::NONE && block.len > 0 && block.last().get() < EXACT
}

/// A vote in a quorum, and the server's clock.
pub(crate) fn voted(value: Value, names: &[Name], quarantine: Duration) -> Result<(StoreTime, Vote), Error> {
    let mut parts = Parts::of(value)?;
    let (what, at) = (parts.text()?, parts.time()?);
    if what == "apart" {
        return Err(unfit_epoch(&mut parts, quarantine)?);
    }
    let standing = standing(&mut parts)?;
    let voted = match what.as_str() {
        "took" => Voted::Took { left: parts.millis()? },
        "held" => Voted::Held { left: parts.millis()?, last: parts.fence()? },
        "late" => Voted::TooLate,
        "busy" => Voted::Busy(Box::new(busy(&mut parts, names)?)),
        "unfit" => return Err(unfit_fence(&mut parts, names)?),
        other => return Err(error::unreadable(other)),
    };
    Ok((at, Vote { standing, voted }))
}

/// The server's epoch record names another quarantine, or is not an epoch record.
fn unfit_epoch(parts: &mut Parts, quarantine: Duration) -> Result<Error, Error> {
    let kept = u64::try_from(parts.number()?).map(Duration::from_millis);
    Ok(kept.map_or_else(|_| error::foreign_epoch(), |kept| error::another_quarantine(kept, quarantine)))
}

fn standing(parts: &mut Parts) -> Result<VotingStatus, Error> {
    let left = parts.millis()?;
    Ok(if left.is_zero() { VotingStatus::Votes } else { VotingStatus::Recovering { left } })
}

/// Renewals in a quorum, and the server's clock.
pub(crate) fn renewed_vote(value: Value, quarantine: Duration) -> Result<(StoreTime, RenewedVote), Error> {
    let mut parts = Parts::of(value)?;
    let at = parts.time()?;
    let recovers = parts.number()?;
    let Ok(recovers) = u64::try_from(recovers) else {
        return Err(unfit_epoch(&mut parts, quarantine)?);
    };
    let standing = if recovers == 0 {
        VotingStatus::Votes
    } else {
        VotingStatus::Recovering { left: Duration::from_millis(recovers) }
    };
    Ok((at, RenewedVote { standing, renewed: each_renewed(&mut parts)? }))
}

fn named(parts: &mut Parts, names: &[Name]) -> Result<Name, Error> {
    names.get(parts.count::<usize>()?).cloned().ok_or_else(|| error::unreadable("a name that was not asked for"))
}

fn busy(parts: &mut Parts, names: &[Name]) -> Result<Busy, Error> {
    let name = named(parts, names)?;
    let found = described(parts.list()?)?;
    Ok(Busy {
        name,
        holder: found.holders.into_iter().next(),
        free_in: found.left,
        notification: Notification::default(),
    })
}

/// No clock produced the last fence of a name.
fn unfit_fence(parts: &mut Parts, names: &[Name]) -> Result<Error, Error> {
    let name = named(parts, names)?;
    Ok(error::unfit_fence(&parts.text()?, &parts.text()?).on_lock(&name))
}

fn granted(mut parts: Parts) -> Result<Granted, Error> {
    let block = Block { first: parts.fence()?, len: parts.count()? };
    let granted = Granted { block, holds: parts.count()?, left: parts.millis()? };
    let was_given_back = parts.left() > 0;
    if !are_fences(block) {
        return Err(error::unreadable(NO_FENCES));
    }
    if granted.left.is_zero() && !was_given_back {
        return Err(error::unreadable("a grant with no time left"));
    }
    Ok(granted)
}

/// The description of a name.
struct Described {
    /// Time left; none if there is no expiry or no lock.
    left: Option<Duration>,
    holders: Vec<Holder>,
    /// The last holder, during a cooldown.
    last: Option<Holder>,
}

fn described(mut parts: Parts) -> Result<Described, Error> {
    let (left, _family) = (left(&mut parts)?, parts.number()?);
    let mut found = Described { left, holders: Vec::new(), last: None };
    while parts.left() > 0 {
        let holder = holder(parts.list()?)?;
        if holder.holds > 0 {
            found.holders.push(holder);
        } else {
            found.last = Some(holder);
        }
    }
    Ok(found)
}

fn left(parts: &mut Parts) -> Result<Option<Duration>, Error> {
    Ok(u64::try_from(parts.number()?).ok().map(Duration::from_millis))
}

fn holder(mut parts: Parts) -> Result<Holder, Error> {
    let (kept_as, holds, left, broken) = (parts.text()?, parts.count()?, left(&mut parts)?, parts.number()? == 1);
    if parts.left() == 0 {
        // Another program wrote it.
        let owner = StoreOwner::Shared(legible(&kept_as, VALUE_MAX).into());
        return Ok(Holder { owner, fence: None, holds, left, lease: None, since: None, broken, about: Arc::default() });
    }
    let tag = parts.text()?;
    let owner = keys::owner_of(&tag).unwrap_or_else(|| StoreOwner::Shared(legible(&kept_as, OWNER_MAX).into()));
    let (fence, lease, since) = (parts.fence()?, parts.millis()?, parts.time()?);
    let about = Arc::new(about_of(&parts.text()?));
    Ok(Holder { owner, fence: Some(fence), holds, left, lease: Some(lease), since: Some(since), broken, about })
}

/// The description of a holder: process, host and label, a line each.
pub(crate) fn about(about: &About) -> String {
    let line = |text: Option<&Arc<str>>| text.map(|text| text.replace('\n', " ")).unwrap_or_default();
    let pid = about.pid.map(|pid| pid.to_string()).unwrap_or_default();
    format!("{pid}\n{}\n{}", line(about.host.as_ref()), line(about.label.as_ref()))
}

fn about_of(text: &str) -> About {
    let mut lines = text.splitn(3, '\n').map(|line| Some(line).filter(|line| !line.is_empty()));
    let mut line = || lines.next().flatten();
    About { pid: line().and_then(|pid| pid.parse().ok()), host: line().map(Into::into), label: line().map(Into::into) }
}

/// The outcome of renewals, and the server's clock.
pub(crate) fn renewed(value: Value) -> Result<(StoreTime, Vec<Renewed>), Error> {
    let mut parts = Parts::of(value)?;
    let at = parts.time()?;
    Ok((at, each_renewed(&mut parts)?))
}

/// Stands for the time left if an operator broke the lease.
const BROKEN: i64 = -2;

fn each_renewed(parts: &mut Parts) -> Result<Vec<Renewed>, Error> {
    let mut renewed = Vec::with_capacity(parts.left());
    while parts.left() > 0 {
        renewed.push(match parts.number()? {
            BROKEN => Renewed::Broken,
            left => {
                u64::try_from(left).map_or(Renewed::Lost, |left| Renewed::Kept { left: Duration::from_millis(left) })
            }
        });
    }
    Ok(renewed)
}

/// The outcome of a release, and the server's clock.
pub(crate) fn released(value: Value) -> Result<(StoreTime, Released), Error> {
    let mut parts = Parts::of(value)?;
    let (what, at) = (parts.text()?, parts.time()?);
    let released = match what.as_str() {
        "released" => Released::Released { waiters: Some(parts.count()?) },
        "still" => Released::StillHeld(parts.count()?),
        "not" => Released::NotHeld,
        other => return Err(error::unreadable(other)),
    };
    Ok((at, released))
}

/// The holders of a lock that was broken, and the server's clock.
pub(crate) fn broken(value: Value, name: Name) -> Result<(StoreTime, Broken), Error> {
    let mut parts = Parts::of(value)?;
    let (verdict, at) = (parts.text()?, parts.time()?);
    if verdict == "fence" {
        return Err(error::foreign_fence(&parts.text()?));
    }
    let was = inspected_one(parts, name)?;
    let refused = match verdict.as_str() {
        "done" => None,
        "other" => Some(BreakRefusal::OtherFence),
        "foreign" => Some(BreakRefusal::Foreign),
        "endless" => return Err(error::endless(&was)),
        other => return Err(error::unreadable(other)),
    };
    Ok((at, Broken { was, refused }))
}

/// The holders of locks, and the server's clock.
pub(crate) fn inspected(value: Value, names: Vec<Name>) -> Result<(StoreTime, Vec<Inspected>), Error> {
    let mut parts = Parts::of(value)?;
    let at = parts.time()?;
    let mut all = Vec::new();
    for name in names {
        match parts.next()? {
            // Free names are left out.
            Value::Int(_) => {}
            found => all.push(inspected_one(Parts::of(found)?, name)?),
        }
    }
    Ok((at, all))
}

fn inspected_one(mut parts: Parts, name: Name) -> Result<Inspected, Error> {
    let waiters = Some(parts.count()?);
    let Described { left, holders, last } = described(parts.list()?)?;
    let cooldown = left.filter(|_| holders.is_empty()).map(|left| Cooldown { left, last });
    Ok(Inspected { name, holders, cooldown, waiters })
}
