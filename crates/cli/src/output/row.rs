//! The JSON of a lock: unknown values are null.

use std::time::{Duration, SystemTime};

use jiff::{Timestamp, Unit};
use leasehold::{Client, Fence, GroupGuard, Holder, Name, Status};
use serde::Serialize;

use crate::exit::Failure;

/// From here on a JSON number is not exact everywhere.
const EXACT_BELOW: u64 = 1 << 53;

/// One lock, as `acquire`, `hold`, `show` and `list` print it.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// To this call.
    pub(crate) granted: bool,
    /// `None` if unknown.
    pub(crate) held: Option<bool>,
    pub(crate) owner: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence_text: Option<String>,
    pub(crate) holds: Option<u32>,
    pub(crate) broken: Option<bool>,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) left_ms: Option<u64>,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) since: Option<String>,
    pub(crate) waiters: Option<u32>,
    pub(crate) store: String,
}

impl Row {
    /// A name without a holder.
    pub(crate) fn free(name: &Name, store: &str) -> Self {
        Self {
            name: name.to_string(),
            granted: false,
            held: Some(false),
            owner: None,
            label: None,
            fence: None,
            fence_text: None,
            holds: None,
            broken: None,
            lease_ms: None,
            left_ms: None,
            host: None,
            pid: None,
            since: None,
            waiters: None,
            store: store.to_owned(),
        }
    }

    /// A name and its holder.
    pub(crate) fn held(holder: &Holder, store: &str) -> Self {
        Self {
            held: Some(true),
            owner: holder.owner.clone(),
            label: holder.label.as_deref().map(Into::into),
            holds: holder.holds,
            broken: holder.broken,
            lease_ms: holder.lease.map(milliseconds),
            left_ms: holder.left.map(milliseconds),
            host: holder.host.as_deref().map(Into::into),
            pid: holder.pid,
            since: holder.since.and_then(rfc3339),
            ..Self::free(&holder.name, store)
        }
        .with_fence(holder.fence)
    }

    /// What a store knows of a name: a row per holder, one for the last holder if it lingers, or one that says that it
    /// is free.
    pub(crate) fn all_of(status: &Status, store: &str) -> Vec<Self> {
        let mut rows: Vec<Self> =
            status.holders.iter().chain(&status.cooldown).map(|holder| Self::held(holder, store)).collect();
        if rows.is_empty() {
            rows.push(Self::free(&status.name, store));
        }
        rows.iter_mut().for_each(|row| row.waiters = status.waiters);
        rows
    }

    pub(crate) fn with_fence(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence.map(Fence::get);
        self.fence_text = self.fence.filter(|fence| *fence > EXACT_BELOW).map(|fence| fence.to_string());
        self
    }
}

/// One lock, or several together.
#[derive(Serialize, Debug)]
pub(crate) struct Rows {
    granted: bool,
    locks: Vec<Row>,
}

impl Rows {
    pub(crate) fn new(granted: bool, locks: Vec<Row>) -> Self {
        Self { granted, locks }
    }

    /// One object; for a single lock, its own.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        match self.locks.as_slice() {
            [row] => super::json(row),
            _ => super::json(self),
        }
    }
}

/// The rows of new grants. If the store cannot be read, they contain what the guard knows.
pub(crate) async fn granted(client: &Client, guard: &GroupGuard) -> Vec<Row> {
    let store = client.store_label();
    let mut rows = Vec::new();
    for (name, fence) in guard.fences() {
        let status = client.inspect(name.as_str()).await.ok();
        let mine = status.and_then(|status| {
            Row::all_of(&status, store).into_iter().find(|row| row.held == Some(true) && row.fence == Some(fence.get()))
        });
        let known = || Row { held: Some(true), left_ms: guard.time_left().map(milliseconds), ..Row::free(name, store) };
        let row = mine.unwrap_or_else(|| known().with_fence(Some(fence)));
        rows.push(Row {
            granted: true,
            owner: row.owner.or_else(|| Some(guard.guards()[0].owner().to_string())),
            ..row
        });
    }
    rows
}

/// The rows of names that were not granted: for the one that was refused, the holder in the refusal.
pub(crate) async fn busy(client: &Client, names: &[Name], holder: &Holder) -> Vec<Row> {
    let store = client.store_label();
    let mut rows = Vec::new();
    for name in names {
        let found = client.inspect(name.as_str()).await;
        if let Err(error) = &found {
            super::note(&format!("the state of {:?} could not be read: {error}", name.as_str()));
        }
        rows.extend(refused(name, holder, found.ok().as_ref(), store));
    }
    rows
}

/// The rows of one of those names: the current state, unless the refusal has more. Each name has a row.
fn refused(name: &Name, holder: &Holder, found: Option<&Status>, store: &str) -> Vec<Row> {
    let found = found.map_or_else(|| vec![Row::free(name, store)], |status| Row::all_of(status, store));
    if *name == holder.name && !found.iter().any(|row| row.held == Some(true)) {
        return vec![Row::held(holder, store)];
    }
    found
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Always in UTC with milliseconds: all have the same length, and sort as text.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    let time = time.round(Unit::Millisecond).unwrap_or(time);
    Some(time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Row {
        Row::free(&Name::new("a").unwrap(), "memory:")
    }

    #[test]
    fn what_is_not_known_is_null_and_every_field_is_there() {
        let json = serde_json::to_string(&free()).unwrap();
        assert_eq!(
            json,
            r#"{"name":"a","granted":false,"held":false,"owner":null,"label":null,"fence":null,"holds":null,"broken":null,"#
                .to_owned()
                + r#""lease_ms":null,"left_ms":null,"host":null,"pid":null,"since":null,"waiters":null,"store":"memory:"}"#
        );
    }

    #[tokio::test]
    async fn every_name_has_a_row_though_the_store_does_not_answer() {
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        let client = Client::connect("memory:rows").await.unwrap();
        let _held = client.lock("a").expect("a name").acquire().await.unwrap();
        let holder = client.inspect("a").await.unwrap().holders.remove(0);
        let [row] = refused(&a, &holder, None, "x").try_into().unwrap();
        assert!(row.held == Some(true) && row.owner.is_some(), "{row:?}");
        assert_eq!(refused(&b, &holder, None, "x"), [Row::free(&b, "x")]);
    }

    #[test]
    fn a_fence_that_is_not_exact_everywhere_comes_as_text_too() {
        assert_eq!(free().with_fence(Some(Fence::new(EXACT_BELOW))).fence_text, None);
        let above = EXACT_BELOW + 1;
        assert_eq!(free().with_fence(Some(Fence::new(above))).fence_text, Some(above.to_string()));
    }

    #[test]
    fn times_are_rfc_3339_of_one_length() {
        let at = |nanos| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)).unwrap();
        assert_eq!(at(1_600_000_000_123_000_000), "2020-09-13T12:26:40.123Z");
        assert_eq!(at(1_600_000_000_120_000_000), "2020-09-13T12:26:40.120Z");
        assert_eq!(at(1_600_000_000_000_000_000), "2020-09-13T12:26:40.000Z");
        assert_eq!(at(1_600_000_000_999_600_000), "2020-09-13T12:26:41.000Z");
    }
}
