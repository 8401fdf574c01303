//! Records of names as rows: loaded whole, saved by what changed. The reference store has the rules that change them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::About;
use leasehold_core::reference::{Hold, LeftBy, Record, Row, Waiter};
use leasehold_core::{Block, ClientId, Fence, Name, RequestId, StoreOwner, StoreTime};
use rusqlite::{CachedStatement, Connection, Result, params};
use smallvec::SmallVec;

/// Everything about a name and the file in one statement. The first column says which table a row is from.
const ALL_OF: &str = "\
    SELECT 0, epoch, ceiling, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM meta UNION ALL \
    SELECT 1, last, lingers_until, 0, owner, client, number, first, 0, lease, since, 0, 0, host, pid, label \
        FROM names WHERE name = ?1 UNION ALL \
    SELECT 2, client, number, turn, owner, given, expires, first, len, lease, since, broken, kept, host, pid, label \
        FROM holds WHERE name = ?1 UNION ALL \
    SELECT 3, client, until, turn, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM waiters WHERE name = ?1";
/// The same for a waiting client, without the other waiters.
const ALL_FOR: &str = "\
    SELECT 0, epoch, ceiling, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM meta UNION ALL \
    SELECT 1, last, lingers_until, 0, owner, client, number, first, 0, lease, since, 0, 0, host, pid, label \
        FROM names WHERE name = ?1 UNION ALL \
    SELECT 2, client, number, turn, owner, given, expires, first, len, lease, since, broken, kept, host, pid, label \
        FROM holds WHERE name = ?1 UNION ALL \
    SELECT 3, client, until, turn, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM waiters WHERE name = ?1 AND client = ?2";
const PUT_HOLD: &str = "INSERT OR REPLACE INTO holds \
     (name, owner, client, number, given, turn, expires, first, len, lease, since, broken, kept, host, pid, label) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
const DROP_HOLD: &str =
    "DELETE FROM holds WHERE name = ?1 AND owner = ?2 AND client = ?3 AND number = ?4 AND given = ?5";
const PUT_NAME: &str = "INSERT OR REPLACE INTO names \
     (name, last, lingers_until, owner, client, number, first, lease, since, host, pid, label) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const DROP_NAME: &str = "DELETE FROM names WHERE name = ?1";
const PUT_WAITER: &str = "INSERT INTO waiters (name, turn, client, until) \
     VALUES (?1, (SELECT coalesce(max(turn), 0) + 1 FROM waiters WHERE name = ?1), ?2, ?3)";
const KEEP_WAITER: &str = "UPDATE waiters SET until = ?3 WHERE name = ?1 AND client = ?2";
const DROP_WAITER: &str = "DELETE FROM waiters WHERE name = ?1 AND client = ?2";

const IS_TURN: &str = "SELECT NOT EXISTS (SELECT 1 FROM holds WHERE name = ?1 AND given = 0 AND expires > ?3) \
     AND NOT EXISTS (SELECT 1 FROM names WHERE name = ?1 AND lingers_until > ?3) \
     AND ?2 IS (SELECT client FROM waiters WHERE name = ?1 AND until > ?3 ORDER BY turn LIMIT 1)";

/// First character of a private owner whose text is not the request itself.
const PRIVATE: char = '\u{1}';

/// A name's record as it was loaded, for comparison when it is saved.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) record: Record,
    /// Whether `names` has a row.
    named: bool,
}

/// One row of `holds`.
#[derive(PartialEq)]
struct HoldRow<'a> {
    row: &'a Row,
    request: RequestId,
    given: bool,
    turn: u32,
    expires: StoreTime,
}

pub(crate) fn load(connection: &Connection, name: &Name) -> Result<(Meta, Loaded)> {
    loaded(connection.prepare_cached(ALL_OF)?.query([name.as_str()])?)
}

/// The view of a client that waits for a name, without the other waiters. Not to be saved.
pub(crate) fn load_for(connection: &Connection, client: ClientId, name: &Name) -> Result<(Meta, Record)> {
    let mut statement = connection.prepare_cached(ALL_FOR)?;
    let (meta, loaded) = loaded(statement.query(params![name.as_str(), client_bytes(client)])?)?;
    Ok((meta, loaded.record))
}

