//! Forgetting what nobody will ask for again: leases that ran out, waiters that went away, and room in the file.

use std::hash::BuildHasher;

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

/// Goes through the file a little at a time, beside the writes. The place it has reached is in the file.
#[derive(Debug)]
pub(crate) struct Sweeper {
    writes: u32,
}

impl Default for Sweeper {
    /// Processes that write a few times only sweep too, now and then: where each begins to count is left to chance.
    fn default() -> Self {
        let chance = std::collections::hash_map::RandomState::new().hash_one(0);
        Self { writes: u32::try_from(chance % u64::from(EVERY)).unwrap_or_default() }
    }
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
            // Another machine's clock counts now.
            return Ok(());
        }
        let now = epoch.now();
        let reached: Option<String> = connection
            .prepare_cached("SELECT name FROM holds WHERE name > ?1 ORDER BY name LIMIT 1 OFFSET ?2")?
            .query_row(params![at, ROWS], |row| row.get(0))
            .optional()?;
        sweep_range(connection, now, &at, reached.as_deref())?;
        let reached = reached.unwrap_or_default();
        if reached != at {
            connection.prepare_cached("UPDATE meta SET swept = ?1")?.execute([reached])?;
        }
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
        assert!(before > SPARE_PAGES && before <= SPARE_PAGES + 2 * PAGES, "{before}");
        shrink(&connection).unwrap();
        assert_eq!(free(), before - PAGES);
        shrink(&connection).unwrap();
        let kept = free();
        assert!(kept <= SPARE_PAGES, "{kept}");
        shrink(&connection).unwrap();
        assert_eq!(free(), kept, "some are kept for later");
    }
}
