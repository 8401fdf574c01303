//! A process that can have no more files or threads gets an error: nothing panics.

use std::path::Path;
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
    let program = std::env::current_exe().expect("this program");
    for url in [format!("redis://{place}"), format!("redlock://{place},127.0.0.1:1,127.0.0.1:2?quarantine=0s")] {
        for files in 4..24 {
            is_told(Command::new("sh").args(["-c", &limited(&format!("ulimit -n {files}"), &program)]), &url);
        }
    }
    no_more_threads_is_an_error(&format!("redis://{place}"));
}

/// Root has as many threads as it likes, so the child has a user of its own, and a copy of this program that it can reach.
fn no_more_threads_is_an_error(url: &str) {
    let has_users = Command::new("setpriv").arg("--version").output().is_ok_and(|ran| ran.status.success())
        && Command::new("id").arg("-u").output().is_ok_and(|ran| ran.stdout == b"0\n");
    assert!(has_users || std::env::var_os("LEASEHOLD_TEST_ALL").is_none(), "root and setpriv are needed");
    if !has_users {
        return;
    }
    let program = std::env::temp_dir().join(format!("leasehold-limits-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    let user = (1_500_000_000 + std::process::id()).to_string();
    let user = ["--reuid", &user, "--regid", &user, "--clear-groups"];
    let with = |threads: u32| {
        // Some shells have the one letter, some the other.
        let limit = format!("ulimit -p {threads} 2>/dev/null || ulimit -u {threads}");
        is_told(Command::new("setpriv").args(user).args(["sh", "-c", &limited(&limit, &program)]), url)
    };
    let ran = (2..8).filter(|threads| with(*threads)).count();
    std::fs::remove_file(&program).expect("it is there");
    assert!(ran > 0, "the child never ran");
}

fn limited(limit: &str, program: &Path) -> String {
    format!("{limit}; exec {program:?} --exact no_more_files_is_an_error --nocapture --test-threads 1")
}

/// Whether the child ran at all: a program cannot even be loaded with very few files.
fn is_told(child: &mut Command, url: &str) -> bool {
    let ran = child.env(CHILD, url).output().expect("a shell");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(!said.contains("panicked"), "{url}, {child:?}: {said}");
    assert!(ran.status.success() || !shown.contains("running"), "{url}, {child:?}: {said} {shown}");
    shown.contains("running")
}

/// Whatever comes of it: an error or a lock.
fn child(url: &str) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    runtime.block_on(async {
        let attempt = async { Client::connect(url).await?.lock("a")?.try_acquire().await.map(drop) };
        if let Ok(Err(error)) = tokio::time::timeout(std::time::Duration::from_secs(20), attempt).await {
            println!("{error}");
        }
    });
}
