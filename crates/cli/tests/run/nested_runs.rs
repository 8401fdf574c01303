//! The variables of a command, and a `run` inside a `run`.

use rustix::process::Signal;
#[cfg(target_os = "linux")]
use rustix::process::{Pid, kill_process};

use crate::harness::{Place, Running, code, output, program_path, stderr, stdout};

#[test]
fn the_command_is_told_of_its_lock() {
    let place = Place::new();
    let line = "echo $LEASEHOLD_NAME $LEASEHOLD_OWNER $LEASEHOLD_STORE_LABEL $LEASEHOLD_STORE $LEASEHOLD_PASSWORD";
    let mut run = place.shell("a --owner me", line);
    run.env("LEASEHOLD_PASSWORD", "secret");
    let output = output(run);
    let text = stdout(&output);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!((words[0], words[1]), ("a", "me"), "{}", stderr(&output));
    assert!(words[2].contains("locks.db"));
    assert_eq!(words[3..], [place.store().as_str()], "and of no password");
}

#[test]
#[cfg(target_os = "linux")]
fn one_inside_has_the_password_where_it_is_passed_on() {
    let place = Place::new();
    let shown = "echo $LEASEHOLD_STORE $LEASEHOLD_PASSWORD; tr '\\0' ' ' </proc/$PPID/cmdline";
    let mut run = place.program();
    let inside = ["--", program_path().to_str().unwrap(), "run", "a", "--pass-secrets", "-c", shown];
    run.args(["run", "a", "--pass-secrets"]).args(inside);
    run.env("LEASEHOLD_PASSWORD", "secret");
    let output = output(run);
    let text = stdout(&output);
    assert!(text.starts_with(&format!("{} secret\n", place.store())), "{text}{}", stderr(&output));
    assert_eq!(text.matches("secret").count(), 1, "not among the words of the guardian");
}

#[test]
fn several_locks_are_told_with_their_fences() {
    let place = Place::new();
    let mut run = place.program();
    run.args(["run", r"b,a\,c,b", "-c", "echo $LEASEHOLD_NAME; echo $LEASEHOLD_FENCE; echo $LEASEHOLD_FENCES"]);
    let text = stdout(&output(run));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], r"a\,c,b");
    assert!(lines[2].starts_with(&format!(r"a\,c={},b=", lines[1])), "{text}");
}

#[test]
fn more_names_than_a_command_can_be_told_of_are_refused() {
    let place = Place::new();
    let names: Vec<String> = (0..6_000).map(|number| format!("name-{number:06}")).collect();
    let output = output(place.run(&names.join(","), &["echo", "ran"]));
    assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint: use fewer or shorter names"), "{}", stderr(&output));
    assert!(place.is_free("name-000001"));
}

#[test]
fn owners_are_fresh_and_fences_grow() {
    let place = Place::new();
    let told = || {
        let text = stdout(&output(place.shell("a", "echo $LEASEHOLD_OWNER $LEASEHOLD_FENCE")));
        let (owner, fence) =
            text.trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.parse::<u64>().unwrap())).unwrap();
        (owner, fence)
    };
    let ((one, first), (two, second)) = (told(), told());
    assert!(one != two && one.len() == 36 && first < second, "{one} {first} {two} {second}");
}

#[test]
fn the_same_name_inside_joins_with_the_outer_fence_and_group() {
    let place = Place::new();
    let inner = r#""$LEASEHOLD" run a --no-wait -c 'echo $LEASEHOLD_FENCE $LEASEHOLD_OWNER $(ps -o pgid= -p $$)'"#;
    let line = format!(r#"echo $LEASEHOLD_FENCE $LEASEHOLD_OWNER $(ps -o pgid= -p $$); {inner}; echo $?"#);
    let output = output(place.shell("a", &line));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}{}", stderr(&output));
    assert_eq!((lines[0], lines[2]), (lines[1], "0"), "{}", stderr(&output));
    assert!(place.is_free("a"));
}

#[test]
fn one_of_several_names_can_be_joined_but_not_one_more() {
    let place = Place::new();
    let line = r#""$LEASEHOLD" run b --no-wait -- echo joined; "$LEASEHOLD" run b,c --wait 5s -- echo never; echo $?"#;
    let output = output(place.shell("a,b", line));
    assert_eq!(stdout(&output), "joined\n64\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("\"b\" is held by an outer run"), "{}", stderr(&output));
}

