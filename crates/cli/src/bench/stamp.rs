//! The stamp that a holder leaves for the next one, in a small file that only the holder of the lock reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BYTES: usize = 24;

/// What the last holder left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    /// Its process; zero if there is none.
    pub(crate) worker: u64,
    /// When it began to release, on this machine's clock, in nanoseconds.
    pub(crate) at: u64,
    /// Its fence.
    pub(crate) fence: u64,
}

/// The file, for one process.
#[derive(Debug)]
pub(crate) struct Stamps(File);

impl Stamps {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    pub(crate) fn read(&self) -> io::Result<Stamp> {
        let mut bytes = [0; BYTES];
        self.0.read_exact_at(&mut bytes, 0)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Ok(Stamp { worker: number(0), at: number(8), fence: number(16) })
    }

    pub(crate) fn write(&self, stamp: Stamp) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&stamp.worker.to_le_bytes());
        bytes[8..16].copy_from_slice(&stamp.at.to_le_bytes());
        bytes[16..].copy_from_slice(&stamp.fence.to_le_bytes());
        self.0.write_all_at(&bytes, 0)
    }
}

/// The file itself: created empty, removed on drop.
#[derive(Debug)]
pub(crate) struct StampFile(PathBuf);

impl StampFile {
    pub(crate) fn create(run: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("{run}.stamp"));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let made = Self(path);
        file.write_all_at(&[0; BYTES], 0)?;
        Ok(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StampFile {
    fn drop(&mut self) {
        // At worst a few bytes stay in a temporary folder.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_holder_reads_what_the_last_one_wrote() {
        let file = StampFile::create(&format!("leasehold-stamp-test-{}", std::process::id())).unwrap();
        let (one, other) = (Stamps::open(file.path()).unwrap(), Stamps::open(file.path()).unwrap());
        assert_eq!(other.read().unwrap(), Stamp::default());
        let stamp = Stamp { worker: 3, at: u64::MAX, fence: 1 << 40 };
        one.write(stamp).unwrap();
        assert_eq!(other.read().unwrap(), stamp);
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
