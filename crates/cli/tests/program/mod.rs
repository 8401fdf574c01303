//! The program, without what it would inherit from the test runner, and how it ended. For all tests of the command
//! line.
#![allow(dead_code, reason = "each test uses its part of it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

pub(crate) const PATH: &str = env!("CARGO_BIN_EXE_leasehold");

/// Variables that change what it does. Tests may themselves run under a lock.
const INHERITED: [&str; 12] = [
    "LEASEHOLD_STORE",
    "LEASEHOLD_PASSWORD",
    "LEASEHOLD_PASSWORD_FILE",
    "LEASEHOLD_NAME",
    "LEASEHOLD_FENCE",
    "LEASEHOLD_FENCES",
    "LEASEHOLD_OWNER",
    "LEASEHOLD_STORE_LABEL",
    "LEASEHOLD_STORE_ID",
    "LEASEHOLD_OUTER",
    "XDG_STATE_HOME",
    "NO_COLOR",
];

/// The program, not yet started.
pub(crate) fn command() -> Command {
    bare(Command::new(PATH))
}

/// Any command, for one that will start the program.
pub(crate) fn bare(mut command: Command) -> Command {
    for name in INHERITED {
        command.env_remove(name);
    }
    command
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    /// It ended like this.
    pub(crate) fn is(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let value = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        self.out.lines().map(value).collect()
    }
}

/// Lines as they come, each with its end. Bytes that are no text are shown as such.
pub(crate) fn lines(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, receive) = channel();
    if let Some(from) = from {
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                // The receiver may be gone, but the writer must not be blocked.
                let _ = send.send(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
        });
    }
    receive
}
