//! What goes in and out of a command, and how its end is passed on.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::harness::{Place, code, output, stderr, stdout};

#[test]
fn the_first_command_of_the_readme() {
    let output = output(Place::new().run("demo", &["echo", "hello"]));
    assert_eq!((code(&output), stdout(&output).as_str(), stderr(&output).as_str()), (0, "hello\n", ""));
}

#[test]
fn input_output_and_errors_go_through() {
    let place = Place::new();
    let mut run = place.shell("a", "cat; echo err >&2");
    let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let text = "line\n".repeat(100_000);
    let mut input = child.stdin.take().unwrap();
    let sent = text.clone();
    let sender = std::thread::spawn(move || input.write_all(sent.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    sender.join().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (0, "err\n"));
    assert_eq!(stdout(&output), text);
}

#[test]
fn other_descriptors_go_through_and_none_of_ours() {
    let place = Place::new();
    let list = |prefix: &str| {
        let line = format!("exec 7>seven; {prefix} sh -c 'echo seven >&7; ls /proc/self/fd'");
        stdout(&output(place.outside(&line)))
    };
    let open = list(r#""$LEASEHOLD" run a --"#);
    assert_eq!(std::fs::read_to_string(place.path("seven")).unwrap(), "seven\n");
    assert_eq!(open, list(""), "as without us");
}

#[test]
fn what_the_command_closes_is_closed() {
    let place = Place::new();
    // The reader ends when all writers have, although the command still runs; then the command is released.
    let line = r#"mkfifo pipe
        "$LEASEHOLD" run a -c 'exec >&-; while [ ! -e seen ]; do sleep 0.01; done' >pipe &
        cat pipe; touch seen; wait $!; echo done"#;
    assert_eq!(stdout(&output(place.outside(line))), "done\n");
}

#[test]
fn arguments_are_left_as_they_are() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"\xff\n --wait");
    let mut run = place.run("a", &["printf", "%s|", "", "two words", "-s"]);
    let output = output({
        run.arg(odd);
        run
    });
    assert_eq!(output.stdout, b"|two words|-s|\xff\n --wait|");
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let place = Place::new();
    for (line, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 75", 75),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        assert_eq!(code(&output(place.shell("a", line))), expected, "{line}");
    }
    assert!(place.is_free("a"));
}

#[test]
fn a_command_that_cannot_be_started_leaves_nothing_held() {
    let place = Place::new();
    std::fs::write(place.path("plain"), "").unwrap();
    for (command, expected, says) in [
        ("/no/such/command", 127, "not found"),
        ("no-such-command-anywhere", 127, "not found"),
        ("./plain", 126, "denied"),
    ] {
        let output = output(place.run("a", &[command]));
        assert_eq!(code(&output), expected, "{command}");
        assert!(stderr(&output).contains(command) && stderr(&output).contains(says), "{}", stderr(&output));
        assert!(stderr(&output).contains("Nothing is held") && place.is_free("a"), "{}", stderr(&output));
    }
    let cooldown = output(place.run("a --at-least 10m", &["/no/such/command"]));
    assert!(stderr(&cooldown).contains("until --at-least is over") && !place.is_free("a"), "{}", stderr(&cooldown));
}

#[test]
fn a_script_that_does_not_say_who_reads_it_is_read_by_sh() {
    let place = Place::new();
    executable(&place, "script", "echo $0 $1 $#");
    let mut by_name = place.run("a", &["script", "", "two"]);
    by_name.env("PATH", format!("/nowhere:{}:{}", place.path("").display(), std::env::var("PATH").unwrap()));
    for (run, name) in [(place.run("a", &["./script", "", "two"]), "./script"), (by_name, "/script")] {
        let output = output(run);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).ends_with(&format!("{name} 2\n")), "{}", stdout(&output));
    }
}

fn executable(place: &Place, name: &str, text: &str) {
    std::fs::write(place.path(name), text).unwrap();
    std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_command_has_a_process_group_of_its_own() {
    let line = r#"set -- $(cat /proc/$$/stat); echo $$ $5"#;
    if cfg!(target_os = "linux") {
        let output = output(Place::new().shell("a", line));
        let (pid, group) = stdout(&output).trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(pid, group);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_was_ignored_or_blocked_stays_so_and_nothing_else() {
    let place = Place::new();
    for before in ["", "trap '' HUP INT TERM;", "trap '' TSTP TTOU;"] {
        let masks = |prefix: &str| {
            let line = format!("{before} exec {prefix} grep -E '^Sig(Blk|Ign)' /proc/self/status");
            stdout(&output(place.outside(&line)))
        };
        let without = masks("");
        assert_eq!(without.lines().count(), 2);
        assert_eq!(masks(r#""$LEASEHOLD" run a --"#), without, "{before}");
    }
}
