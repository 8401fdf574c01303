//! Watches the commands that others send to the server: this is how a case knows that a client waits.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Failure;

/// What is waited for comes within this.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every command that the server is given, as it is given them.
pub(crate) struct Monitor(BufReader<TcpStream>);

impl Monitor {
    /// From here on.
    pub(crate) fn of(server: SocketAddr) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream);
        let mut answer = String::new();
        lines.read_line(&mut answer)?;
        if answer.trim_end() == "+OK" { Ok(Self(lines)) } else { Err(format!("MONITOR: {answer}").into()) }
    }

    /// Waits for a command that a client sends, not a script, in which this text occurs and which fits. It is given in lower case.
    pub(crate) fn until(&mut self, text: &str, fits: impl Fn(&str) -> bool) -> Result<(), Failure> {
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
            if told.is_some_and(|command| command.contains(text) && fits(&command.to_ascii_lowercase())) {
                return Ok(());
            }
        }
        Err(format!("nobody asked for {text}").into())
    }
}
