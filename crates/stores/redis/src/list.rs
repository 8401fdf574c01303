//! Inspects one lock, or lists all locks whose names begin alike.
//!
//! Redis has no index of locks. In Redisson's layout, every hash with a matching name is inspected. In the plain
//! layout, another library's lock looks like any other string. With a prefix every string is listed; without one, only
//! the names that leasehold has used in the last eight days, which it knows by their fences.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::port::Inspected;
use leasehold_core::{Error, ErrorKind, Name, StoreTime};
use redis::{Cmd, Value};

use crate::config::Layout;
use crate::error;
use crate::keys;
use crate::reply::{self, Parts};
use crate::store::{Inner, calling};

/// Number of keys that one step of a scan visits.
const KEYS_PER_STEP: usize = 1_000;
/// Maximum number of locks inspected in one call.
const LOCKS_PER_CALL: usize = 200;

/// A scan fails after this time.
const SCAN_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of names that a scan collects.
const NAMES_MAX: usize = 200_000;

/// The result of the last scan, for the pages that follow.
#[derive(Default)]
pub(crate) struct Scanned(Mutex<Option<(String, Arc<[Name]>)>>);

impl Scanned {
    fn get(&self, prefix: &str) -> Option<Arc<[Name]>> {
        let scanned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        scanned.as_ref().filter(|(of, _)| of == prefix).map(|(_, names)| names.clone())
    }

    fn put(&self, scanned: Option<(String, Arc<[Name]>)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = scanned;
    }
}

/// What to report.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    /// One name: a key of another type is an error.
    One,
    /// Only locks: any other value counts as free.
    Locks,
    /// Locks, and other programs' values at their names.
    All,
}

impl Which {
    /// For a list: another program's hash is not a lock, but a string at one of our names is held.
    pub(crate) fn listed(layout: Layout) -> Self {
        match layout {
            Layout::Redisson => Self::Locks,
            Layout::Plain => Self::All,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Locks => "locks",
            Self::All => "all",
        }
    }
}

/// Inspects locks.
pub(crate) async fn inspect(
    inner: &Inner,
    names: Vec<Name>,
    which: Which,
) -> Result<(StoreTime, Vec<Inspected>), Error> {
    let script = &inner.scripts.inspect;
    let mut command = calling(script, names.len() * 4);
    for name in &names {
        let keys = inner.space.keys(name);
        command.arg(keys.lock()).arg(keys.fence()).arg(keys.record()).arg(keys.waiter_expiries());
    }
    command.arg(which.word());
    let only = (names.len() == 1).then(|| names[0].clone());
    let looked = inner.run(script, command).await.and_then(|value| reply::inspected(value, names));
    looked.map_err(|error| error.during("look-up").on_lock_if(only.as_ref()))
}

/// A page of held locks.
pub(crate) async fn page(
    inner: &Inner,
    prefix: String,
    after: Option<Name>,
    limit: usize,
) -> Result<(StoreTime, Vec<Inspected>), Error> {
    let known = after.as_ref().and_then(|_| inner.scanned.get(&prefix));
    let names = match known {
        Some(names) => names,
        None => scan(inner, &prefix).await?.into_iter().collect(),
    };
    let first = after.map_or(0, |after| names.partition_point(|name| *name <= after));
    let (mut page, mut at) = (Vec::new(), StoreTime::default());
    for some in names[first..].chunks(LOCKS_PER_CALL) {
        let (now, found) = inspect(inner, some.to_vec(), Which::listed(inner.layout)).await?;
        at = now;
        page.extend(found);
        if page.len() >= limit {
            break;
        }
    }
    page.truncate(limit);
    inner.scanned.put((page.len() == limit).then_some((prefix, names)));
    if at == StoreTime::default() {
        (at, _) = inspect(inner, Vec::new(), Which::Locks).await?;
    }
    Ok((at, page))
}

/// Where to look for locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Places {
    /// The script tells a lock from another hash.
    Hashes,
    /// Every string with our prefix is a lock, whichever library took it.
    Strings,
    /// Without a prefix a string may be anything; names that leasehold has used lately are known by their fences.
    Fences,
}

impl Places {
    fn of(inner: &Inner) -> Self {
        match inner.layout {
            Layout::Redisson => Self::Hashes,
            Layout::Plain if inner.space.0.is_empty() => Self::Fences,
            Layout::Plain => Self::Strings,
        }
    }
}

/// Names that may be locks: at each something stands, or at one that was found together with it.
async fn scan(inner: &Inner, prefix: &str) -> Result<BTreeSet<Name>, Error> {
    let (space, mut names, mut cursor) = (&inner.space, BTreeSet::new(), "0".to_owned());
    let began = leasehold_clock::now();
    let places = Places::of(inner);
    let (pattern, kind) = match places {
        Places::Hashes => (space.pattern(prefix), "hash"),
        Places::Strings => (space.pattern(prefix), "string"),
        Places::Fences => (space.fence_pattern(prefix), "string"),
    };
    loop {
        let mut command: Cmd = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(KEYS_PER_STEP).arg("TYPE").arg(kind);
        let answer = inner.connection.query(&command).await.map_err(|error| error.during("list"))?;
        let mut parts = Parts::of(answer)?;
        cursor = parts.text()?;
        let (mut found, mut some) = (parts.list()?, Vec::new());
        while found.left() > 0 {
            let key = found.text()?;
            some.extend(match places {
                Places::Hashes | Places::Strings => space.name_of_lock(&key).filter(|name| !keys::is_reserved(name)),
                Places::Fences => space.name_of_fence(&key),
            });
        }
        some.retain(|name: &Name| name.as_str().starts_with(prefix));
        if places != Places::Fences || is_any_there(inner, &some).await? {
            names.extend(some);
        }
        if cursor == "0" {
            return Ok(names);
        }
        if names.len() > NAMES_MAX || leasehold_clock::now().since(began) > SCAN_LIMIT {
            return Err(error::too_many_keys(names.len()));
        }
    }
}

/// Whether any of these keys exists. Most fences belong to released locks, and inspecting each would take long.
async fn is_any_there(inner: &Inner, names: &[Name]) -> Result<bool, Error> {
    if names.is_empty() {
        return Ok(false);
    }
    let mut command = redis::cmd("EXISTS");
    names.iter().for_each(|name| {
        command.arg(inner.space.keys(name).lock());
    });
    match inner.connection.query(&command).await {
        Ok(count) => Ok(count != Value::Int(0)),
        // A user without that right inspects each name.
        Err(error) if error.kind() == ErrorKind::Unfit => Ok(true),
        Err(error) => Err(error.during("list")),
    }
}
