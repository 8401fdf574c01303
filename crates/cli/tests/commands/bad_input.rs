//! Wrong input: each has its own clear message and exit code, and nothing is lost.

use crate::harness::{Place, Running};

#[test]
fn wrong_usage_ends_with_64() {
    let place = Place::new();
    let long = "x".repeat(513);
    let long_owner = "x".repeat(257);
    for (args, words) in [
        (&["show", "a", "--store", "nowhere://x"][..], "known are"),
        (&["show", "a", "--store", "nothing"], "scheme"),
        (&["show", "a", "--store", "rediss://host"], "TLS is not supported yet"),
        (&["show", "a", "--store", "file:"], "path"),
        (&["show", "a", "--store", "memory:?keep=soon"], "250ms"),
        (&["show", "a", "--store", "memory:?nonsense=1"], "nonsense"),
        (&["acquire", ""], "empty"),
        (&["acquire", "a,,b"], "empty"),
        (&["show", ""], "empty"),
        (&["renew", "", "--owner", "me"], "empty"),
        (&["release", "", "--owner", "me"], "empty"),
        (&["break", "", "--yes"], "empty"),
        (&["hold", &long], "513 bytes"),
        (&["acquire", &long], "513 bytes"),
        (&["acquire", "a\u{1b}b"], "U+001B"),
        (&["list", "a\nb"], "U+000A"),
        (&["acquire", "a", "--lease", "1ms"], "200ms to 24h"),
        (&["acquire", "a", "--lease", "-3s"], "no sign"),
        (&["acquire", "a", "--lease", "2days"], "200ms to 24h"),
        (&["hold", "a", "--keep", "1ms"], "200ms to 24h"),
        (&["hold", "a", "--keep", "2days"], "200ms to 24h"),
        (&["renew", "a", "--owner", "me", "--lease", "1ms"], "200ms to 24h"),
        (&["acquire", "a", "--lease", "soon"], "250ms"),
        (&["acquire", "a", "--lease", "10"], "250ms"),
        (&["acquire", "a", "--wait", "3years"], "year"),
        (&["acquire", "a", "--wait", "1s", "--no-wait"], "--no-wait"),
        (&["hold", "a", "--wait", "1s", "--no-wait"], "--no-wait"),
        (&["acquire", "a", "--owner", ""], "owner"),
        (&["acquire", "a", "--owner", "a\tb"], "owner"),
        (&["acquire", "a", "--owner", &long_owner], "256"),
        (&["acquire", "a", "--label", "a\tb"], "label"),
        (&["hold", "a", "--label", &long_owner], "label"),
        (&["release", "a"], "--owner"),
        (&["renew", "a"], "--owner"),
        (&["renew", "a", "--owner", "me", "--fence", "many"], "many"),
        (&["acquire"], "NAME"),
        (&["acquire", "a", "--nonsense"], "--nonsense"),
        (&["nonsense"], "nonsense"),
        (&["completions", "nonsense"], "nonsense"),
        (&["man", "nonsense"], "nonsense"),
        (&["break", "a"], "--yes"),
        (&[], "no command"),
    ] {
        let ran = place.run(args);
        ran.fails(64, words);
        assert_eq!(ran.out, "", "{args:?}");
    }
    assert_eq!(place.run(&["list", "--json"]).is(0).out, "", "something was taken");
}

