//! On a real terminal: the spinner, colours, and a standard input that belongs to a shell.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::{LIMIT, Place, Running};

/// A terminal, and what was written to it.
struct Terminal {
    master: File,
    written: Receiver<String>,
    seen: String,
    path: std::path::PathBuf,
}

impl Terminal {
    fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = std::path::PathBuf::from(ptsname(&master, Vec::new()).unwrap().into_string().unwrap());
        let master = File::from(master);
        let (send, written) = channel();
        let mut from = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let _ = send.send(String::from_utf8_lossy(&buffer[..count]).into_owned());
            }
        });
        Self { master, written, seen: String::new(), path }
    }

    fn side(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.path).unwrap()
    }

    fn until_it_shows(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let more = self.written.recv_timeout(LIMIT);
            self.seen += &more.unwrap_or_else(|error| panic!("it never showed {text:?} ({error}): {:?}", self.seen));
        }
    }

    fn all(mut self) -> String {
        drop(self.master);
        while let Ok(more) = self.written.recv_timeout(Duration::from_secs(2)) {
            self.seen += &more;
        }
        self.seen
    }
}

#[test]
fn a_spinner_says_who_is_waited_for_and_is_cleared() {
    let place = Place::new();
    place.run(&["acquire", "a", "--label", "nightly", "--owner", "first"]).is(0);
    let mut terminal = Terminal::new();
    let began = Instant::now();
    let waiting = Running::start(place.command(&["acquire", "a", "--json"]).stderr(terminal.side()));
    terminal.until_it_shows("waiting for \"a\" (held for ");
    assert!(began.elapsed() >= Duration::from_secs(1), "it came before a second had passed");
    terminal.until_it_shows("s by \"nightly\" on ");
    place.run(&["release", "a", "--owner", "first"]).is(0);
    assert_eq!(waiting.ended().is(0).json()["granted"], true);
    let shown = terminal.all();
    assert!(shown.contains("for ") && shown.trim_end().ends_with("\u{1b}[2K"), "it was not cleared: {shown:?}");
}

#[test]
fn no_spinner_where_there_is_no_terminal() {
    let place = Place::new();
    place.acquire("a", "first");
    let ran = place.run(&["acquire", "a", "--wait", "1500ms"]);
    assert!(!ran.is(75).err.contains("waiting for"), "{ran:?}");
}

#[test]
fn colours_on_a_terminal_only_and_not_where_they_are_unwanted() {
    let place = Place::new();
    let shown = |no_color: bool, args: &[&str]| {
        let terminal = Terminal::new();
        let mut command = place.command(args);
        command.env("TERM", "xterm").stdout(terminal.side()).stderr(terminal.side());
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let running = Running::start(&mut command);
        drop(command);
        let ended = running.ended();
        (ended.code, terminal.all())
    };
    for (args, code) in [(&["doctor"][..], 0), (&["release", "a", "--owner", "me"], 77)] {
        let (coloured, plain) = (shown(false, args), shown(true, args));
        assert!(coloured.0 == Some(code) && coloured.1.contains("\u{1b}["), "{coloured:?}");
        assert!(plain.0 == Some(code) && !plain.1.contains('\u{1b}'), "{plain:?}");
        let piped = place.run(args);
        assert!(!piped.out.contains('\u{1b}') && !piped.err.contains('\u{1b}'), "{piped:?}");
    }
}