fn loaded(mut rows: rusqlite::Rows<'_>) -> Result<(Meta, Loaded)> {
    let mut loading = RecordBuilder::default();
    while let Some(row) = rows.next()? {
        match row.get::<_, u8>(0)? {
            0 => loading.meta = Meta { epoch: row.get(1)?, ceiling: Fence::new(unsigned(row.get(2)?)) },
            1 => loading.name(row)?,
            2 => loading.hold(row)?,
            _ => loading.waiter(row)?,
        }
    }
    Ok(loading.done())
}

/// What a write must know about the file as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) epoch: i64,
    pub(crate) ceiling: Fence,
}

/// A record while it is loaded, with the turn of each part that has several rows.
#[derive(Default)]
struct RecordBuilder {
    meta: Meta,
    named: bool,
    record: Record,
    turns: SmallVec<[(u32, Waiter); 2]>,
    held: SmallVec<[(u32, bool, RequestId, StoreTime); 2]>,
}

impl RecordBuilder {
    fn name(&mut self, row: &rusqlite::Row<'_>) -> Result<()> {
        self.named = true;
        self.record.last = Fence::new(unsigned(row.get(1)?));
        self.record.cooldown_until = StoreTime::from_nanos(unsigned(row.get(2)?));
        self.record.left_by = left_by(row)?.map(Box::new);
        Ok(())
    }

    /// The rows of one holder follow each other: they are sorted by name and owner.
    fn hold(&mut self, row: &rusqlite::Row<'_>) -> Result<()> {
        let request = RequestId { client: client(row.get(1)?), number: unsigned(row.get(2)?) };
        let owner = owner(row.get_ref(4)?.as_str()?, request);
        if self.record.rows.last().is_none_or(|last| last.owner != owner) {
            self.end_holder();
            self.record.rows.push(holder(row, owner)?);
        }
        let expires = StoreTime::from_nanos(unsigned(row.get(6)?));
        self.held.push((row.get(3)?, row.get(5)?, request, expires));
        Ok(())
    }

    fn end_holder(&mut self) {
        let Some(holder) = self.record.rows.last_mut() else { return };
        self.record.last = self.record.last.max(holder.block.last());
        self.held.sort_by_key(|(turn, ..)| *turn);
        for (_, given, request, expires) in self.held.drain(..) {
            if given {
                holder.given.push_back(request);
            } else {
                holder.holds.push(Hold { request, expires });
                holder.expires = holder.expires.max(expires);
            }
        }
    }

    fn waiter(&mut self, row: &rusqlite::Row<'_>) -> Result<()> {
        let waiter = Waiter { client: client(row.get(1)?), until: StoreTime::from_nanos(unsigned(row.get(2)?)) };
        self.turns.push((row.get(3)?, waiter));
        Ok(())
    }

    fn done(mut self) -> (Meta, Loaded) {
        self.end_holder();
        self.turns.sort_by_key(|(turn, _)| *turn);
        self.record.waiters.extend(self.turns.iter().map(|(_, waiter)| *waiter));
        (self.meta, Loaded { record: self.record, named: self.named })
    }
}

/// The client that released a lingering name.
fn left_by(row: &rusqlite::Row<'_>) -> Result<Option<LeftBy>> {
    let Some(text) = row.get_ref(4)?.as_str_or_null()? else { return Ok(None) };
    let request = RequestId { client: client(row.get(5)?), number: unsigned(row.get(6)?) };
    Ok(Some(LeftBy {
        owner: owner(text, request),
        fence: Fence::new(unsigned(row.get(7)?)),
        lease: Duration::from_nanos(unsigned(row.get(9)?)),
        since: StoreTime::from_nanos(unsigned(row.get(10)?)),
        about: Arc::new(about(row)?),
    }))
}

fn about(row: &rusqlite::Row<'_>) -> Result<About> {
    let text = |column| -> Result<Option<Arc<str>>> { Ok(row.get_ref(column)?.as_str_or_null()?.map(Arc::from)) };
    Ok(About { host: text(13)?, pid: row.get(14)?, label: text(15)? })
}