/// A hint is what to give instead, not where to read on.
#[test]
fn wrong_usage_says_what_to_give_instead() {
    let place = Place::new();
    let long = "x".repeat(513);
    for (args, instead) in [
        (&["show", "a", "--store", "nowhere://x"][..], "file:/"),
        (&["show", "a", "--store", "nothing"], "file:/"),
        (&["show", "a", "--store", "file:"], "file:/"),
        (&["show", "a", "--store", "file:x?nonsense=1"], "liveness"),
        (&["show", "a", "--store", "memory:?keep=soon"], "250ms"),
        (&["show", "a", "--store", "memory:?keep=30h"], "10s"),
        (&["show", "a", "--store", "memory:?nonsense=1"], "keep and budget"),
        (&["show", "a", "--store", "redis:host"], "redis://"),
        (&["show", "a", "--store", "redis://host?layout=mine"], "redisson"),
        (&["show", "a", "--store", "redis://host?nonsense=1"], "prefix"),
        (&["show", "a", "--store", "redis://host?timeout=1ms"], "500ms"),
        (&["show", "a", "--store", "redis://host?prefix=%"], "256 bytes"),
        (&["show", "a", "--store", "redis+unix:///x?db=two"], "?db=2"),
        (&["show", "a", "--store", "redlock://a,b"], "redis://"),
        (&["show", "a", "--store", "redlock://a,b,c,d"], "even=yes"),
        (&["show", "a", "--store", "redlock://a,b,a"], "once"),
        (&["show", "a", "--store", "redlock://a,,b"], "redlock://host:port,"),
        (&["show", "a", "--store", "redlock://a,b,c?nonsense=1"], "quarantine"),
        (&["show", "a", "--store", "redlock://a,b,c?layout=redisson"], "leave"),
        (&["show", "a", "--store", "redlock://a,b,c?limit=1us"], "1ms to 10s"),
        (&["show", "a", "--store", "redlock://a,b,c?quarantine=1ms"], "200ms"),
        (&["show", ""], "512 bytes"),
        (&["acquire", &long], "512 bytes"),
        (&["list", "a\nb"], "control characters"),
        (&["acquire", "a,,b"], "comma"),
        (&["acquire", "a", "--lease", "1ms"], "--lease 30s"),
        (&["hold", "a", "--keep", "2days"], "--keep 30s"),
        (&["acquire", "a", "--lease", "soon"], "250ms"),
        (&["acquire", "a", "--wait", "3years"], "leave"),
        (&["acquire", "a", "--wait", "1s", "--no-wait"], "one of the two"),
        (&["run", "a", "--keep", "1s", "--lease", "1s", "--", "true"], "one of the two"),
        (&["run", "a", "--busy-exit", "300", "--", "true"], "0 to 255"),
        (&["run", "a", "--report", "", "--", "true"], "--report FILE"),
        (&["acquire", "a", "--owner", ""], "256 bytes"),
        (&["acquire", "a", "--label", "a\tb"], "control characters"),
        (&["release", "a"], "--owner ID"),
        (&["renew", "a,b", "--owner", "me", "--fence", "1"], "leave --fence out"),
        (&["renew", "a", "--owner", "me", "--fence", "many"], "whole number"),
        (&["acquire"], "NAME"),
        (&["acquire", "a", "--nonsense"], "'leasehold acquire --help'"),
        (&["nonsense"], "run, hold, acquire"),
        (&["completions", "nonsense"], "one of"),
        (&["bench", "--for", "0s"], "--for 10s"),
        (&["bench", "--workload", "hot", "--tasks", "0"], "1 to"),
    ] {
        let ran = place.run(args);
        let hint = ran.is(64).err.split_once("\nhint: ").map(|(_, hint)| hint.to_owned());
        assert!(hint.as_ref().is_some_and(|hint| hint.contains(instead)), "{args:?}: {instead:?} is missing: {ran:?}");
    }
}

/// What is missing, and how to write it.
#[test]
fn run_without_a_command_says_so() {
    let place = Place::new();
    place.run(&["run", "x"]).fails(64, "no command to run").fails(64, "leasehold run x -- ");
    place.run(&["run", "x", "--no-wait"]).fails(64, "no command to run");
    let without = place.run(&["run", "x", "--no-wait", "echo", "hello", "-n"]);
    without.fails(64, "after '--'").fails(64, "'leasehold run x --no-wait -- echo hello -n'");
    place.run(&["run", "x", "--nonsense", "--", "true"]).fails(64, "--nonsense");
    place.run(&["run"]).fails(64, "NAME");
    let unquoted = place.run(&["run", "x", "-c", "echo", "hi"]);
    unquoted.fails(64, "-c takes one argument\nhint: quote the whole line: -c 'echo hi'\n");
}

