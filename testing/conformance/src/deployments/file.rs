//! `file:` in a folder of its own.

use std::sync::Arc;

use crate::case::Failure;
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
            Hook::Processes => None,
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
}
