//! Small programs and libraries in C, for what cannot be done without.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Compiles `source`; the result has that name in a folder of its own.
pub(crate) fn compiled(name: &str, source: &str, flags: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.c");
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(Path::new(folder.path()).join(name)).arg(file).args(flags);
    assert!(compiler.status().unwrap().success());
    folder
}
