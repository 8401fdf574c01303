//! Removes what is no longer needed: ended leases, waiters that are gone, and free pages of the file.

use std::hash::BuildHasher;

use leasehold_core::{Fence, StoreTime};
use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::database::Epoch;
use crate::rows::signed;

/// Number of writes between two steps.
const WRITES_PER_STEP: u32 = 128;
/// Maximum number of rows scanned in a step.
const ROWS_PER_STEP: i64 = 256;
/// Number of free pages that the file keeps for later.
const SPARE_PAGES_MAX: i64 = 256;
/// Maximum number of pages returned to the disk in a step.
const PAGES_PER_STEP: i64 = 128;

/// Sweeps the file step by step between the writes. The file stores the position.
#[derive(Debug)]
pub(crate) struct Sweeper {
    writes: u32,
}

impl Default for Sweeper {
    /// A random start, so that processes with only a few writes sweep now and then too.
    fn default() -> Self {
        let chance = std::collections::hash_map::RandomState::new().hash_one(0);
        Self { writes: u32::try_from(chance % u64::from(WRITES_PER_STEP)).unwrap_or_default() }
    }
}

impl Sweeper {
    /// Counts a write, and sweeps a step when it is due. A failure is left for the next step: nothing depends on it.
    pub(crate) fn step(&mut self, connection: &Connection, epoch: Epoch) {
        self.writes += 1;
        if self.writes < WRITES_PER_STEP {
            return;
        }
        self.writes = 0;
        if connection.execute_batch("BEGIN IMMEDIATE").is_err() {
            return;
        }
        let swept = Self::sweep(connection, epoch).and_then(|()| connection.execute_batch("COMMIT"));
        if swept.is_err() {
            let _ = connection.execute_batch("ROLLBACK");
        }
    }

    fn sweep(connection: &Connection, epoch: Epoch) -> Result<()> {
        let (number, at): (i64, String) = connection
            .prepare_cached("SELECT epoch, swept FROM meta")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if number != epoch.number {
            // Another machine's clock is in use.
            return Ok(());
        }
        let now = epoch.now();
        let reached: Option<String> = connection
            .prepare_cached("SELECT name FROM holds WHERE name > ?1 ORDER BY name LIMIT 1 OFFSET ?2")?
            .query_row(params![at, ROWS_PER_STEP], |row| row.get(0))
            .optional()?;
        sweep_range(connection, now, &at, reached.as_deref())?;
        let reached = reached.unwrap_or_default();
        if reached != at {
            connection.prepare_cached("UPDATE meta SET swept = ?1")?.execute([reached])?;
        }
        shrink(connection)
    }
}

/// A lease is removed when it is over and the clock has passed its fences.
fn sweep_range(connection: &Connection, now: StoreTime, after: &str, to: Option<&str>) -> Result<()> {
    let (time, fence) = (signed(now.as_nanos()), signed(Fence::at(now).get()));
    connection
        .prepare_cached(
            "DELETE FROM holds WHERE name IN (SELECT name FROM holds WHERE name > ?1 AND (?2 IS NULL OR name <= ?2) \
             GROUP BY name HAVING max(CASE given WHEN 0 THEN expires ELSE 0 END) <= ?3 AND max(first + len - 1) < ?4)",
        )?
        .execute(params![after, to, time, fence])?;
    if to.is_none() {
        // At the end of a round: the small tables.
        connection.prepare_cached("DELETE FROM waiters WHERE until <= ?1")?.execute([time])?;
        connection
            .prepare_cached("DELETE FROM names WHERE lingers_until <= ?1 AND last < ?2")?
            .execute([time, fence])?;
    }
    Ok(())
}

/// Returns free pages to the disk.
fn shrink(connection: &Connection) -> Result<()> {
    let free: i64 = connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))?;
    if free > SPARE_PAGES_MAX {
        let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_PER_STEP})"))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_go_back_to_the_disk_but_for_some() {
        let connection = Connection::open_in_memory().unwrap();
        let fill = "PRAGMA auto_vacuum = INCREMENTAL; CREATE TABLE filler (page BLOB); \
             WITH RECURSIVE page(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM page WHERE n < 400) \
             INSERT INTO filler SELECT zeroblob(4000) FROM page; \
             DELETE FROM filler;";
        connection.execute_batch(fill).unwrap();
        let free = || connection.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0)).unwrap();
        let before = free();
        assert!(before > SPARE_PAGES_MAX && before <= SPARE_PAGES_MAX + 2 * PAGES_PER_STEP, "{before}");
        shrink(&connection).unwrap();
        assert_eq!(free(), before - PAGES_PER_STEP);
        shrink(&connection).unwrap();
        let kept = free();
        assert!(kept <= SPARE_PAGES_MAX, "{kept}");
        shrink(&connection).unwrap();
        assert_eq!(free(), kept, "some are kept for later");
    }
}
