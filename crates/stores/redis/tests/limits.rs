//! A process that can have no more files is told so: nothing panics.

use std::process::Command;

use leasehold::Client;
use leasehold_faults::servers::{Missing, Redis};

const CHILD: &str = "LEASEHOLD_TEST_CHILD_OF_LIMITS";

/// In a process of its own, as the limit is the process's.
#[test]
fn no_more_files_is_an_error() {
    if let Ok(url) = std::env::var(CHILD) {
        return child(&url);
    }
    let server = match Redis::start() {
        Err(error) if Missing::may_be_ignored(&error) => return,
        server => server.expect("a server"),
    };
    let place = server.address();
    for url in [format!("redis://{place}"), format!("redlock://{place},127.0.0.1:1,127.0.0.1:2?quarantine=0s")] {
        for files in 4..24 {
            let program = std::env::current_exe().expect("this program");
            let limited =
                format!("ulimit -n {files}; exec {:?} --exact no_more_files_is_an_error --nocapture", program);
            let ran = Command::new("sh").args(["-c", &limited]).env(CHILD, &url).output().expect("a shell");
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(!said.contains("panicked"), "{url} with {files} files: {said}");
            assert!(ran.status.success() || !shown.contains("running"), "{url} with {files} files: {said} {shown}");
        }
    }
}

/// Whatever comes of it: an error or a lock.
fn child(url: &str) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    runtime.block_on(async {
        let attempt = async { Client::connect(url).await?.lock("a").try_acquire().await.map(drop) };
        if let Ok(Err(error)) = tokio::time::timeout(std::time::Duration::from_secs(20), attempt).await {
            println!("{error}");
        }
    });
}
