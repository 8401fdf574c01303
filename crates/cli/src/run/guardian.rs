//! The guardian: a process between the runner and the command that ends everything the command started before another
//! holder can get the lock.
//!
//! It does not rely on being notified in time: it knows a deadline and acts when that comes near, even if the runner is
//! stopped, killed or cut off. It holds no lock, reads no wall clock, and ends only when no descendant is left. It
//! calls the store only once it has ended everything of a killed runner: to release that runner's lock.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use leasehold_core::Moment;
use rustix::process::{Pid, Signal, WaitStatus};

use super::descendants::{self, Descendants, Reaped};
use super::message::{self, Ended, Message, Place, Start};
use super::runner::beyond_reach;
use super::terminal::{self, Terminal};
use super::times::Times;
use super::wake::Wake;
use super::{program, starter};
use crate::exit::Exit;

/// Delay before the processes that are left are reported.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// Pause between two rounds of SIGKILL: a process that forked meanwhile is found in the next round. After the deadline,
/// while some cannot be ended, it is the longer one.
const KILL_PAUSE: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(20));

/// A shorter time-out would mean none.
const READ_FLOOR: Duration = Duration::from_millis(1);

/// The highest priority.
const FIRST: i32 = -20;

/// The main function of the guardian.
pub(crate) fn main() -> Exit {
    match watch_over() {
        Ok(()) => Exit::DONE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "leasehold: the guardian failed: {error}");
            Exit::BUG
        }
    }
}

fn watch_over() -> io::Result<()> {
    terminal::hear_signals();
    terminal::without_stops();
    // Not named like the runner: a command that ends all runners by name must not end this process.
    #[cfg(target_os = "linux")]
    rustix::thread::set_name(c"lease-guardian")?;
    let mut wake = Wake::new()?;
    descendants::adopt_orphans()?;
    let runner = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some((start, input, keep)) = Start::receive(&runner)? else { return Ok(()) };
    runner.set_nonblocking(true)?;
    let connection = runner.try_clone()?;
    let (is_orphan, deadline) = match Guardian::start(&start, runner, input, keep)? {
        None => (is_orphaned(&connection, Vec::new(), start.deadline)?, start.deadline),
        Some(mut guardian) => {
            while !guardian.reap() {
                guardian.act(leasehold_clock::now());
                wake.wait(guardian.runner.as_ref(), guardian.next())?;
                guardian.hear();
            }
            guardian.finish();
            let heard = std::mem::take(&mut guardian.heard);
            (guardian.runner.is_none() || is_orphaned(&connection, heard, guardian.deadline)?, guardian.deadline)
        }
    };
    // On systems other than Linux, processes may be left that could not be found.
    if is_orphan && cfg!(target_os = "linux") {
        start.release.carry_out(deadline);
    }
    Ok(())
}

/// Waits until the runner is done with the lock. Returns whether the runner ended before that: it may have been killed
/// together with the command, or after it. After the deadline the lease decides.
fn is_orphaned(mut runner: &UnixStream, mut heard: Vec<u8>, deadline: Moment) -> io::Result<bool> {
    runner.set_nonblocking(false)?;
    loop {
        while let Some((message, rest)) = heard.split_first_chunk() {
            if Message::decode(*message) == Some(Message::Finished) {
                return Ok(false);
            }
            heard = rest.to_vec();
        }
        let left = deadline.since(leasehold_clock::now());
        if left.is_zero() {
            return Ok(false);
        }
        runner.set_read_timeout(Some(left.max(READ_FLOOR)))?;
        let mut buffer = [0; message::BYTES];
        match runner.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Ok(true),
        }
    }
}

struct Guardian {
    /// `None` after it ended.
    runner: Option<UnixStream>,
    heard: Vec<u8>,
    /// `None` after it ended.
    command: Option<Pid>,
    place: Place,
    terminal: Option<Terminal>,
    descendants: Descendants,
    deadline: Moment,
    times: Times,
    state: State,
    /// When to report the processes that are left.
    tell_at: Option<Moment>,
    /// A process was found that this user may not end, and was reported.
    is_beyond_reach: bool,
    /// The runner reported that the lock is lost.
    is_lost: bool,
    /// They show that the holder is alive, until the end.
    _keep: Vec<OwnedFd>,
}

#[derive(Clone, Copy)]
enum State {
    /// The command runs within its time.
    Running,
    /// SIGTERM was sent.
    Asked { kill_at: Moment },
    /// SIGKILL is sent until no process is left.
    Killing { next: Moment },
}

