//! The command line that lies beside this program, as `scripts/bench` has built it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The binary `leasehold`.
pub(crate) fn path() -> PathBuf {
    let path = std::env::current_exe().expect("the path of this program").with_file_name("leasehold");
    assert!(path.exists(), "{} is not there: scripts/bench builds it", path.display());
    path
}

/// The report of `leasehold bench`.
pub(crate) fn bench(store: &str, args: &[&str]) -> Value {
    let mut command = Command::new(path());
    command.args(["--store", store, "bench", "--json"]).args(args).stderr(Stdio::inherit());
    let output = command.output().expect("leasehold runs");
    assert!(output.status.success(), "leasehold bench: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A number of it.
pub(crate) fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} is a number in {report}"))
}