#[test]
fn several_names_inside_join_with_the_outer_fences() {
    let place = Place::new();
    let inner = |names| format!("\"$LEASEHOLD\" run {names} --no-wait -c 'echo $LEASEHOLD_FENCES $LEASEHOLD_OWNER'");
    let line = format!("echo $LEASEHOLD_FENCES $LEASEHOLD_OWNER; {}; {}; {}", inner("c,a,b"), inner("a,c"), inner("b"));
    let output = output(place.shell("a,b,c", &line));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}{}", stderr(&output));
    assert_eq!(lines[0], lines[1]);
    let (fences, owner) = lines[0].split_once(' ').unwrap();
    let fences: Vec<&str> = fences.split(',').collect();
    assert_eq!(lines[2], format!("{},{} {owner}", fences[0], fences[2]));
    assert_eq!(lines[3], format!("{} {owner}", fences[1]));
    assert!(place.is_free("a,b,c"));
}

#[test]
fn another_name_or_store_inside_is_a_lock_of_its_own() {
    let place = Place::new();
    let line = r#"echo $LEASEHOLD_OWNER; "$LEASEHOLD" run db -c 'echo $LEASEHOLD_OWNER $LEASEHOLD_NAME'
        "$LEASEHOLD" --store "$LEASEHOLD_STORE.other" run deploy -c 'echo $LEASEHOLD_OWNER $LEASEHOLD_NAME'"#;
    let text = stdout(&output(place.shell("deploy", line)));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with(" db") && lines[2].ends_with(" deploy"), "{text}");
    assert!(!lines[1].starts_with(lines[0]) && !lines[2].starts_with(lines[0]), "{text}");
}

#[test]
fn two_of_another_name_side_by_side_exclude_each_other() {
    let place = Place::new();
    // Each adds one to a number that nothing else protects.
    let add =
        "for i in 1 2 3 4 5; do \"$LEASEHOLD\" run db -c 'n=$(cat n); sleep 0.02; echo $((n+1)) >n' || exit 1; done";
    let line = format!("echo 0 >n; ({add}) & a=$!; ({add}) & b=$!; wait $a && wait $b && cat n");
    let output = output(place.shell("deploy", &line));
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "10\n"), "{}", stderr(&output));
}

#[test]
fn one_that_joins_after_the_outer_lock_is_gone_does_not_run() {
    let place = Place::new();
    let outer = Running::start(place.shell("a --owner me", "echo $LEASEHOLD_FENCE $LEASEHOLD_STORE_LABEL"));
    let text = outer.line();
    let (fence, label) = text.split_once(' ').unwrap();
    outer.end();
    let mut late = place.shell("a", "echo ran");
    late.env("LEASEHOLD_NAME", "a").env("LEASEHOLD_OWNER", "me").env("LEASEHOLD_STORE_LABEL", label);
    late.env("LEASEHOLD_FENCE", fence).env("LEASEHOLD_FENCES", format!("a={fence}"));
    let output = output(late);
    assert_eq!((code(&output), stdout(&output).as_str()), (76, ""), "{}", stderr(&output));
    assert!(place.is_free("a"));
}

/// What a command says of its lock and of its process group.
const SAYS: &str = "echo $LEASEHOLD_FENCES $LEASEHOLD_OWNER $(ps -o pgid= -p $$)";

/// A `run` in a shell of its own, which ends as it does.
fn inside(words: &str, line: &str) -> String {
    format!("\"$LEASEHOLD\" run {words} -c '{}'", line.replace('\'', r"'\''"))
}

#[test]
fn a_lock_of_a_run_further_out_is_joined() {
    for (outermost, fences) in [("a", 1), ("a,b", 2)] {
        let place = Place::new();
        let innermost = format!("{SAYS}; {}; echo $?", inside("a --wait 5s", SAYS));
        let line = format!("{SAYS}; {}", inside("b --wait 5s", &innermost));
        let output = output(place.shell(outermost, &line));
        let text = stdout(&output);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines.len(), 4, "{text}{}", stderr(&output));
        assert_eq!(lines[3], ["0"], "{}", stderr(&output));
        let outer: Vec<&str> = lines[0][0].split(',').collect();
        assert_eq!(outer.len(), fences);
        assert_eq!((lines[2][0], lines[2][1]), (outer[0], lines[0][1]), "the fence and the owner of the outermost");
        assert_eq!(lines[2][2], lines[1][2], "the group of the command that it is in");
        assert!(place.is_free("a,b"));
    }
}

