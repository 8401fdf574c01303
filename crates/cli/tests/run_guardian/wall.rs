//! A wall clock that can be stepped for one program: a library that is loaded before the C library's own.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::compiled::compiled;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    const char *path = getenv("WALL_STEP");
    FILE *file = clock == CLOCK_REALTIME && path ? fopen(path, "re") : NULL;
    long step = 0;
    if (file) {
        if (fscanf(file, "%ld", &step) == 1) time->tv_sec += step;
        fclose(file);
    }
    return result;
}
"#;

static BUILT: LazyLock<TempDir> = LazyLock::new(|| compiled("wall.so", SOURCE, &["-shared", "-fPIC", "-ldl"]));

/// Makes `command` read a wall clock with the offset in `file`, in seconds, from when the file exists.
pub(crate) fn steppable(command: &mut Command, file: &Path) {
    command.env("LD_PRELOAD", BUILT.path().join("wall.so")).env("WALL_STEP", file);
}
