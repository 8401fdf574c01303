//! A folder for one measurement on `file:`, gone at its end.

use std::path::{Path, PathBuf};

use leasehold::Client;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A file of its own, in a folder of its own.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("leasehold-bench-").tempdir().expect("a temporary folder"))
    }

    /// A file beside the store's.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.path("locks.db").display())
    }

    pub(crate) fn client(&self, runtime: &Runtime) -> Client {
        runtime.block_on(Client::connect(&self.url())).expect("a client")
    }

    /// Bytes of the file, its log and all that lies beside it.
    pub(crate) fn bytes(&self) -> f64 {
        bytes_of(self.0.path())
    }
}

fn bytes_of(folder: &Path) -> f64 {
    let entries = std::fs::read_dir(folder).expect("a folder that can be read");
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_of(&entry.path()),
        Ok(about) => about.len() as f64,
        Err(_) => 0.0,
    });
    bytes.sum()
}
