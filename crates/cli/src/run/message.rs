//! Messages between the runner and its guardian, over a socket pair.
//!
//! The first message starts the command and carries the descriptors that go with it; all later ones are nine bytes long.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

use leasehold_core::Moment;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use super::orphan::OrphanRelease;
use super::times::Times;

/// Length of every message but the first.
pub(super) const BYTES: usize = 9;
/// Maximum number of descriptors passed: standard input, and those that show that the holder is alive.
const DESCRIPTORS_MAX: usize = 64;
/// Number of integers before the command's words; the last of them is the length of what follows.
const NUMBERS: usize = 6;

/// From either side to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// To the guardian: the holder may act until then.
    Deadline(Moment),
    /// To the guardian: the lock is lost, end everything now.
    Lost,
    /// To the guardian: the command's time is over, and the lock is still held.
    Kill,
    /// To the guardian: an operator broke the lock, and no other client has it before the deadline.
    Broken,
    /// To the guardian: forward this signal.
    Signal(i32),
    /// To the guardian: the runner continues after a stop, and so may the command.
    Continue,
    /// To the guardian: the runner is done with the lock.
    Finished,
    /// To the runner: the command runs, with this process id.
    Started(i32),
    /// To the runner: it could not be started.
    NotStarted(i32),
    /// To the runner: this signal stopped the command, and the terminal was given back.
    Stopped(i32),
    /// To the runner: the command has ended. Processes that it left may still run.
    Ended(Ended),
    /// To the runner: this process cannot be ended by this user.
    NotEnded(i32),
    /// To the runner: nothing runs any more, and whether the guardian had to end it.
    Gone(bool),
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Ended {
    /// The exit code for it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128 | number,
        }
    }
}

