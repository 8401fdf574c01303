//! The starter: takes the terminal for its process group and then becomes the command. So the command has the terminal
//! from its first moment; if another process gave it the terminal, the command could look before that.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use super::message::{self, Message, Start};
use super::orphan::OrphanRelease;
use super::terminal::{self, Terminal};
use super::{STARTER, own_group, program, this_program};
use crate::exit::Exit;

/// Interval between checks of the time and the runner while it becomes the command.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the command through it. When this returns, the process is the command.
///
/// The starter may be stopped before that: then it is waited for until the time is over or the runner is gone. If this
/// fails, the caller ends what is left of it.
pub(super) fn spawn(start: &Start, input: &OwnedFd, runner: &UnixStream) -> io::Result<Pid> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut child = Command::new(this_program()?)
        .arg0("lease-starter")
        .arg(STARTER)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()?;
    // It becomes the command, which gets no secrets.
    Start { release: OrphanRelease::default(), ..start.clone() }.send(&ours, input.as_fd(), &[])?;
    ours.set_read_timeout(Some(CHECK_INTERVAL))?;
    let mut answer = [0; message::BYTES];
    let mut count = 0;
    // Its end of the connection closes when it becomes the command; it writes only if it cannot.
    while count < answer.len() {
        match ours.read(&mut answer[count..]) {
            Ok(0) => return Ok(Pid::from_child(&child)),
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if start.check_time().is_err() || is_gone(runner) {
                    child.kill()?;
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    child.wait()?;
    Err(match Message::decode(answer) {
        Some(Message::NotStarted(errno)) => io::Error::from_raw_os_error(errno),
        _ => io::ErrorKind::TimedOut.into(),
    })
}

/// Whether the other end of the connection is closed.
fn is_gone(runner: &UnixStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0; 1];
    matches!(recv(runner, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((_, 0)))
}

/// The main function of the starter.
pub(crate) fn main() -> Exit {
    match become_command() {
        Ok(()) => Exit::DONE,
        Err(_) => Exit::BUG,
    }
}

fn become_command() -> io::Result<()> {
    let mut guardian = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some((start, input, _)) = Start::receive(&guardian)? else { return Ok(()) };
    if let Some(terminal) = Pid::from_raw(start.home).and_then(|home| Terminal::new(&input, home, own_group())) {
        terminal.give();
    }
    rustix::stdio::dup2_stdin(&input)?;
    drop(input);
    if start.check_time().is_err() {
        return guardian.write_all(&Message::Gone(true).encode());
    }
    let Err(failed) = terminal::with_stops(|| program::start(&start.words, |command| Err::<(), _>(command.exec())))
    else {
        return Ok(());
    };
    guardian.write_all(&Message::NotStarted(failed.raw_os_error().unwrap_or_default()).encode())
}