#[test]
fn every_run_around_is_known_however_deep() {
    let place = Place::new();
    let names = "echo $LEASEHOLD_NAME";
    let all = ["a", "b", "c", "a,b"].map(|name| inside(&format!("{name} --wait 5s"), names)).join("; ");
    // The names of the outermost run together, although one in between has joined only one of them.
    let line = inside("b --wait 5s", &inside("c --wait 5s", &inside("a --wait 5s", &all)));
    let output = output(place.shell("a,b", &line));
    assert_eq!(stdout(&output), "a\nb\nc\na,b\n", "{}", stderr(&output));
    assert!(place.is_free("a,b,c"));
}

#[test]
fn names_that_several_runs_around_have_between_them_are_refused() {
    let place = Place::new();
    for names in ["a,b", "a,z", "a,b,z"] {
        let line = inside("b", &format!("{}; echo $?", inside(&format!("{names} --wait 5s"), "echo never")));
        let output = output(place.shell("a", &line));
        assert_eq!(stdout(&output), "64\n", "{names}: {}", stderr(&output));
        assert!(stderr(&output).contains("\"a\" is held by an outer run"), "{}", stderr(&output));
        assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
    }
}

#[test]
fn on_another_store_in_between_each_joins_its_own() {
    let place = Place::new();
    let elsewhere = |words: &str, line: &str| inside(words, line).replacen("run", r#"--store "$THERE" run"#, 1);
    let line =
        elsewhere("a --wait 5s", &format!("echo $LEASEHOLD_OWNER; {}", inside("a --wait 5s", "echo $LEASEHOLD_OWNER")));
    let mut run = place.shell("a --owner me", &line);
    run.env("THERE", format!("{}.there", place.store()));
    let output = output(run);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0] != "me" && lines[1] == "me", "{text}{}", stderr(&output));
}

#[test]
fn what_is_told_of_the_runs_around_does_not_grow_by_joining() {
    let place = Place::new();
    let deep = (0..6).fold("env | grep ^LEASEHOLD_OUTER | wc -c".to_owned(), |line, depth| {
        let counted = if depth % 2 == 0 { format!("env | grep ^LEASEHOLD_OUTER | wc -c; {line}") } else { line };
        inside(["a", "b"][depth % 2], &counted)
    });
    let output = output(place.shell("a,b", &deep));
    let text = stdout(&output);
    let sizes: Vec<&str> = text.lines().collect();
    assert_eq!(sizes.len(), 4, "{text}{}", stderr(&output));
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{text}");
}

#[test]
fn without_the_name_there_is_no_run_around() {
    let place = Place::new();
    let line = format!("unset LEASEHOLD_NAME; {}; echo $?", inside("a --no-wait", "echo joined"));
    let output = output(place.shell("a", &inside("b", &line)));
    assert_eq!(stdout(&output), "75\n", "{}", stderr(&output));
}