fn holder(row: &rusqlite::Row<'_>, owner: StoreOwner) -> Result<Row> {
    Ok(Row {
        owner,
        block: Block { first: Fence::new(unsigned(row.get(7)?)), len: row.get(8)? },
        fenced: true,
        holds: SmallVec::new(),
        given: std::collections::VecDeque::new(),
        expires: StoreTime::default(),
        lease: Duration::from_nanos(unsigned(row.get(9)?)),
        since: StoreTime::from_nanos(unsigned(row.get(10)?)),
        broken: row.get(11)?,
        kept: row.get(12)?,
        about: Arc::new(about(row)?),
    })
}

/// The waits whose turn has come: the name is free, and the client is the first waiter.
pub(crate) fn turns(
    connection: &Connection,
    now: StoreTime,
    waits: &[(ClientId, Name)],
) -> Result<Vec<(ClientId, Name)>> {
    let mut statement = connection.prepare_cached(IS_TURN)?;
    let now = signed(now.as_nanos());
    let mut turns = Vec::new();
    for (client, name) in waits {
        if statement.query_row(params![name.as_str(), client_bytes(*client), now], |row| row.get(0))? {
            turns.push((*client, name.clone()));
        }
    }
    Ok(turns)
}

/// Saves what changed. A fence that the clock has passed needs no row, because the file's clock never goes back.
pub(crate) fn save(
    connection: &Connection,
    now: StoreTime,
    name: &Name,
    before: &Loaded,
    after: &Record,
) -> Result<()> {
    let (old, new) = (hold_rows(&before.record), hold_rows(after));
    for gone in old.iter().filter(|old| !new.iter().any(|new| new.is_same_row(old))) {
        let mut statement = connection.prepare_cached(DROP_HOLD)?;
        statement.execute(params![
            name.as_str(),
            owner_text(&gone.row.owner, gone.request),
            client_bytes(gone.request.client),
            signed(gone.request.number),
            gone.given
        ])?;
    }
    for changed in new.iter().filter(|new| !old.contains(new)) {
        changed.put(connection.prepare_cached(PUT_HOLD)?, name)?;
    }
    save_name(connection, now, name, before, after)?;
    save_waiters(connection, name, &before.record, after)
}

fn save_name(connection: &Connection, now: StoreTime, name: &Name, before: &Loaded, after: &Record) -> Result<()> {
    let shown = after.rows.iter().map(|row| row.block.last()).max().unwrap_or_default();
    let last = if after.last > shown && after.last >= Fence::at(now) { after.last } else { Fence::NONE };
    if last > Fence::NONE || after.cooldown_until > now {
        let left_by = after.left_by.as_deref().filter(|_| after.cooldown_until > now);
        put_name(connection.prepare_cached(PUT_NAME)?, name, last, after.cooldown_until, left_by)?;
    } else if before.named {
        connection.prepare_cached(DROP_NAME)?.execute([name.as_str()])?;
    }
    Ok(())
}

fn put_name(
    mut statement: CachedStatement<'_>,
    name: &Name,
    last: Fence,
    until: StoreTime,
    left_by: Option<&LeftBy>,
) -> Result<()> {
    // A private owner is its request. Other owners have none here.
    let request = left_by.and_then(|left_by| match left_by.owner {
        StoreOwner::Private(request) => Some(request),
        StoreOwner::Shared(_) => None,
    });
    let of_request = request.unwrap_or(RequestId { client: ClientId([0, 0]), number: 0 });
    let about = left_by.map(|left_by| &left_by.about);
    statement.execute(params![
        name.as_str(),
        signed(last.get()),
        signed(until.as_nanos()),
        left_by.map(|left_by| owner_text(&left_by.owner, of_request)),
        left_by.map(|_| client_bytes(of_request.client)),
        left_by.map(|_| signed(of_request.number)),
        left_by.map(|left_by| signed(left_by.fence.get())),
        left_by.map(|left_by| signed(u64::try_from(left_by.lease.as_nanos()).unwrap_or(u64::MAX))),
        left_by.map(|left_by| signed(left_by.since.as_nanos())),
        about.and_then(|about| about.host.as_deref()),
        about.and_then(|about| about.pid),
        about.and_then(|about| about.label.as_deref()),
    ])?;
    Ok(())
}