impl Guardian {
    /// Starts the command. `None` if that failed, which the runner is told.
    fn start(start: &Start, runner: UnixStream, input: OwnedFd, keep: Vec<OwnedFd>) -> io::Result<Option<Self>> {
        let spawned = spawn(start, &input, &runner);
        if spawned.is_err() {
            // The starter may have become the command just before it was killed, and may have children.
            descendants::end_all();
        }
        // What the command closes must be closed: this process does not keep its input and output open.
        let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        let home = Pid::from_raw(start.home);
        if let (Err(_), Some(terminal)) = (&spawned, home.and_then(|home| Terminal::new(&input, home, None))) {
            terminal.give_back(); // the starter may have taken it
        }
        let command = match spawned {
            Ok(command) => command,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                tell(&runner, Message::Gone(true));
                return Ok(None);
            }
            Err(error) => {
                tell(&runner, Message::NotStarted(error.raw_os_error().unwrap_or_default()));
                return Ok(None);
            }
        };
        // If allowed: on a busy machine, this process is more urgent than any other.
        let _ = rustix::process::setpriority_process(None, FIRST);
        let own_group = (start.place != Place::RunnersGroup).then_some(command);
        let terminal = own_group.zip(home).and_then(|(group, home)| reachable_terminal(&input, home, group));
        drop(input);
        tell(&runner, Message::Started(command.as_raw_nonzero().get()));
        Ok(Some(Self {
            runner: Some(runner),
            heard: Vec::new(),
            command: Some(command),
            place: start.place,
            terminal,
            descendants: Descendants::new(own_group),
            deadline: start.deadline,
            times: start.times,
            state: State::Running,
            tell_at: None,
            is_beyond_reach: false,
            is_lost: false,
            _keep: keep,
        }))
    }

    /// Processes ended and stopped children. Returns whether no process is left.
    fn reap(&mut self) -> bool {
        loop {
            match descendants::reap() {
                Reaped::Child(pid, status) if Some(pid) == self.command => self.command_news(pid, status),
                Reaped::Child(..) => {}
                Reaped::Nothing => return false,
                Reaped::NoChild => return descendants::is_deserted(&self.descendants),
            }
        }
    }

    fn command_news(&mut self, command: Pid, status: WaitStatus) {
        if let Some(number) = status.stopping_signal() {
            return self.command_stopped(command, number);
        }
        let small = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ended::Code(small(code)),
            (_, Some(number)) => Ended::Signal(small(number)),
            _ => return,
        };
        self.command = None;
        self.descendants.forget_group();
        self.tell_at = Some(leasehold_clock::now() + TELL_AFTER);
        self.give_back();
        self.tell(Message::Ended(ended));
    }

    /// A command that wants the terminal gets it, if possible. Otherwise the runner stops too, as a shell expects of a
    /// job.
    fn command_stopped(&mut self, command: Pid, number: i32) {
        if self.place == Place::RunnersGroup {
            return; // the `run` around this one sees to it
        }
        let for_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|signal| signal.as_raw() == number);
        let Some(terminal) = &self.terminal else { return };
        if for_terminal && terminal.give() {
            self.place = Place::Foreground;
            let _ = rustix::process::kill_process_group(command, Signal::CONT);
            return;
        }
        if for_terminal || number == Signal::TSTP.as_raw() || terminal.is_given() {
            if for_terminal {
                self.place = Place::Foreground; // when it goes on
            }
            terminal.give_back();
            self.tell(Message::Stopped(number));
        }
    }

    /// Processes the runner's messages. If the runner is gone, everything ends.
    fn hear(&mut self) {
        while let Some(mut runner) = self.runner.as_ref() {
            let mut buffer = [0; 64 * message::BYTES];
            match runner.read(&mut buffer) {
                Ok(0) => self.runner_gone(),
                Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.runner_gone(),
            }
            while let Some((message, rest)) = self.heard.split_first_chunk() {
                let (message, rest) = (Message::decode(*message), rest.to_vec());
                self.heard = rest;
                self.told(message);
            }
        }
    }

    fn runner_gone(&mut self) {
        self.runner = None;
        // First of all: the process that waited for the runner may want to read.
        self.give_back();
        self.ask(leasehold_clock::now());
    }

    fn told(&mut self, message: Option<Message>) {
        match message {
            Some(Message::Deadline(deadline)) => self.deadline = deadline,
            Some(Message::Lost) => {
                self.is_lost = true;
                self.kill(leasehold_clock::now());
            }
            Some(Message::Kill) => self.kill(leasehold_clock::now()),
            // All the time that is left is for the command to end cleanly.
            Some(Message::Broken) => self.ask_by(self.times.kill_at(self.deadline)),
            Some(Message::Signal(number)) => self.pass_on(number),
            Some(Message::Continue) => self.go_on(),
            // The runner sent something that this process does not understand.
            _ => self.runner_gone(),
        }
    }

    /// To the command's group; after the command's end, to everything that it left.
    fn pass_on(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        let wakes = [Signal::TERM, Signal::HUP].contains(&signal).then_some(Signal::CONT);
        for signal in [Some(signal), wakes].into_iter().flatten() {
            match (self.command, self.place) {
                (None, _) => self.descendants.signal(signal),
                (Some(command), Place::RunnersGroup) => drop(rustix::process::kill_process(command, signal)),
                (Some(command), _) => drop(rustix::process::kill_process_group(command, signal)),
            }
        }
    }

    fn go_on(&self) {
        if let (Place::Foreground, Some(terminal), Some(_)) = (self.place, &self.terminal, self.command) {
            terminal.give();
        }
        self.pass_on(Signal::CONT.as_raw());
    }

    /// Does what is due.
    fn act(&mut self, now: Moment) {
        match self.state {
            _ if self.next_step().is_none_or(|due| now < due) => {}
            State::Running => self.ask(now),
            State::Asked { .. } | State::Killing { .. } => self.kill(now),
        }
        if self.tell_at.is_some_and(|due| now >= due) {
            self.tell_at = None;
            self.tell_people();
        }
    }

    /// When something is due next.
    fn next(&self) -> Option<Moment> {
        [self.next_step(), self.tell_at].into_iter().flatten().min()
    }

    fn next_step(&self) -> Option<Moment> {
        match self.state {
            State::Running => Some(self.times.term_at(self.deadline)),
            // A deadline that has come nearer counts; a later one does not, because the command was told to end.
            State::Asked { kill_at } => Some(kill_at.min(self.times.kill_at(self.deadline))),
            State::Killing { next } => Some(next),
        }
    }

    fn ask(&mut self, now: Moment) {
        self.ask_by(self.times.kill_after(now, self.deadline));
    }

    fn ask_by(&mut self, kill_at: Moment) {
        if let State::Running = self.state {
            self.state = State::Asked { kill_at };
            self.descendants.ask_until(Signal::TERM, kill_at);
            // A stopped process could not react.
            self.descendants.ask_until(Signal::CONT, kill_at);
            self.look_beyond_reach(kill_at);
            self.act(leasehold_clock::now());
        }
    }

    fn kill(&mut self, now: Moment) {
        if !matches!(self.state, State::Killing { .. }) {
            self.tell_at = Some(now + TELL_AFTER);
        }
        self.descendants.signal(Signal::KILL);
        if !matches!(self.state, State::Killing { .. }) {
            self.look_beyond_reach(self.deadline);
        }
        let now = leasehold_clock::now();
        self.state = State::Killing { next: now + if now < self.deadline { KILL_PAUSE.0 } else { KILL_PAUSE.1 } };
    }

    /// A process that cannot be ended must not run beside the next holder: the runner keeps the lock, and the user is
    /// told.
    fn look_beyond_reach(&mut self, until: Moment) {
        if self.is_beyond_reach {
            return;
        }
        let Some((pid, name)) = self.descendants.beyond_reach(until) else { return };
        self.is_beyond_reach = true;
        self.tell(Message::NotEnded(pid.as_raw_nonzero().get()));
        print(beyond_reach(pid, &name, self.runner.is_some() && !self.is_lost));
    }

    fn tell_people(&mut self) {
        self.look_beyond_reach(Moment::NEVER);
        let names = self.descendants.names().join(", ");
        let lock = std::env::var("LEASEHOLD_NAME").unwrap_or_default();
        let text = match self.state {
            _ if names.is_empty() => return,
            State::Killing { .. } => format!("these processes were killed and have not ended: {names}"),
            _ => format!("the command has ended, and the lock {lock:?} is kept until these processes end: {names}"),
        };
        print(text);
    }

    fn give_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give_back();
        }
    }

    fn tell(&self, message: Message) {
        if let Some(runner) = &self.runner {
            tell(runner, message);
        }
    }

    /// No process is left. If that is only after the deadline, one may have run for too long.
    fn finish(&self) {
        self.give_back();
        let ended_it = !matches!(self.state, State::Running);
        self.tell(Message::Gone(ended_it || leasehold_clock::now() > self.deadline));
        if let (true, Some(_), Some(runner)) = (ended_it, &self.runner, rustix::process::getppid()) {
            // It may be stopped, perhaps in the middle of a write that blocks others. All that it has left to do is to
            // report the lost lock.
            let _ = rustix::process::kill_process(runner, Signal::CONT);
        }
    }
}

