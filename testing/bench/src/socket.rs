//! Bare connections to Redis: one whole reply to one command, with no library between, in the thread that calls.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::Cmd;

/// A server that does not answer by then will not.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ROOM: usize = 16 * 1024;

/// What was read and not yet used.
struct Received {
    bytes: Vec<u8>,
    filled: usize,
}

impl Received {
    fn new() -> Self {
        Self { bytes: vec![0; ROOM], filled: 0 }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// So many bytes were read into the room.
    fn fill(&mut self, count: usize) {
        assert!(count > 0, "the server has closed the connection");
        self.filled += count;
    }

    /// Takes the first whole reply out, if there is one.
    fn take<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let length = whole_reply(&self.bytes[..self.filled])?;
        let reply = &self.bytes[..length];
        assert!(reply[0] != b'-', "an error: {}", String::from_utf8_lossy(reply));
        let answer = read(reply);
        self.bytes.copy_within(length..self.filled, 0);
        self.filled -= length;
        Some(answer)
    }
}

/// The length of the reply with which this begins, if it is all there.
fn whole_reply(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")? + 2;
    let number = || integer(&bytes[1..line - 2]);
    match bytes[0] {
        b'$' if bytes[1] == b'-' => Some(line),
        b'$' => Some(line + number() as usize + 2).filter(|length| *length <= bytes.len()),
        b'*' => (0..number()).try_fold(line, |length, _| Some(length + whole_reply(&bytes[length..])?)),
        _ => Some(line),
    }
}

fn integer(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// The integer of a reply of this index, counted over the whole of it.
pub(crate) fn integer_in(reply: &[u8], index: usize) -> u64 {
    let mut lines = reply.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b':'));
    let line = lines.nth(index).expect("an integer");
    integer(&line[1..line.len() - 1])
}

/// The fence in the reply to an acquire that was granted; none where the lock is busy.
pub(crate) fn granted(reply: &[u8]) -> Option<u64> {
    reply.windows(7).any(|word| word == b"granted").then(|| integer_in(reply, 1))
}

/// A connection whose calls block.
pub(crate) struct BlockingSocket {
    stream: TcpStream,
    received: Received,
    packed: Vec<u8>,
}

impl BlockingSocket {
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a limit");
        Self { stream, received: Received::new(), packed: Vec::new() }
    }

    /// Sends a command, waits for its reply, and reads from it.
    pub(crate) fn call<T>(&mut self, command: &Cmd, read: impl FnOnce(&[u8]) -> T) -> T {
        self.send(command);
        self.reply(read)
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, command: &Cmd) {
        self.packed.clear();
        command.write_packed_command(&mut self.packed);
        self.stream.write_all(&self.packed).expect("an open connection");
    }

    /// Waits for the next reply.
    pub(crate) fn reply<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> T {
        while whole_reply(&self.received.bytes[..self.received.filled]).is_none() {
            self.fill().expect("an answer");
        }
        self.received.take(read).expect("a whole reply")
    }

    /// Waits for the next reply or message; false where none comes within the limit.
    pub(crate) fn message_within(&mut self, limit: Duration) -> bool {
        self.stream.set_read_timeout(Some(limit)).expect("a limit");
        while self.received.take(|_| ()).is_none() {
            match self.fill() {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return false,
                Err(error) => panic!("an open connection: {error}"),
            }
        }
        true
    }

    /// Reads once, and takes every whole reply out that is there.
    pub(crate) fn replies(&mut self, mut each: impl FnMut(&[u8])) {
        self.fill().expect("an answer");
        while self.received.take(&mut each).is_some() {}
    }

    fn fill(&mut self) -> std::io::Result<()> {
        let count = self.stream.read(self.received.room())?;
        self.received.fill(count);
        Ok(())
    }
}

impl std::os::fd::AsFd for BlockingSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The same on tokio's socket.
pub(crate) struct TokioSocket {
    stream: tokio::net::TcpStream,
    received: Received,
    packed: Vec<u8>,
}

impl TokioSocket {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        let stream = tokio::net::TcpStream::connect(server).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, received: Received::new(), packed: Vec::new() }
    }

    /// Sends a command, waits for its reply, and reads from it.
    pub(crate) async fn call<T>(&mut self, command: &Cmd, read: impl FnOnce(&[u8]) -> T) -> T {
        self.packed.clear();
        command.write_packed_command(&mut self.packed);
        let sent = self.stream.try_write(&self.packed).expect("an open connection");
        assert_eq!(sent, self.packed.len(), "a command goes at once");
        while whole_reply(&self.received.bytes[..self.received.filled]).is_none() {
            self.stream.readable().await.expect("an open connection");
            match self.stream.try_read(self.received.room()) {
                Ok(count) => self.received.fill(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("an open connection: {error}"),
            }
        }
        self.received.take(read).expect("a whole reply")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_or_not_there() {
        let reply = b"*3\r\n$7\r\ngranted\r\n:17\r\n*4\r\n:42\r\n:1\r\n$-1\r\n$0\r\n\r\n";
        for length in 0..reply.len() {
            assert_eq!(whole_reply(&reply[..length]), None, "{length}");
        }
        assert_eq!(whole_reply(&[&reply[..], b":1\r\n"].concat()), Some(reply.len()));
        assert_eq!(granted(reply), Some(42));
        assert_eq!(granted(b"*2\r\n$4\r\nbusy\r\n:17\r\n"), None);
    }
}
