//! What hints say can be done as it stands: on the same store, in a shell.

use std::process::{Command, Stdio};

use crate::harness::{Place, Running};
use crate::program::{self, Ran};

/// The command that a hint names before these words.
fn named<'a>(ran: &'a Ran, before: &str) -> &'a str {
    let hint = ran.err.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap_or_else(|| panic!("{ran:?}"));
    let at = hint.find("leasehold ").unwrap_or_else(|| panic!("{ran:?}"));
    let command = hint[at..].split(before).next().unwrap();
    // Quotes around the whole are none of the shell's.
    if hint[..at].ends_with('\'') { command.trim_end_matches('\'') } else { command }
}

/// Runs it as if pasted, without a variable that names the store.
fn pasted(place: &Place, line: &str) -> Ran {
    let folder = std::path::Path::new(program::PATH).parent().unwrap().display().to_string();
    let mut shell = program::bare(Command::new("sh"));
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    shell.args(["-c", line]).env("PATH", path).env("HOME", place.path("home"));
    Running::start(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())).ended()
}

#[test]
fn a_command_in_a_hint_looks_at_the_store_that_was_given() {
    let place = Place::new();
    let store = format!("file:{}", place.path("it's here.db").display());
    for name in ["plain", "a b", "it's", "-x", "$HOME;`id`"] {
        Running::start(&mut place.bare(&["acquire", "--store", &store, "--owner", "me", "--", name])).ended().is(0);
        let unsure = Running::start(&mut place.bare(&["break", "--store", &store, "--", name])).ended();
        let line = named(&unsure, " shows more");
        assert!(line.contains("--store"), "{line}");
        pasted(&place, line).is(0).says("is held").says("owner:   me");
    }
}

#[test]
fn a_store_that_came_by_the_variable_is_not_repeated() {
    let place = Place::new();
    place.acquire("a", "me");
    let unsure = place.run(&["break", "a"]);
    unsure.fails(64, "'leasehold show a' shows more");
    let other = place.run(&["renew", "a", "--owner", "you"]);
    other.fails(77, "'leasehold show a' shows who holds it");
}

/// That port has no listener.
#[test]
fn no_password_is_in_a_hint_but_where_it_stands() {
    let place = Place::new();
    let url = "redis://ada:sEcReT@127.0.0.1:1/2?prefix=app:";
    let gone = Running::start(&mut place.bare(&["acquire", "a", "--no-wait", "--store", url])).ended();
    gone.fails(69, "leasehold doctor --store 'redis://ada@127.0.0.1:1/2?prefix=app:' checks more");
    assert!(!gone.err.contains("sEcReT"), "{gone:?}");
    std::fs::write(place.path("password"), "sEcReT").unwrap();
    let file = place.path("password").display().to_string();
    let args = ["acquire", "a", "--no-wait", "--store", "redis://127.0.0.1:1", "--password-file", &file];
    let gone = Running::start(&mut place.bare(&args)).ended();
    assert!(gone.is(69).err.contains(&format!("--store redis://127.0.0.1:1 --password-file {file}")), "{gone:?}");
}
