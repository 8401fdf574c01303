//! Two thousand processes, each in a session of its own, that do not heed SIGTERM. The last one writes the time to the file.

use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::compiled::compiled;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static void stamp(int file) {
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    uint64_t nanos = time.tv_sec * 1000000000ull + time.tv_nsec;
    if (write(file, &nanos, sizeof nanos) < 0) _exit(1);
    usleep(500);
}
int main(int count, char **words) {
    int file = open(words[1], O_WRONLY | O_APPEND);
    signal(SIGTERM, SIG_IGN);
    for (int i = 0; i < 2000; i++)
        if (fork() == 0) {
            setsid();
            for (;;) if (i == 1999) stamp(file); else pause();
        }
    puts("all");
    fflush(stdout);
    for (;;) pause();
}
"#;

static BUILT: LazyLock<TempDir> = LazyLock::new(|| compiled("crowd", SOURCE, &[]));

/// Tells a command the path of the program.
pub(crate) fn tell(command: &mut Command) {
    command.env("CROWD", BUILT.path().join("crowd"));
}
