//! The file is not trusted: it is refused unless its tables are those that this store creates.
//!
//! A user who can write the file can put triggers into its schema, which could run for ever in every process that
//! writes.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result};

use crate::error::{self, Fault};
use crate::open::MIGRATIONS;

/// Maximum number of schema entries that are read. Ours has four tables.
const ENTRIES_MAX: usize = 64;

/// One table, trigger or index, with its text without comments and spaces.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    kind: String,
    name: String,
    text: String,
}

/// Disables everything in the file that could run: triggers, views, and functions of the host program.
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

/// Refuses a file whose tables are not those of its format.
pub(crate) fn check(connection: &Connection, format: i64) -> std::result::Result<(), Fault> {
    let steps = usize::try_from(format).unwrap_or(usize::MAX);
    let made = Connection::open_in_memory()?;
    for step in MIGRATIONS.iter().take(steps) {
        made.execute_batch(step)?;
    }
    let (known, found) = (entries(&made)?, entries(connection)?);
    if let Some(odd) = found.iter().find(|entry| !known.contains(entry)) {
        return Err(error::foreign_schema(&odd.kind, &odd.name).into());
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
    entries.take(ENTRIES_MAX).collect()
}

/// The text of a schema without comments and spaces, which may differ between versions.
fn bare(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.flat_map(str::chars).filter(|letter| !letter.is_whitespace()).collect()
}
