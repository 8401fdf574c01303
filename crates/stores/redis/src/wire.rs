//! Bounds on what a server sends, checked byte by byte before the reply is put together: its memory is ours.
//!
//! A reply is only walked over here, not understood; what breaks a bound, or is no reply at all, ends the connection.

use std::io;

/// The longest text, such as a key that `SCAN` finds.
const TEXT_MAX: u64 = 8 << 20;
/// The longest line: a status, a number, an error.
const LINE_MAX: usize = 64 << 10;
/// All bytes of one reply.
const REPLY_MAX: u64 = 32 << 20;
/// All parts of one reply. An empty one takes four bytes on the wire, and many times that in memory.
const PARTS_MAX: u64 = 1 << 18;
/// How deep lists stand inside of lists.
const DEPTH_MAX: usize = 16;

/// Follows the replies on a connection.
#[derive(Default)]
pub(crate) struct Wire {
    state: State,
    /// For every list that is not complete, how many of its parts are still to come.
    open: Vec<u64>,
    /// Of this reply.
    bytes: u64,
    parts: u64,
}

enum State {
    /// A line, without its end.
    Session(Vec<u8>),
    /// Number of bytes of a text, with its end, that are still to come.
    Text(u64),
}

impl Default for State {
    fn default() -> Self {
        Self::Session(Vec::new())
    }
}

impl Wire {
    /// Walks over what was read.
    ///
    /// # Errors
    ///
    /// A bound is broken.
    pub(crate) fn read(&mut self, mut read: &[u8]) -> io::Result<()> {
        while !read.is_empty() {
            let used = match &mut self.state {
                State::Text(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
                    *left -= used as u64;
                    if *left == 0 {
                        self.state = State::default();
                        self.part_ends();
                    }
                    used
                }
                State::Session(line) => {
                    let end = read.iter().position(|byte| *byte == b'\n');
                    let used = end.map_or(read.len(), |at| at + 1);
                    line.extend_from_slice(&read[..used]);
                    if line.len() > LINE_MAX {
                        return Err(broken("a line is too long"));
                    }
                    if end.is_some() {
                        let line = std::mem::take(line);
                        self.line(&line)?;
                    }
                    used
                }
            };
            self.count(used as u64)?;
            read = &read[used..];
        }
        Ok(())
    }

    /// The bytes of one reply; a new one begins with nothing.
    fn count(&mut self, bytes: u64) -> io::Result<()> {
        let is_between = self.open.is_empty() && matches!(&self.state, State::Session(line) if line.is_empty());
        if is_between {
            (self.bytes, self.parts) = (0, 0);
            return Ok(());
        }
        self.bytes += bytes;
        if self.bytes > REPLY_MAX { Err(broken("a reply is too long")) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.parts += 1;
        let (kind, rest) = line.split_first().ok_or_else(|| broken("a line is empty"))?;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => self.part_ends(),
            b'$' | b'!' | b'=' => match length(rest)? {
                None => self.part_ends(),
                Some(length) if length > TEXT_MAX => return Err(broken("a text is too long")),
                Some(length) => {
                    if self.bytes + length > REPLY_MAX {
                        return Err(broken("a reply is too long"));
                    }
                    self.state = State::Text(length + 2);
                }
            },
            b'*' | b'~' | b'>' => self.list(length(rest)?.unwrap_or(0))?,
            b'%' => self.list(length(rest)?.unwrap_or(0).saturating_mul(2))?,
            // What it belongs to follows, as one part more.
            b'|' => self.list(length(rest)?.unwrap_or(0).saturating_mul(2).saturating_add(1))?,
            // It is not a reply; the reader reports that.
            _ => self.part_ends(),
        }
        Ok(())
    }

    fn list(&mut self, parts: u64) -> io::Result<()> {
        let expected: u64 = self.open.iter().sum();
        if self.parts.saturating_add(expected).saturating_add(parts) > PARTS_MAX {
            return Err(broken("a list has too many parts"));
        }
        if self.open.len() == DEPTH_MAX {
            return Err(broken("lists stand too deep inside of lists"));
        }
        if parts == 0 {
            self.part_ends();
        } else {
            self.open.push(parts);
        }
        Ok(())
    }

    /// With the last part of a list, the list ends, which may be the last of another.
    fn part_ends(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
    }
}

/// None: nothing is there.
fn length(digits: &[u8]) -> io::Result<Option<u64>> {
    let digits = std::str::from_utf8(digits).map(str::trim_end).map_err(|_| broken("a length is no number"))?;
    if digits.starts_with('-') {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| broken("a length is no number"))
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server's reply is not accepted: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this is accepted, however it is cut into pieces.
    fn accepts(bytes: &[u8]) -> bool {
        let mut each = [1, 2, 3, 7, bytes.len()].map(|size| {
            let mut wire = Wire::default();
            let is_whole = bytes.chunks(size.max(1)).all(|some| wire.read(some).is_ok());
            is_whole && (wire.open.is_empty() || bytes.is_empty())
        });
        assert!(each.iter().all(|accepted| *accepted == each[0]), "pieces make a difference");
        std::mem::take(&mut each[0])
    }

    #[test]
    fn what_a_server_says_is_accepted() {
        let replies: [&[u8]; 8] = [
            b"+OK\r\n:1\r\n$-1\r\n_\r\n*-1\r\n",
            b"$5\r\nhe\r\no\r\n",
            b"*2\r\n*3\r\n:1\r\n$1\r\na\r\n*0\r\n-ERR x\r\n",
            b"%1\r\n+a\r\n~2\r\n#t\r\n,1.5\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n:7\r\n",
            b"|1\r\n+k\r\n+v\r\n:1\r\n",
            b"=7\r\ntxt:abc\r\n(123456789012345678901\r\n!5\r\nERR x\r\n",
            b"$0\r\n\r\n*1\r\n$0\r\n\r\n",
        ];
        for reply in replies {
            assert!(accepts(reply), "{}", String::from_utf8_lossy(reply));
            assert!(accepts(&reply.repeat(1_000)), "many of {}", String::from_utf8_lossy(reply));
        }
    }

    #[test]
    fn what_would_cost_too_much_is_not() {
        let deep = "*1\r\n".repeat(DEPTH_MAX + 1);
        let wide = format!("*2\r\n*{0}\r\n{1}*{0}\r\n", PARTS_MAX / 2 + 1, ":1\r\n".repeat(PARTS_MAX as usize / 2 + 1));
        let heavy =
            format!("*{0}\r\n{1}", 6, format!("${TEXT_MAX}\r\n{}\r\n", "x".repeat(TEXT_MAX as usize)).repeat(5));
        let refused = [
            "$500000000\r\n",
            "*1000000000\r\n",
            "%99999999999999999999\r\n",
            "%9223372036854775808\r\n",
            "$12x\r\n",
            "$?\r\n",
            deep.as_str(),
            wide.as_str(),
        ];
        for reply in refused {
            assert!(!accepts(reply.as_bytes()), "{:.40}", reply);
        }
        let mut wire = Wire::default();
        assert!(wire.read(heavy.as_bytes()).is_err(), "the sum of its texts");
        let mut wire = Wire::default();
        assert!(wire.read(&[b'-'; LINE_MAX + 1]).is_err(), "an error without an end");
    }
}
