//! The little of Redis's protocol that the cases look through: what is at a key, and what others ask for.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Failure;

/// What is waited for comes within this.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Redis(BufReader<TcpStream>);

/// What a server answers.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// Nothing is there.
    Nil,
    /// A number.
    Integer(i64),
    /// A text, or bytes.
    Bytes(Vec<u8>),
}

impl Redis {
    /// Connects to a server on this machine.
    pub(crate) fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The bytes of what is at a key: the same as long as nobody touches it.
    pub(crate) fn dump(&mut self, key: &str) -> Result<Reply, Failure> {
        self.ask(&["DUMP", key])
    }

    /// How long the key has to live; below zero where it has no end, or is not there.
    pub(crate) fn left_ms(&mut self, key: &str) -> Result<i64, Failure> {
        match self.ask(&["PTTL", key])? {
            Reply::Integer(left) => Ok(left),
            other => Err(format!("PTTL was answered with {other:?}").into()),
        }
    }

    /// From here on the connection tells of every command that the server is given.
    pub(crate) fn monitor(mut self) -> Result<Monitor, Failure> {
        self.ask(&["MONITOR"])?;
        Ok(Monitor(self.0))
    }

    fn ask(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        self.0.get_mut().write_all(&request)?;
        let line = self.line()?;
        let rest = line.get(1..).unwrap_or_default();
        match line.as_bytes().first() {
            Some(b'+') => Ok(Reply::Bytes(rest.as_bytes().to_vec())),
            Some(b':') => Ok(Reply::Integer(rest.parse()?)),
            Some(b'$') => self.bytes(rest.parse()?),
            _ => Err(format!("{words:?} was answered with {line:?}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn bytes(&mut self, length: i64) -> Result<Reply, Failure> {
        let Ok(length) = usize::try_from(length) else { return Ok(Reply::Nil) };
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bytes(bytes))
    }
}

/// Every command that the server is given, as it is given them.
pub(crate) struct Monitor(BufReader<TcpStream>);

impl Monitor {
    /// Waits for a command that a client sends, not a script, which is about this key and fits. Commands are in lower case.
    pub(crate) fn until(&mut self, key: &str, fits: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        let mut line = Vec::new();
        while Instant::now() < end {
            line.clear();
            match self.0.read_until(b'\n', &mut line) {
                Ok(0) => return Err("the server is gone".into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                read => read?,
            };
            let line = String::from_utf8_lossy(&line);
            let told = line.split_once("] ").filter(|(from, _)| !from.ends_with("lua")).map(|(_, command)| command);
            if told.is_some_and(|command| command.contains(key) && fits(&command.to_ascii_lowercase())) {
                return Ok(());
            }
        }
        Err(format!("nobody asked for {key}").into())
    }
}