/// On another thread: standard error may block, and the guardian must never wait.
fn print(text: String) {
    let _ = std::thread::Builder::new().spawn(move || writeln!(io::stderr(), "leasehold: {text}"));
}

/// If the message cannot be sent, the runner is gone, or learns it from the end of the connection.
fn tell(mut runner: &UnixStream, message: Message) {
    let _ = runner.write_all(&message.encode());
}

/// Starts nothing if it is too late: this process may have been paused since the deadline was sent.
fn spawn(start: &Start, input: &OwnedFd, runner: &UnixStream) -> io::Result<Pid> {
    start.check_time()?;
    if start.place == Place::Foreground {
        return starter::spawn(start, input, runner);
    }
    let group = if start.place == Place::RunnersGroup { start.home } else { 0 };
    let child = terminal::with_stops(|| {
        program::start(&start.words, |command| {
            command.stdin(Stdio::from(input.try_clone()?)).process_group(group).spawn()
        })
    })?;
    Ok(Pid::from_child(&child))
}

/// Standard input, or the terminal that the command could open itself.
fn reachable_terminal(input: &OwnedFd, home: Pid, group: Pid) -> Option<Terminal> {
    let group = Some(group);
    Terminal::new(input, home, group).or_else(|| Terminal::new(std::fs::File::open("/dev/tty").ok()?, home, group))
}