#[test]
fn what_was_meant_is_suggested() {
    let place = Place::new();
    for (given, meant) in [("unlock", "release"), ("status", "show"), ("lock", "run")] {
        place.run(&[given, "a"]).fails(64, &format!("hint: did you mean 'leasehold {meant}'? the commands are"));
    }
    let mistyped = place.run(&["acquire", "a", "--timeout", "3s"]);
    assert!(!mistyped.fails(64, "--timeout").err.contains("as a value"), "{mistyped:?}");
    place.run(&["acquire", "a", "--wait"]).fails(64, "write it like '--wait 10s'");
    let help = place.run(&["help", "show"]);
    assert_eq!(help.is(0).out, place.run(&["show", "--help"]).is(0).out);
    let missing =
        place.run(&["acquire", "a", "--no-create", "--store", &format!("file:{}", place.path("x.db").display())]);
    missing.fails(
        78,
        "and --no-create is set\nhint: check the path; without --no-create, the first lock creates the file",
    );
}

#[test]
fn the_end_of_max_hold_is_called_by_its_name() {
    let place = Place::new();
    let ran = place.run(&["run", "x", "--max-hold", "500ms", "--", "sleep", "60"]);
    ran.fails(76, "--max-hold was over").fails(76, "'leasehold show x'");
    assert!(!ran.err.contains("renewed"), "{ran:?}");
}

/// It would run twice at the same time, without a warning.
#[test]
fn a_lock_that_only_this_process_sees_is_warned_of_once() {
    let place = Place::new();
    let ran = place.run(&["-s", "memory:", "run", "x", "--", "echo", "ran"]);
    assert_eq!(ran.is(0).out, "ran\n");
    assert_eq!(ran.err.matches("in this process only").count(), 1, "{ran:?}");
    assert!(!place.run(&["run", "x", "--", "true"]).is(0).err.contains("process only"));
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"a\xff");
    Running::start(place.command(&["acquire"]).arg(name)).ended().fails(64, "UTF-8");
}

#[test]
fn without_a_home_there_is_no_default_store() {
    let place = Place::new();
    for variable in ["HOME", "XDG_STATE_HOME"] {
        let mut command = place.bare(&["list"]);
        Running::start(command.env_remove("HOME").env(variable, "")).ended().fails(64, "HOME");
    }
    let mut given = place.command(&["list"]);
    Running::start(given.env_remove("HOME")).ended().is(0);
    let mut needless = place.bare(&["completions", "bash"]);
    Running::start(needless.env_remove("HOME")).ended().is(0).says("leasehold");
}

#[test]
#[cfg(target_os = "linux")]
fn the_state_folder_may_be_elsewhere() {
    let place = Place::new();
    let mut command = place.bare(&["acquire", "a"]);
    Running::start(command.env("XDG_STATE_HOME", place.path("elsewhere"))).ended().is(0);
    assert!(place.path("elsewhere/leasehold/locks.db").is_file());
}

#[test]
fn the_flag_goes_before_the_variable() {
    let place = Place::new();
    let other = format!("file:{}", place.path("other.db").display());
    place.run(&["acquire", "a", "-s", &other]).is(0);
    assert!(!place.is_held("a"));
    assert_eq!(place.run(&["list", "--json", "--store", &other]).json_lines()[0]["store"], other);
}

/// A variable that is not set in a crontab would otherwise mean a file of the user's own, which excludes no one.
#[test]
fn an_empty_store_is_not_the_default_one() {
    let place = Place::new();
    for args in [&["acquire", "a"][..], &["run", "a", "--", "echo", "ran"], &["list"], &["doctor"]] {
        let mut by_variable = place.bare(args);
        let ran = Running::start(by_variable.env("LEASEHOLD_STORE", "")).ended();
        ran.fails(64, "LEASEHOLD_STORE is empty").fails(64, "unset it");
        for flag in [&["--store", ""][..], &["--store="], &["-s", ""]] {
            let ran = place.run(&[flag, args].concat());
            ran.fails(64, "--store is empty").fails(64, "leave it out");
            assert_eq!(ran.out, "", "{args:?}");
        }
    }
    let mut given = place.command(&["acquire", "a", "--store", &place.store()]);
    Running::start(given.env("LEASEHOLD_STORE", "")).ended().is(0);
    let mut needless = place.bare(&["completions", "bash"]);
    Running::start(needless.env("LEASEHOLD_STORE", "")).ended().is(0);
    assert!(!place.path(".local").exists() && !place.path("Library").exists(), "the default one was made");
}

