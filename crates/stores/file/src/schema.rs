//! What the file says of itself is not believed: its tables are those that this store makes, or it is refused.
//!
//! Whoever can write the file can write a schema into it, with triggers that run for ever in every process that writes.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result};

use crate::error::{self, Fault};
use crate::open::MIGRATIONS;

/// How much of a schema is looked at: ours has four tables.
const MOST: usize = 64;

/// One table, trigger or index, without the comments and spaces of its text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    kind: String,
    name: String,
    text: String,
}

/// Lets nothing that stands in the file run: no trigger, no view, no function of the program around it.
pub(crate) fn distrust(connection: &Connection) -> Result<()> {
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Refuses a file with other tables than those of a format.
pub(crate) fn check(connection: &Connection, format: i64) -> std::result::Result<(), Fault> {
    let steps = usize::try_from(format).unwrap_or(usize::MAX);
    let made = Connection::open_in_memory()?;
    for step in MIGRATIONS.iter().take(steps) {
        made.execute_batch(step)?;
    }
    let (known, found) = (entries(&made)?, entries(connection)?);
    if let Some(odd) = found.iter().find(|entry| !known.contains(entry)) {
        return Err(error::odd_schema(&odd.kind, &odd.name).into());
    }
    match known.iter().find(|entry| !found.contains(entry)) {
        Some(missing) => Err(error::no_table(&missing.name).into()),
        None => Ok(()),
    }
}

fn entries(connection: &Connection) -> Result<Vec<Entry>> {
    let mut statement = connection.prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_schema")?;
    let entries = statement.query_map([], |row| {
        Ok(Entry { kind: row.get(0)?, name: row.get(1)?, text: bare(row.get_ref(2)?.as_str()?) })
    })?;
    entries.take(MOST).collect()
}

/// The text of a schema without comments and spaces: both may differ between versions.
fn bare(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.flat_map(str::chars).filter(|letter| !letter.is_whitespace()).collect()
}
