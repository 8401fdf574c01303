//! The starter: takes the terminal for its process group and then becomes the command. So the command has the terminal from its first
//! moment; were it given by another process, the command could look first.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, getpgrp};

use super::message::{self, Message, Start};
use super::terminal::{self, Terminal};
use super::{STARTER, this_program};
use crate::exit::Exit;

/// Starts the command through it. The process is the command when this returns.
pub(super) fn spawn(start: &Start, input: &OwnedFd) -> io::Result<Pid> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut child = Command::new(this_program()?)
        .arg0("lease-starter")
        .arg(STARTER)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()?;
    start.send(&ours, input.as_fd(), &[])?;
    let mut answer = [0; message::BYTES];
    // Its end of the connection is closed as it becomes the command; it speaks only if it cannot.
    match ours.read_exact(&mut answer).ok().and_then(|()| Message::decode(answer)) {
        Some(Message::NotStarted(errno)) => {
            child.wait()?;
            Err(io::Error::from_raw_os_error(errno))
        }
        _ => Ok(Pid::from_child(&child)),
    }
}

/// The starter's whole life.
pub(crate) fn main() -> Exit {
    match become_command() {
        Ok(()) => Exit::DONE,
        Err(_) => Exit::BUG,
    }
}

fn become_command() -> io::Result<()> {
    let mut guardian = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some((start, input, _)) = Start::receive(&guardian)? else { return Ok(()) };
    if let Some(terminal) = Pid::from_raw(start.home).and_then(|home| Terminal::new(&input, home, getpgrp())) {
        terminal.give();
    }
    rustix::stdio::dup2_stdin(&input)?;
    drop(input);
    let (name, arguments) = start.words.split_first().ok_or(io::ErrorKind::NotFound)?;
    let failed = terminal::with_stops(|| Command::new(name).args(arguments).exec());
    guardian.write_all(&Message::NotStarted(failed.raw_os_error().unwrap_or_default()).encode())
}
