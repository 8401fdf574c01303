//! The floor under `file:`: the least that a lock in SQLite can do. Two transactions, with a fence and an expiry, and nothing else.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

const TABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
     CREATE TABLE locks (name TEXT PRIMARY KEY, owner BLOB NOT NULL, fence INTEGER NOT NULL, expires INTEGER NOT NULL) \
     STRICT, WITHOUT ROWID";
const TAKE: &str = "INSERT INTO locks VALUES (?1, ?2, 1, ?3) ON CONFLICT (name) DO UPDATE \
     SET owner = excluded.owner, fence = fence + 1, expires = excluded.expires WHERE expires <= ?4 RETURNING fence";
const RELEASE: &str = "UPDATE locks SET expires = 0 WHERE name = ?1 AND owner = ?2 AND fence = ?3";
const LEASE_NANOS: i64 = 30_000_000_000;

/// Bare SQLite.
pub(crate) struct Bare {
    connection: Connection,
    began: Instant,
}

impl Bare {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).expect("a database");
        connection.execute_batch(TABLE).expect("a table");
        Self { connection, began: Instant::now() }
    }

    /// How long the two transactions take.
    pub(crate) fn take_and_release(&self, name: &str, owner: [u8; 16]) -> Duration {
        let began = Instant::now();
        let fence = self.take(name, owner);
        self.release(name, owner, fence);
        began.elapsed()
    }

    fn take(&self, name: &str, owner: [u8; 16]) -> i64 {
        let now = self.began.elapsed().as_nanos() as i64 + 1;
        self.execute("BEGIN IMMEDIATE");
        let mut take = self.connection.prepare_cached(TAKE).expect("a statement");
        let fence = take.query_row(params![name, owner, now + LEASE_NANOS, now], |row| row.get(0)).expect("a grant");
        self.execute("COMMIT");
        fence
    }

    fn release(&self, name: &str, owner: [u8; 16], fence: i64) {
        self.execute("BEGIN IMMEDIATE");
        let mut release = self.connection.prepare_cached(RELEASE).expect("a statement");
        assert_eq!(release.execute(params![name, owner, fence]).expect("a release"), 1);
        self.execute("COMMIT");
    }

    fn execute(&self, text: &str) {
        self.connection.prepare_cached(text).and_then(|mut statement| statement.execute([])).expect("a transaction");
    }
}
