//! What a command is told of its lock, and a `run` inside a `run`.

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
    assert_eq!((words[3], words[4]), (place.store().as_str(), "secret"));
}

#[test]
#[cfg(target_os = "linux")]
fn one_inside_can_log_in_where_the_outer_one_could() {
    let place = Place::new();
    let shown = "echo $LEASEHOLD_STORE $LEASEHOLD_PASSWORD; tr '\\0' ' ' </proc/$PPID/cmdline";
    let mut run = place.program();
    run.args(["run", "a", "--", program_path().to_str().unwrap(), "run", "a", "-c", shown]);
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
fn owners_are_fresh_and_fences_grow() {
    let place = Place::new();
    let told = || {
        let text = stdout(&output(place.shell("a", "echo $LEASEHOLD_OWNER $LEASEHOLD_FENCE")));
        let (owner, fence) =
            text.trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.parse::<u64>().unwrap())).unwrap();
        (owner, fence)
    };
    let ((one, first), (two, second)) = (told(), told());
    assert!(one != two && one.len() == 32 && first < second, "{one} {first} {two} {second}");
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
    assert!(stderr(&output).contains("\"b\" is held by the run around this one"), "{}", stderr(&output));
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