#[test]
fn what_no_run_has_written_gives_nobody_a_lock() {
    let place = Place::new();
    let holder = Running::start(place.shell("a --owner me", "echo $LEASEHOLD_FENCE $LEASEHOLD_STORE_LABEL; sleep 60"));
    let text = holder.line();
    let (fence, label) = text.split_once(' ').unwrap();
    let chain = |fences: &str| format!(r#"[{{"store":"{label}","owner":"me","fences":{fences}}}]"#);
    let told = [
        (String::new(), 75),
        ("[".into(), 75),
        ("null".into(), 75),
        (chain("null"), 75),
        (chain("{}"), 75),
        (chain(r#"{"b":1}"#), 75),
        (chain(r#"{"a":-1}"#), 75),
        (chain(r#"{"a":1}"#), 76), // the owner's, but of another grant
        (chain(&format!(r#"{{"a":{fence}}}"#)), 0),
    ];
    for (chain, expected) in told {
        let mut run = place.shell("a --no-wait", "echo ran");
        run.env("LEASEHOLD_NAME", "b").env("LEASEHOLD_OWNER", "you").env("LEASEHOLD_STORE_LABEL", label);
        run.env("LEASEHOLD_FENCE", "1").env("LEASEHOLD_FENCES", "b=1").env("LEASEHOLD_OUTER", &chain);
        let output = output(run);
        assert_eq!(code(&output), expected, "{chain}: {}", stderr(&output));
        assert_eq!(stdout(&output).as_str(), if expected == 0 { "ran\n" } else { "" }, "{chain}");
    }
    holder.signal(Signal::TERM);
    holder.end();
}

#[test]
fn variables_that_outlive_every_run_around_give_nobody_a_lock() {
    let place = Place::new();
    let saved = output(place.shell("a", &inside("b", "export -p | grep LEASEHOLD_ >saved")));
    assert_eq!(code(&saved), 0, "{}", stderr(&saved));
    for name in ["a", "b"] {
        let late = output(place.outside(&format!(". ./saved; {}", inside(&format!("{name} --no-wait"), "echo ran"))));
        assert_eq!((code(&late), stdout(&late).as_str()), (76, ""), "{}", stderr(&late));
        assert!(stderr(&late).contains("unset LEASEHOLD_NAME"), "{}", stderr(&late));
    }
    assert!(place.is_free("a,b"));
}

#[test]
#[cfg(target_os = "linux")]
fn one_that_has_joined_a_lock_further_out_ends_with_it() {
    let place = Place::new();
    let left = "setsid sh -c \"trap : TERM; echo \\$\\$; while :; do sleep 0.01; done\" & wait";
    let running = Running::start(place.shell("a --keep 3s", &inside("b", &inside("a --wait 5s", left))));
    let left = Pid::from_raw(running.line().parse().unwrap()).unwrap();
    let mut taken = place.program();
    taken.args(["break", "a", "--yes", "--now"]);
    assert_eq!(code(&output(taken)), 0);
    assert_eq!(running.end().0.code(), Some(76));
    assert!(kill_process(left, Signal::CONT).is_err(), "it is gone before the outermost is");
    assert!(place.is_free("a"));
}

#[test]
#[cfg(target_os = "linux")]
fn one_that_has_joined_a_lock_further_out_ends_when_the_outermost_is_killed() {
    let place = Place::new();
    let left = "setsid sh -c \"trap : TERM; echo \\$\\$; while :; do sleep 0.01; done\" & wait";
    let mut running = Running::start(place.shell("a --keep 3s", &inside("b", &inside("a --wait 5s --keep 60s", left))));
    let left = Pid::from_raw(running.line().parse().unwrap()).unwrap();
    running.signal(Signal::KILL);
    running.status();
    assert_eq!(code(&output(place.run("a", &["true"]))), 0);
    assert!(kill_process(left, Signal::CONT).is_err(), "it works beside the next holder");
}

/// It stands before a comma when names are put together, where it would make that comma one of the name's.
#[test]
fn a_backslash_at_the_end_of_a_name_hides_no_run_around() {
    let place = Place::new();
    let mut run = place.program();
    let line = format!("{}; echo $?", inside("b --no-wait", "echo $LEASEHOLD_NAME"));
    run.args(["run", r"b,a\", "-c", &line]);
    let output = output(run);
    assert_eq!(stdout(&output), "b\n0\n", "{}", stderr(&output));
}

/// Nothing is shared there, so nothing can be joined, nor waited for, nor lost.
#[test]
fn in_a_store_of_one_process_there_is_no_run_around() {
    let place = Place::new();
    let alone = |words: &str, line: &str| inside(words, line).replacen("run", "--store memory: run", 1);
    for names in ["a", "a,z"] {
        let line = format!("{}; echo $?", alone(&format!("{names} --wait 5s"), "echo $LEASEHOLD_NAME"));
        let mut run = place.shell("a", &line);
        run.env("LEASEHOLD_STORE", "memory:");
        let output = output(run);
        assert_eq!(stdout(&output), format!("{names}\n0\n"), "{}", stderr(&output));
    }
}

#[test]
fn one_that_could_not_join_keeps_nobody_out() {
    let place = Place::new();
    let saved = output(place.shell("a", "export -p | grep LEASEHOLD_ >saved"));
    assert_eq!(code(&saved), 0, "{}", stderr(&saved));
    let late = output(place.outside(&format!(". ./saved; {}", inside("a --no-wait --at-least 1h", "echo ran"))));
    assert_eq!((code(&late), stdout(&late).as_str()), (76, ""), "{}", stderr(&late));
    assert!(place.is_free("a"), "nothing was run, and others are kept out for an hour");
    // A run that has joined does.
    let joined = output(place.shell("a", &inside("a --no-wait --at-least 1h", "echo ran")));
    assert_eq!((code(&joined), stdout(&joined).as_str()), (0, "ran\n"), "{}", stderr(&joined));
    assert!(!place.is_free("a"));
}

#[test]
fn whoever_waits_for_what_a_run_around_has_is_told() {
    let place = Place::new();
    let inner = [program_path().to_str().unwrap(), "acquire", "a", "--wait", "3s"];
    let output = output(place.run("a", &inner));
    assert_eq!(code(&output), 75, "{}", stderr(&output));
    assert!(stderr(&output).contains("this waits for itself"), "{}", stderr(&output));
}

#[test]
fn one_whose_outer_lock_is_gone_does_not_wait_for_who_has_it_now() {
    let place = Place::new();
    let saved = output(place.shell("a", "export -p | grep LEASEHOLD_ >saved"));
    assert_eq!(code(&saved), 0, "{}", stderr(&saved));
    let next = Running::start(place.shell("a", "echo mine; sleep 600"));
    assert_eq!(next.line(), "mine");
    let late = output(place.outside(&format!(". ./saved; {}", inside("a", "echo ran"))));
    assert_eq!((code(&late), stdout(&late).as_str()), (76, ""), "{}", stderr(&late));
    next.signal(Signal::TERM);
    next.end();
}

#[test]
fn several_names_that_are_joined_are_kept_from_others_for_at_least_so_long() {
    let place = Place::new();
    let joined = output(place.shell("a,b", &inside("a,b --no-wait --at-least 1h", "echo ran")));
    assert_eq!((code(&joined), stdout(&joined).as_str()), (0, "ran\n"), "{}", stderr(&joined));
    assert!(!place.is_free("a") && !place.is_free("b"));
}

/// `--store` is not inherited: without a warning, the inner lock would exclude no run of the outer store.
#[test]
fn another_store_inside_is_told() {
    let place = Place::new();
    let other = format!("file:{}", place.path("other.db").display());
    let inside = |line: &str| {
        let mut run = place.run("a --store", &[]);
        run.arg(&other).args(["-c", line]);
        let ran = output(run);
        (code(&ran), stderr(&ran))
    };
    let warning = format!(
        "leasehold: warning: the surrounding run holds its locks in {other}; this command uses {}. Pass --store here too, or \
         export LEASEHOLD_STORE\n",
        place.store()
    );
    for line in [r#""$LEASEHOLD" run b -- true"#, r#""$LEASEHOLD" show b"#, r#""$LEASEHOLD" acquire b"#] {
        let (code, said) = inside(line);
        assert!(code == 0 && said.ends_with(&warning), "{line}: {said}");
    }
    for line in [
        format!(r#""$LEASEHOLD" run b --store {other} -- true"#),
        format!(r#""$LEASEHOLD" show b --store {}"#, place.store()),
    ] {
        assert_eq!(inside(&line), (0, String::new()), "{line}");
    }
}

/// Otherwise its command would go on beside the next holder until the next renewal.
#[test]
fn nobody_releases_the_lock_of_a_run_by_its_owner() {
    let place = Place::new();
    let running = Running::start(place.shell("a", "echo $LEASEHOLD_OWNER; sleep 600"));
    let owner = running.line();
    for flags in [&[][..], &["--all"]] {
        let mut release = place.program();
        release.args(["release", "a", "--owner", &owner]).args(flags);
        let refused = output(release);
        assert_eq!(code(&refused), 77, "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains("\"a\"") && said.contains("is held by a run (process "), "{said}");
        assert!(said.contains("hint: end that command; 'leasehold break a --yes' takes"), "{said}");
    }
    assert!(!place.is_free("a"));
}

/// What the command itself added can be released, and no more than that.
#[test]
fn a_command_releases_only_the_holds_that_it_added() {
    let place = Place::new();
    let release = r#""$LEASEHOLD" release a --owner $LEASEHOLD_OWNER; echo $?"#;
    let acquire = r#""$LEASEHOLD" acquire a --owner $LEASEHOLD_OWNER >acquired"#;
    let done = output(place.shell("a", &format!("{acquire}; {release}; {release}")));
    assert_eq!((code(&done), &*stdout(&done)), (0, "released one hold of \"a\"; 1 left\n0\n77\n"), "{}", stderr(&done));
}
