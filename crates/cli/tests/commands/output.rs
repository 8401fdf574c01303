//! Help, completions, the manual page, and what a reader that goes away brings about.

use std::process::Stdio;

use crate::harness::{Place, Running};

const COMMANDS: [&str; 13] = [
    "run",
    "hold",
    "acquire",
    "renew",
    "release",
    "list",
    "show",
    "break",
    "bench",
    "doctor",
    "schema",
    "completions",
    "man",
];

#[test]
fn help_and_version_are_no_errors() {
    let place = Place::new();
    let help = place.run(&["--help"]);
    assert_eq!(help.is(0).err, "");
    for command in COMMANDS {
        help.says(&format!("\n  {command}"));
        place.run(&[command, "--help"]).is(0).says("--store");
    }
    assert_eq!(place.run(&["--version"]).is(0).out, format!("leasehold {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]);
        script.is(0).says("acquire").says("no-wait").says("store");
        assert!(!script.out.contains("bench-worker"), "{shell} offers what is not for users");
    }
}

#[test]
fn the_manual_has_every_command_code_and_variable() {
    let place = Place::new();
    let page = place.run(&["man"]);
    page.is(0).says(".TH leasehold 1");
    for command in COMMANDS {
        page.says(&format!("leasehold\\-{command}(1)"));
        place.run(&["man", command]).is(0).says(&format!(".TH leasehold-{command} 1  \"leasehold "));
    }
    for heading in [".SH COMMANDS", ".SH \"NAMES AND DURATIONS\""] {
        page.says(heading);
    }
    assert!(!page.out.contains("EXTRA") && !page.out.contains("SUBCOMMANDS"), "{}", page.out);
    for code in [64, 69, 70, 74, 75, 76, 77, 78] {
        page.says(&format!("\\fB{code}\\fR"));
    }
    for word in ["EXIT STATUS", "128+n", "126, 127", "LEASEHOLD_STORE", "LEASEHOLD_PASSWORD", "NO_COLOR"] {
        page.says(word);
    }
}

#[test]
fn there_is_no_schema_for_a_file() {
    let place = Place::new();
    let ran = place.run(&["schema"]);
    assert_eq!(ran.fails(78, "file:").out, "");
}

/// `leasehold list | head -1` is no reason to complain.
#[test]
fn a_reader_that_has_gone_is_not_complained_about() {
    let place = Place::new();
    place.acquire("a", "me");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = Running::start(place.command(&["list"]).stdout(Stdio::from(writer))).ended();
    assert_eq!(ran.is(74).err, "");
}

/// What cannot be printed is done all the same, and not half of it.
#[test]
fn several_are_given_back_and_broken_though_nobody_reads() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    for words in [&["release", "a,b,c", "--owner", "me"][..], &["break", "a,b,c", "--yes", "--now"]] {
        let place = Place::new();
        place.run(&["acquire", "a,b,c", "--owner", "me", "--lease", "1h"]).is(0);
        Running::start(place.command(words).stdout(full())).ended().is(74);
        assert_eq!(place.run(&["list", "--json"]).is(0).out, "", "{words:?}");
    }
}

/// A sentence for each step that people care for, with the time of the day; with -vv for every step.
#[test]
fn what_is_done_is_told_in_sentences() {
    let place = Place::new();
    place.make();
    let is_stamped = |line: &&str| {
        let stamp = line.strip_prefix("leasehold: ").and_then(|line| line.split(' ').next()).unwrap_or_default();
        stamp.len() == "2026-03-01T09:30:00.250Z".len() && stamp.starts_with("20") && stamp.ends_with('Z')
    };
    let ran = place.run(&["-v", "run", "a", "--", "true"]);
    let said = &ran.is(0).err;
    assert!(said.lines().all(|line| is_stamped(&line)) && !said.contains(" { "), "{said}");
    for sentence in ["the locks are in ", " acquired \"a\" with fence ", " released \"a\" after "] {
        assert_eq!(said.matches(sentence).count(), 1, "{sentence:?}: {said}");
    }
    assert!(!said.contains("asks the store"), "{said}");
    place.acquire("a", "me");
    let more = place.run(&["-vv", "acquire", "a", "--wait", "300ms"]);
    for sentence in ["asks the store for \"a\"", "waits for \"a\"", "did not get \"a\" in", "held by \"me\""] {
        assert!(more.is(75).err.contains(sentence), "{sentence:?}: {}", more.err);
    }
}
