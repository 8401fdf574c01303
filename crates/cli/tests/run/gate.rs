//! A library that is loaded into every process of a `run` and keeps one of them waiting at a point of its start, until the test lets it go
//! on. It also writes down what the guardian and the starter start.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, mpsc};

use rustix::process::Pid;
use tempfile::TempDir;

use crate::harness::{PATIENCE, Place};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static const char *who = "";
static int at_gate(const char *point, int flags) {
    const char *at = getenv("GATE_AT"), *folder = getenv("GATE");
    char path[4096];
    if (!at || !folder || strcmp(at, point)) return -1;
    snprintf(path, sizeof path, "%s/%s", folder, flags == O_WRONLY ? "arrived" : "go");
    return open(path, flags);
}
static void gate(const char *point) {
    int arrived = at_gate(point, O_WRONLY);
    if (arrived < 0) return;
    dprintf(arrived, "%d", getpid());
    close(arrived);
    close(at_gate(point, O_RDONLY));
}
static void starts(const char *what) {
    const char *folder = getenv("GATE");
    char path[4096];
    if (!folder || strncmp(who, "lease-", 6)) return;
    snprintf(path, sizeof path, "%s/started", folder);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dprintf(file, "%s\n", what);
    close(file);
}
__attribute__((constructor)) static void begin(int count, char **words) {
    if (count > 0) who = words[0];
    gate(who);
}
int execvp(const char *file, char *const words[]) {
    int (*real)(const char *, char *const[]) = dlsym(RTLD_NEXT, "execvp");
    if (!strcmp(who, "lease-starter")) gate("exec");
    starts(file);
    return real(file, words);
}
int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                 char *const words[], char *const environment[]) {
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]) =
        dlsym(RTLD_NEXT, "posix_spawnp");
    starts(words[0]);
    int result = real(pid, file, actions, attributes, words, environment);
    if (getenv("GATE_INTERRUPTS") && !strcmp(words[0], "lease-guardian")) {
        siginfo_t ended;
        kill(*pid, SIGKILL);
        waitid(P_PID, *pid, &ended, WEXITED | WNOWAIT);
        kill(getpid(), SIGINT);
    }
    return result;
}
"#;

static BUILT: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("gate.c"), folder.path().join("gate.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).arg("-ldl").status();
    assert!(built.unwrap().success());
    folder
});

/// Two pipes in the folder of a place.
pub(crate) struct Gate<'a>(&'a Place);

impl<'a> Gate<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        for name in ["arrived", "go"] {
            let made = Command::new("mkfifo").arg(place.path(name)).status().unwrap();
            assert!(made.success());
        }
        Self(place)
    }

    /// Waits until the process is at the gate.
    pub(crate) fn arrived(&self) -> Pid {
        let (sender, receiver) = mpsc::channel();
        let path = self.0.path("arrived");
        std::thread::spawn(move || sender.send(std::io::read_to_string(File::open(path).unwrap()).unwrap()));
        let text = receiver.recv_timeout(PATIENCE).expect("somebody at the gate");
        Pid::from_raw(text.parse().unwrap()).unwrap()
    }

    /// Lets it go on.
    pub(crate) fn open(&self) {
        drop(File::options().write(true).open(self.0.path("go")).unwrap());
    }

    /// What the guardian and the starter have started.
    pub(crate) fn started(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = File::open(self.0.path("started")) {
            file.read_to_string(&mut text).unwrap();
        }
        text
    }
}

/// What to set so that the process with that name, or the starter at `exec`, waits at the gate of this folder.
pub(crate) fn variables(folder: &Path, at: &str) -> [(&'static str, String); 3] {
    let library = BUILT.path().join("gate.so");
    [("LD_PRELOAD", library.display().to_string()), ("GATE", folder.display().to_string()), ("GATE_AT", at.to_owned())]
}
