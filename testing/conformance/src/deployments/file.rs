//! `file:` in a folder of its own.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use crate::case::{Checked, Failure};
use crate::deployment::{Boxed, Deployment, Hook, Place};

/// The only way to deploy it.
pub(crate) struct File;

impl Deployment for File {
    fn name(&self) -> &'static str {
        "file"
    }

    fn lacks(&self, hook: Hook) -> Option<&'static str> {
        match hook {
            Hook::Restart => Some("file: has no server; restarts of the machine are tried in crates/stores/file"),
            Hook::Processes | Hook::Liveness | Hook::InStep | Hook::Unattended => None,
        }
    }

    fn open(&self) -> Boxed<Result<Arc<dyn Place>, Failure>> {
        Box::pin(async { Ok(Arc::new(Folder(tempfile::tempdir()?)) as Arc<dyn Place>) })
    }
}

struct Folder(tempfile::TempDir);

impl Place for Folder {
    fn url(&self) -> String {
        format!("file:{}/locks.db", self.0.path().display())
    }

    fn records(&self) -> Option<usize> {
        let rows =
            "SELECT (SELECT count(*) FROM holds) + (SELECT count(*) FROM names) + (SELECT count(*) FROM waiters)";
        let connection = rusqlite::Connection::open(self.0.path().join("locks.db")).ok()?;
        connection.query_row(rows, [], |row| row.get::<_, u32>(0)).ok().map(|rows| rows as usize)
    }

    fn check_whole(&self) -> Checked {
        let connection = rusqlite::Connection::open(self.0.path().join("locks.db"))?;
        let found: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if found != "ok" {
            return Err(format!("the file is damaged: {found}").into());
        }
        let left = left_by_the_dead(&self.0.path().join("locks.db.d"))?;
        if left.is_empty() { Ok(()) } else { Err(format!("left by processes that are gone: {left:?}").into()) }
    }
}

/// Files of clients whose liveness file is missing or unlocked. Files that were left incomplete are kept for a while.
fn left_by_the_dead(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some((client, "live" | "sock")) = name.split_once('.') else { continue };
        let live = OpenOptions::new().read(true).write(true).open(folder.join(format!("{client}.live")));
        if live.is_ok_and(|live| live.try_lock_shared().is_err()) {
            continue;
        }
        left.push(name);
    }
    Ok(left)
}