/// Its path may be mistyped. Without a terminal nothing is said: output of a command under a lock is as without it.
#[test]
fn a_file_that_is_made_is_told_of_where_more_is_said() {
    let place = Place::new();
    let made = "only programs that use the same path are kept out";
    assert_eq!(place.run(&["run", "a", "--", "true"]).is(0).err, "");
    let other = format!("file:{}", place.path("other.db").display());
    let ran = place.run(&["-v", "-s", &other, "acquire", "a", "--json"]);
    assert_eq!(ran.is(0).err.matches(made).count(), 1, "{ran:?}");
    assert_eq!(ran.json()["granted"], true);
    assert!(!place.run(&["-v", "-s", &other, "acquire", "b"]).is(0).err.contains(made));
    let default = Running::start(&mut place.bare(&["-v", "acquire", "a"])).ended();
    assert!(!default.is(0).err.contains(made), "{default:?}");
}

#[test]
fn an_unfit_file_is_left_as_it_was() {
    let place = Place::new();
    let folder = format!("file:{}", place.path("").display());
    place.run(&["show", "a", "--store", &folder]).fails(78, "folder");
    place.run(&["acquire", "a", "--store", "file:/dev/null"]).fails(78, "/dev/null");
    let garbage = b"this is no file of locks".repeat(300);
    std::fs::write(place.file(), &garbage).unwrap();
    for args in
        [&["acquire", "a"][..], &["list"], &["hold", "a"], &["release", "a", "--owner", "me"], &["break", "a", "--yes"]]
    {
        place.run(args).fails(78, &place.store());
    }
    assert_eq!(std::fs::read(place.file()).unwrap(), garbage);
}

#[test]
fn passwords_are_not_shown() {
    let place = Place::new();
    for url in ["redis://user:secret@host", "secret@host", "postgres://user:secret@host/db?x=1"] {
        for args in [&["list"][..], &["-vv", "doctor"], &["schema"], &["--help"], &["acquire", "a", "--nonsense"]] {
            let mut command = place.command(args);
            let ran = Running::start(command.env("LEASEHOLD_STORE", url).env("LEASEHOLD_PASSWORD", "secret")).ended();
            assert!(!ran.out.contains("secret") && !ran.err.contains("secret"), "{ran:?}");
        }
    }
}

/// A mistyped path creates no file: its locks would exclude no one.
#[test]
fn without_creation_a_path_that_is_not_there_is_refused() {
    let place = Place::new();
    let missing = format!("file:{}", place.path("no/such.db").display());
    for args in [&["acquire", "a"][..], &["run", "a", "-c", "echo ran"], &["hold", "a"]] {
        let ran = place.run(&[&["--no-create", "--store", &missing], args].concat());
        assert_eq!(ran.fails(78, "there is no store at").out, "");
    }
    place.run(&["acquire", "a", "--no-create"]).fails(78, "there is no store at");
    let listed = place.run(&["list", "--no-create"]);
    assert!(listed.is(0).err.contains("does not exist, so no lock is held there"), "{listed:?}");
    assert!(!place.path("no").exists() && !place.file().exists());
    place.make();
    place.run(&["acquire", "a", "--no-create", "--no-wait"]).is(0);
}

#[test]
fn a_sign_before_a_duration_is_told_with_its_unit() {
    let place = Place::new();
    for (args, told) in [
        (&["acquire", "a", "--wait", "-1s"][..], "'-1s' was not expected"),
        (&["acquire", "a", "--wait=-1s"], "'-1s' for '--wait <D>': a duration has no sign"),
        (&["acquire", "a", "--lease", "+90s"], "'+90s' for '--lease <D>': a duration has no sign"),
        (&["run", "a", "--max-hold", "-250ms", "--", "true"], "'-250ms' was not expected"),
    ] {
        place.run(args).fails(64, told);
    }
}
