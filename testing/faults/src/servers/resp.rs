//! As much of the protocol of Redis as tests need to look behind the library: one command, one reply.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Failure;

/// A server that does not answer by then never will.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status or a string.
    Text(String),
    /// A number.
    Number(i64),
    /// Nothing there.
    Nil,
    /// Several.
    List(Vec<Self>),
}

impl Reply {
    /// The number that it is.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn number(&self) -> Result<i64, Failure> {
        match self {
            Self::Number(number) => Ok(*number),
            other => Err(format!("not a number: {other:?}").into()),
        }
    }

    /// The text that it is.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn text(&self) -> Result<&str, Failure> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(format!("not a text: {other:?}").into()),
        }
    }

    /// The texts that it has.
    ///
    /// # Errors
    ///
    /// When it has something else.
    pub fn texts(&self) -> Result<Vec<&str>, Failure> {
        match self {
            Self::List(all) => all.iter().map(Self::text).collect(),
            other => Err(format!("not a list: {other:?}").into()),
        }
    }
}

/// A connection of a test.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// To a server, or to a proxy before one.
    ///
    /// # Errors
    ///
    /// Without a server.
    pub fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command, and waits for its reply.
    ///
    /// # Errors
    ///
    /// When there is none, or it is an error.
    pub fn command(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        let mut sent = format!("*{}\r\n", words.len());
        for word in words {
            sent.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(sent.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err("the connection was closed".into());
        }
        let line = line.strip_suffix("\r\n").ok_or("the connection was closed in the middle of a reply")?;
        let (kind, rest) = line.split_at_checked(1).ok_or("an empty reply")?;
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => return Err(rest.to_owned().into()),
            ":" => Reply::Number(rest.parse()?),
            "$" | "*" if rest == "-1" => Reply::Nil,
            "$" => {
                let mut text = vec![0; rest.parse::<usize>()? + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                Reply::Text(String::from_utf8_lossy(&text).into_owned())
            }
            "*" => Reply::List((0..rest.parse::<usize>()?).map(|_| self.reply()).collect::<Result<_, _>>()?),
            _ => return Err(format!("not a reply: {line:?}").into()),
        })
    }
}