fn save_waiters(connection: &Connection, name: &Name, before: &Record, after: &Record) -> Result<()> {
    if before.waiters == after.waiters {
        return Ok(());
    }
    let now: HashMap<ClientId, StoreTime> = after.waiters.iter().map(|waiter| (waiter.client, waiter.until)).collect();
    let then: HashMap<ClientId, StoreTime> =
        before.waiters.iter().map(|waiter| (waiter.client, waiter.until)).collect();
    for gone in before.waiters.iter().filter(|old| !now.contains_key(&old.client)) {
        connection.prepare_cached(DROP_WAITER)?.execute(params![name.as_str(), client_bytes(gone.client)])?;
    }
    // From the first waiter whose position changed, all get a new turn.
    let mut stayed = before.waiters.iter().map(|waiter| waiter.client).filter(|client| now.contains_key(client));
    let mut in_place = true;
    for waiter in &after.waiters {
        let known = then.get(&waiter.client);
        in_place &= known.is_none() || stayed.next() == Some(waiter.client);
        let sql = match known {
            Some(until) if in_place && *until == waiter.until => continue,
            Some(_) if in_place => KEEP_WAITER,
            Some(_) => {
                connection.prepare_cached(DROP_WAITER)?.execute(params![name.as_str(), client_bytes(waiter.client)])?;
                PUT_WAITER
            }
            None => PUT_WAITER,
        };
        let until = signed(waiter.until.as_nanos());
        connection.prepare_cached(sql)?.execute(params![name.as_str(), client_bytes(waiter.client), until])?;
    }
    Ok(())
}

fn hold_rows(record: &Record) -> SmallVec<[HoldRow<'_>; 2]> {
    let mut flat = SmallVec::new();
    for row in &record.rows {
        for (turn, hold) in (0..).zip(&row.holds) {
            flat.push(HoldRow { row, request: hold.request, given: false, turn, expires: hold.expires });
        }
        for (turn, request) in (0..).zip(&row.given) {
            flat.push(HoldRow { row, request: *request, given: true, turn, expires: StoreTime::default() });
        }
    }
    flat
}

impl HoldRow<'_> {
    fn is_same_row(&self, other: &Self) -> bool {
        self.given == other.given && self.request == other.request && self.row.owner == other.row.owner
    }

    fn put(&self, mut statement: CachedStatement<'_>, name: &Name) -> Result<()> {
        let Row { owner, block, lease, since, broken, kept, about, .. } = self.row;
        statement.execute(params![
            name.as_str(),
            owner_text(owner, self.request),
            client_bytes(self.request.client),
            signed(self.request.number),
            self.given,
            self.turn,
            signed(self.expires.as_nanos()),
            signed(block.first.get()),
            block.len,
            signed(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)),
            signed(since.as_nanos()),
            broken,
            kept,
            about.host.as_deref(),
            about.pid,
            about.label.as_deref(),
        ])?;
        Ok(())
    }
}

/// A private owner is nearly always the request that took the hold. Explicit owners are not empty and have no control
/// characters.
fn owner_text(owner: &StoreOwner, request: RequestId) -> Cow<'_, str> {
    match owner {
        StoreOwner::Private(own) if *own == request => Cow::Borrowed(""),
        StoreOwner::Private(own) => Cow::Owned(format!("{PRIVATE}{}:{}", own.client, own.number)),
        StoreOwner::Shared(id) => Cow::Borrowed(id),
    }
}

fn owner(text: &str, request: RequestId) -> StoreOwner {
    let Some(own) = text.strip_prefix(PRIVATE) else {
        return if text.is_empty() { StoreOwner::Private(request) } else { StoreOwner::Shared(text.into()) };
    };
    let (client, number) = own.split_once(':').unwrap_or_default();
    let client = u128::from_str_radix(client, 16).unwrap_or_default();
    let client = ClientId([(client >> 64) as u64, client as u64]);
    StoreOwner::Private(RequestId { client, number: number.parse().unwrap_or_default() })
}

pub(crate) fn client_bytes(client: ClientId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&client.0[0].to_be_bytes());
    bytes[8..].copy_from_slice(&client.0[1].to_be_bytes());
    bytes
}

pub(crate) fn client(bytes: [u8; 16]) -> ClientId {
    let whole = u128::from_be_bytes(bytes);
    ClientId([(whole >> 64) as u64, whole as u64])
}

/// SQLite's integers are signed. Times and fences stay below 2^63 for centuries; larger values mean "never".
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    number.unsigned_abs()
}
