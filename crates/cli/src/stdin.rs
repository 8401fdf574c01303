//! Notices that standard input was closed. Input before that is read and dropped.

use std::io::{Read, stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::tcgetpgrp;
use tokio::sync::oneshot;

use crate::exit::{Exit, Failure};

/// Interval at which a background process checks whether it has the terminal again.
const PAUSE: Duration = Duration::from_millis(500);

/// Starts to read standard input; the returned future ends when that is closed. The reading thread runs until the
/// process ends.
pub(crate) fn closed() -> Result<impl Future<Output = ()>, Failure> {
    let (at_end, end) = oneshot::channel();
    let reads = std::thread::Builder::new().spawn(move || {
        read_to_end();
        let _ = at_end.send(());
    });
    reads.map_err(|error| {
        Failure::new(Exit::BUG, format!("standard input cannot be read: no thread could be started: {error}"))
            .with_hint("check the limits of this process: threads (ulimit -u), memory (ulimit -v)")
    })?;
    Ok(async { drop(end.await) })
}

fn read_to_end() {
    let mut stdin = stdin();
    let mut buffer = [0; 4096];
    loop {
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
        if ready.is_ok() && is_anothers(&stdin) {
            std::thread::sleep(PAUSE);
            continue;
        }
        match stdin.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return,
            _ => {}
        }
    }
}

/// A terminal of another process group: reading it would stop this process, and with it the renewals.
fn is_anothers(stdin: &std::io::Stdin) -> bool {
    tcgetpgrp(stdin).is_ok_and(|foreground| Some(foreground) != crate::run::own_group())
}