/// Columns are left out before a word is broken. A terminal that does not say how wide it is counts as one of 80.
#[test]
fn a_list_breaks_no_words_however_narrow_the_terminal() {
    let place = Place::new();
    place.run(&["acquire", "jobs/nightly-report", "--label", "the nightly report", "--lease", "1m"]).is(0);
    place.run(&["acquire", "b", "--owner", "a-rather-long-owner", "--lease", "1m"]).is(0);
    let shown = |width: u16| {
        let terminal = Terminal::new();
        tcsetwinsize(&terminal.master, Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let mut command = place.command(&["list"]);
        let running = Running::start(command.stdout(terminal.side()));
        drop(command);
        running.ended().is(0);
        terminal.all().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for width in [0, 1, 20, 40, 60, 70, 80, 90, 99, 100, 120, 200] {
        let lines = shown(width);
        assert_eq!(lines.len(), 3, "{width}: {lines:#?}");
        for whole in ["NAME", "HOLDER", "LEFT", "jobs/nightly-report", "the nightly report", "a-rather-long-owner"] {
            assert!(lines.iter().any(|line| line.contains(whole)), "{width}: {whole:?} is missing: {lines:#?}");
        }
        let longest = lines.iter().map(|line| line.chars().count()).max().unwrap();
        assert!(width < 60 || longest <= width.into(), "{width}: {longest} {lines:#?}");
    }
    let header = |width| shown(width)[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(header(0), header(80));
    assert_eq!(header(1), ["NAME", "HOLDER", "LEFT"]);
    let all = ["NAME", "HOLDER", "HOST", "PROCESS", "HOLDS", "FENCE", "HELD", "FOR", "LEFT", "WAITERS"];
    assert_eq!(header(200), all);
    let piped = place.run(&["list"]).is(0).out.lines().next().map(|line| line.split_whitespace().count());
    assert_eq!(piped, Some(all.len()), "a pipe has no width");
}

/// The source of a manual page is useless on a terminal.
#[test]
fn the_manual_says_how_it_is_read() {
    let place = Place::new();
    let terminal = Terminal::new();
    let mut command = place.command(&["man", "run"]);
    let running = Running::start(command.stdout(terminal.side()));
    drop(command);
    assert!(running.ended().is(0).err.contains("'leasehold man run | man -l -'"));
    assert_eq!(place.run(&["man", "run"]).is(0).err, "");
}

#[test]
fn a_file_that_is_made_is_told_of_once() {
    let place = Place::new();
    let told = |store: &str| {
        let terminal = Terminal::new();
        let mut command = place.command(&["acquire", "a", "--owner", "me", "--store", store]);
        let running = Running::start(command.stderr(terminal.side()));
        drop(command);
        running.ended().is(0);
        terminal.all().contains("only programs that use the same path are kept out")
    };
    assert!(told(&place.store()) && !told(&place.store()));
}

#[test]
fn hold_ends_with_the_input_of_its_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::new();
    let mut holding = Running::start(place.command(&["hold", "a"]).stdin(terminal.side()));
    holding.line();
    terminal.master.write_all(b"typed by accident\n").unwrap();
    assert!(place.is_held("a"));
    terminal.master.write_all(b"\x04").unwrap();
    holding.ended().is(0);
    place.nothing_is_left("a");
}

/// A shell's background job that read its terminal would be stopped, and with it the keeping.
#[test]
#[cfg(target_os = "linux")]
fn hold_goes_on_in_the_background_of_a_shell() {
    let place = Place::new();
    let mut terminal = Terminal::new();
    let line = format!("set -m; {} hold a --keep 2s & wait", env!("CARGO_BIN_EXE_leasehold"));
    let mut shell = std::process::Command::new("setsid");
    shell.args(["--ctty", "--wait", "sh", "-c", &line]).env("LEASEHOLD_STORE", place.store());
    shell.stdin(terminal.side()).stdout(terminal.side()).stderr(std::process::Stdio::piped());
    let running = Running::start(&mut shell);
    drop(shell);
    terminal.until_it_shows("holding a");
    terminal.master.write_all(b"for the shell\n").unwrap();
    let refused = place.run(&["acquire", "a", "--wait", "3s", "--json"]).is(75).json();
    let pid = i32::try_from(refused["pid"].as_i64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::TERM).unwrap();
    running.ended().is(0);
    place.nothing_is_left("a");
}