impl Message {
    pub(super) fn encode(self) -> [u8; BYTES] {
        let (kind, value) = match self {
            Self::Deadline(moment) => (b'd', moment.as_nanos()),
            Self::Lost => (b'l', 0),
            Self::Broken => (b'b', 0),
            Self::Kill => (b'k', 0),
            Self::Signal(number) => (b's', widened(number)),
            Self::Continue => (b'c', 0),
            Self::Finished => (b'f', 0),
            Self::Started(pid) => (b'S', widened(pid)),
            Self::NotStarted(errno) => (b'N', widened(errno)),
            Self::Stopped(number) => (b'T', widened(number)),
            Self::Ended(Ended::Code(code)) => (b'E', code.into()),
            Self::Ended(Ended::Signal(number)) => (b'K', number.into()),
            Self::NotEnded(pid) => (b'P', widened(pid)),
            Self::Gone(forced) => (b'G', forced.into()),
        };
        let mut bytes = [kind; BYTES];
        bytes[1..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// `None` for an unknown message: both sides are one binary, so that would be a bug.
    pub(super) fn decode(bytes: [u8; BYTES]) -> Option<Self> {
        let [kind, value @ ..] = bytes;
        let value = u64::from_le_bytes(value);
        let number = || i32::try_from(value).ok();
        let small = || u8::try_from(value).ok();
        Some(match kind {
            b'd' => Self::Deadline(Moment::from_nanos(value)),
            b'l' => Self::Lost,
            b'b' => Self::Broken,
            b'k' => Self::Kill,
            b's' => Self::Signal(number()?),
            b'c' => Self::Continue,
            b'f' => Self::Finished,
            b'S' => Self::Started(number()?),
            b'N' => Self::NotStarted(number()?),
            b'T' => Self::Stopped(number()?),
            b'E' => Self::Ended(Ended::Code(small()?)),
            b'K' => Self::Ended(Ended::Signal(small()?)),
            b'P' => Self::NotEnded(number()?),
            b'G' => Self::Gone(value != 0),
            _ => return None,
        })
    }
}

fn widened(number: i32) -> u64 {
    u64::from(number.unsigned_abs())
}

/// The first message: what to start, and how long it may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Start {
    pub(super) deadline: Moment,
    pub(super) times: Times,
    /// The runner's own process group, which has the terminal outside.
    pub(super) home: i32,
    pub(super) place: Place,
    /// What to do with the lock if the runner is killed; nothing if it is empty.
    pub(super) release: OrphanRelease,
    /// The command and its arguments.
    pub(super) words: Vec<OsString>,
}

impl Start {
    /// Whether there is still time to start anything.
    pub(super) fn check_time(&self) -> std::io::Result<()> {
        let late = leasehold_clock::now() >= self.times.term_at(self.deadline);
        if late { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// Where the command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In a process group of its own.
    OwnGroup,
    /// In a process group of its own, which is given the terminal.
    Foreground,
    /// In the runner's process group, which an outer `run` created.
    RunnersGroup,
}

impl Start {
    /// Sends it with standard input and the descriptors that the guardian keeps open. No word may contain a zero byte.
    pub(super) fn send(&self, mut to: &UnixStream, input: BorrowedFd<'_>, keep: &[OwnedFd]) -> io::Result<()> {
        let body = self.encode();
        let length = u32::try_from(body.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?.to_le_bytes();
        let mut descriptors = vec![input];
        descriptors.extend(keep.iter().map(AsFd::as_fd));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        if descriptors.len() > DESCRIPTORS_MAX || !with.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("too many descriptors to hand over"));
        }
        rustix::net::sendmsg(to, &[IoSlice::new(&length)], &mut with, SendFlags::empty())?;
        to.write_all(&body)
    }

    /// Waits for it. `None` if the runner ended before it was sent.
    pub(super) fn receive(mut from: &UnixStream) -> io::Result<Option<(Self, OwnedFd, Vec<OwnedFd>)>> {
        let mut length = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut length)], &mut with, RecvFlags::CMSG_CLOEXEC)?;
        if got.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = with.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let (Some(input), keep) = (descriptors.next(), descriptors.collect()) else { return Ok(None) };
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        match from.read_exact(&mut body) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(Self::decode(&body).map(|start| (start, input, keep))),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let place = match self.place {
            Place::OwnGroup => 0,
            Place::Foreground => 1,
            Place::RunnersGroup => 2,
        };
        let (term, kill) = self.times.as_nanos();
        let release = self.release.0.len() as u64;
        let numbers: [u64; NUMBERS] = [self.deadline.as_nanos(), term, kill, widened(self.home), place, release];
        let mut body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        body.extend(&self.release.0);
        body.extend(self.words.join(OsStr::from_bytes(b"\0")).into_vec());
        body
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (numbers, rest) = body.split_at_checked(NUMBERS * 8)?;
        let number = |at: usize| numbers.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (release, words) = rest.split_at_checked(usize::try_from(number(5)?).ok()?)?;
        Some(Self {
            deadline: Moment::from_nanos(number(0)?),
            times: Times::from_nanos(number(1)?, number(2)?),
            home: i32::try_from(number(3)?).ok()?,
            place: match number(4)? {
                0 => Place::OwnGroup,
                1 => Place::Foreground,
                _ => Place::RunnersGroup,
            },
            release: OrphanRelease(release.to_vec()),
            words: words.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_fuzz::Target;

    use super::*;

    #[test]
    fn every_message_comes_over_as_it_was() {
        for message in [
            Message::Deadline(Moment::from_nanos(u64::MAX)),
            Message::Lost,
            Message::Broken,
            Message::Kill,
            Message::Signal(15),
            Message::Continue,
            Message::Started(4_194_303),
            Message::NotStarted(2),
            Message::Stopped(20),
            Message::Ended(Ended::Code(255)),
            Message::Ended(Ended::Signal(9)),
            Message::NotEnded(17),
            Message::Gone(true),
            Message::Gone(false),
        ] {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode([0; BYTES]), None);
    }

    #[test]
    fn the_start_comes_over_with_its_descriptors() {
        let (a, b) = UnixStream::pair().unwrap();
        let words = ["printf", "", "two words", "ü"].map(OsString::from).into();
        let start = Start {
            deadline: Moment::from_nanos(7),
            times: Times::new(Duration::from_secs(30), Duration::from_secs(5)),
            home: 4711,
            place: Place::Foreground,
            release: OrphanRelease(b"{\0}".to_vec()),
            words,
        };
        let keep: Vec<OwnedFd> = vec![a.try_clone().unwrap().into(), b.try_clone().unwrap().into()];
        start.send(&a, b.as_fd(), &keep).unwrap();
        let (got, _input, kept) = Start::receive(&b).unwrap().unwrap();
        assert_eq!((got, kept.len()), (start, 2));
    }

    #[test]
    fn a_runner_that_went_away_starts_nothing() {
        let (a, b) = UnixStream::pair().unwrap();
        drop(a);
        assert!(Start::receive(&b).unwrap().is_none());
    }

    /// Both sides are one binary, but a process may inherit anything on its descriptors.
    #[test]
    fn fuzzed_messages() {
        Target::new("messages", 20_000).run(|input| {
            let Ok(bytes) = <[u8; BYTES]>::try_from(input) else { return };
            if let Some(message) = Message::decode(bytes) {
                assert_eq!(Message::decode(message.encode()), Some(message));
            }
        });
        Target::new("starts", 20_000).run(|input| {
            if let Some(start) = Start::decode(input) {
                assert_eq!(Start::decode(&start.encode()).as_ref(), Some(&start));
            }
        });
    }
}
