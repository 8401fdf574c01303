//! Forgetting what nobody will ask for again: leases that ran out, waiters that went away, and room in the file.

use leasehold_core::{Fence, StoreTime};
use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::database::Epoch;
use crate::rows::signed;

/// A step of sweeping is done every so many writes.
const EVERY: u32 = 128;
/// How many rows a step looks at.
const ROWS: i64 = 256;
/// How many free pages the file may keep for later.
const SPARE_PAGES: i64 = 256;
/// How many pages a step gives back.
const PAGES: i64 = 128;

/// Goes through the file a little at a time, beside the writes.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    writes: u32,
    /// The last name it has looked at.
    at: String,
}

impl Sweeper {
    /// Counts a write, and sweeps a little when it is time. What fails is left for the next time: nothing depends on it.
    pub(crate) fn step(&mut self, connection: &Connection, epoch: Epoch) {
        self.writes += 1;
        if self.writes < EVERY {
            return;
        }
        self.writes = 0;
        if connection.execute_batch("BEGIN IMMEDIATE").is_err() {
            return;
        }
        let swept = self.sweep(connection, epoch).and_then(|()| connection.execute_batch("COMMIT"));
        if swept.is_err() {
            let _ = connection.execute_batch("ROLLBACK");
        }
    }

    fn sweep(&mut self, connection: &Connection, epoch: Epoch) -> Result<()> {
        let number: i64 = connection.prepare_cached("SELECT epoch FROM meta")?.query_row([], |row| row.get(0))?;
        if number != epoch.number {
            // Another machine's clock counts now.
            return Ok(());
        }
        let now = epoch.now();
        let reached: Option<String> = connection
            .prepare_cached("SELECT name FROM holds WHERE name > ?1 ORDER BY name LIMIT 1 OFFSET ?2")?
            .query_row(params![self.at, ROWS], |row| row.get(0))
            .optional()?;
        sweep_range(connection, now, &self.at, reached.as_deref())?;
        self.at = reached.unwrap_or_default();
        shrink(connection)
    }
}

/// A lease is forgotten when it is over, and the clock has passed its fences.
fn sweep_range(connection: &Connection, now: StoreTime, after: &str, to: Option<&str>) -> Result<()> {
    let (time, fence) = (signed(now.as_nanos()), signed(Fence::at(now).get()));
    connection
        .prepare_cached(
            "DELETE FROM holds WHERE name IN (SELECT name FROM holds WHERE name > ?1 AND (?2 IS NULL OR name <= ?2) \
             GROUP BY name HAVING max(CASE given WHEN 0 THEN expires ELSE 0 END) <= ?3 AND max(first + len - 1) < ?4)",
        )?
        .execute(params![after, to, time, fence])?;
    if to.is_none() {
        // Once around: the small tables.
        connection.prepare_cached("DELETE FROM waiters WHERE until <= ?1")?.execute([time])?;
        connection
            .prepare_cached("DELETE FROM names WHERE lingers_until <= ?1 AND last < ?2")?
            .execute([time, fence])?;
    }
    Ok(())
}

/// Gives room that is not needed any more back to the disk.
fn shrink(connection: &Connection) -> Result<()> {
    let free: i64 = connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))?;
    if free > SPARE_PAGES {
        let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
    }
    Ok(())
}
