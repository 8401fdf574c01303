//! The runner's side of a command: starts the guardian, sends it every new deadline, forwards signals, and learns how
//! it ended.
//!
//! The lock is not released here, and must not be released before this returns: until then something may run.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::{Client, GroupGuard, Loss};
use leasehold_core::Moment;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;

use super::descendants::{self, Descendants, Reaped};
use super::environment::Variable;
use super::message::{self, Ended, Message, Place, Start};
use super::orphan::OrphanRelease;
use super::signals::Signals;
use super::terminal::{self, Terminal};
use super::times::Times;
use super::{GUARDIAN, job, lock_check, own_group, this_program};
use crate::exit::{Exit, Failure};
use crate::{human, output};

/// Number of deadline checks per lease, for renewals that moved it and for clocks that jumped,
const CHECKS_PER_LEASE: u32 = 40;
/// with an interval in this range.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// A deadline that differs by less than this from the last one is not sent.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(1);
/// A signal that kept the guardian from starting reaches this process within this time.
const SIGNAL_WITHIN: Duration = Duration::from_millis(100);
/// Pause between two rounds of ending processes without a guardian.
const KILL_PAUSE: Duration = Duration::from_millis(1);

/// What to run.
pub(crate) struct Job {
    /// The command and its arguments.
    pub(crate) words: Vec<OsString>,
    /// Variables to set, and those not to inherit.
    pub(crate) variables: Vec<Variable>,
    pub(crate) lease: Duration,
    /// The lease is not renewed.
    pub(crate) is_fixed: bool,
    /// When nothing may run any more, even if the lease lasts longer.
    pub(crate) end: Option<Moment>,
    pub(crate) times: Times,
    /// An outer `run` has the same lock: the command stays in its process group.
    pub(crate) is_joined: bool,
    /// What the guardian does with the lock if this process is killed.
    pub(crate) release: OrphanRelease,
    /// They show the store that the holder is alive, and stay open until no descendant is left.
    pub(crate) alive: Vec<OwnedFd>,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ran to its end.
    Done(Ended),
    /// It was ended, or ran for too long; and a process that could not be ended.
    CutOff(Why, Option<Ended>, Option<NotEnded>),
}

/// A process that this user may not end. It has ended by itself since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotEnded {
    pub(crate) pid: i32,
    /// The lock was kept until then.
    pub(crate) is_kept: bool,
}

/// Why a command was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The lease ended.
    TimeEnded,
    /// The time of `--max-hold` ended.
    MaxHold,
    /// The store no longer had the lock.
    Lost,
    /// An operator took the lock away.
    Broken,
    /// The guardian was killed, and without it nothing is safe.
    NoGuardian,
}

/// A guardian with nothing left to guard. If this process is killed before it releases the lock, the guardian does
/// that.
pub(crate) struct Standby {
    guardian: Child,
    stream: tokio::net::UnixStream,
}

impl Standby {
    /// The lock is done with. The guardian ends before this process, so that nothing is left of a finished `run`.
    pub(crate) fn finish(self) {
        let Self { mut guardian, stream } = self;
        // If there is no room, the end of the connection tells the same: a second release does nothing.
        let _ = stream.try_write(&Message::Finished.encode());
        drop(stream);
        let _ = kill_process(Pid::from_child(&guardian), Signal::CONT);
        let _ = guardian.wait();
    }
}

/// Runs it to its end.
pub(crate) async fn run(
    job: Job,
    client: &Client,
    guard: &GroupGuard,
    signals: &mut Signals,
) -> Result<(Outcome, Standby), Failure> {
    let failed = |error: io::Error| Failure::new(Exit::BUG, format!("the guardian could not be started: {error}"));
    let jobs = if job.is_joined { Signals::none() } else { Signals::of_jobs()? };
    let mut runner = match Runner::start(job, guard) {
        Ok(runner) => runner,
        // The terminal's signals may end the guardian in its first moment, before it has a group of its own.
        Err(error) => match tokio::time::timeout(SIGNAL_WITHIN, signals.next()).await {
            Ok(number) => {
                let what = format!("signal {number} came before the command was started");
                return Err(Failure::new(Exit::signal(number), what));
            }
            Err(_) => return Err(failed(error)),
        },
    };
    let outcome = runner.watch(client, guard, signals, jobs).await.map_err(failed)?;
    let Runner { guardian, stream, .. } = runner;
    Ok((outcome, Standby { guardian, stream }))
}

struct Runner {
    guardian: Child,
    stream: tokio::net::UnixStream,
    times: Times,
    look_every: Duration,
    told: Moment,
    /// Messages for which the guardian's socket had no room.
    unsaid: Vec<u8>,
    input: OwnedFd,
    /// Children that this process had before it became a runner, as with `worker & exec leasehold run …`.
    others: Vec<Pid>,
    command: Option<Pid>,
    ended: Option<Ended>,
    loss: Option<Loss>,
    not_ended: Option<i32>,
    is_joined: bool,
    lease: Duration,
    is_fixed: bool,
    end: Option<Moment>,
    /// This process has killed by itself.
    has_killed: bool,
}

impl Runner {
    fn start(job: Job, guard: &GroupGuard) -> io::Result<Self> {
        // If the guardian is killed, its descendants become this process's.
        descendants::adopt_orphans()?;
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        // If that group has no number here, the command cannot stay in it.
        let is_joined = job.is_joined && own_group().is_some();
        let place = match is_joined {
            true => Place::RunnersGroup,
            false if terminal::is_ours(&input) => Place::Foreground,
            false => Place::OwnGroup,
        };
        let others = descendants::children();
        let (ours, theirs) = UnixStream::pair()?;
        let guardian = start_guardian(theirs.into(), &job.variables)?;
        let deadline = told(guard, job.end).unwrap_or_default();
        let home = own_group().map_or(0, |group| group.as_raw_nonzero().get());
        let start = Start { deadline, times: job.times, home, place, release: job.release, words: job.words };
        start.send(&ours, input.as_fd(), &job.alive)?;
        let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        let input = if rustix::termios::isatty(&input) { input } else { nothing.into() };
        ours.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(ours)?;
        Ok(Self {
            guardian,
            stream,
            times: job.times,
            look_every: (job.lease / CHECKS_PER_LEASE).clamp(CHECK_INTERVAL.0, CHECK_INTERVAL.1),
            told: deadline,
            unsaid: Vec::new(),
            input,
            others,
            command: None,
            ended: None,
            loss: None,
            not_ended: None,
            is_joined,
            lease: job.lease,
            is_fixed: job.is_fixed,
            end: job.end,
            has_killed: false,
        })
    }

    async fn watch(
        &mut self,
        client: &Client,
        guard: &GroupGuard,
        signals: &mut Signals,
        mut jobs: Signals,
    ) -> io::Result<Outcome> {
        let lost = guard.lost_signal();
        let mut lost = std::pin::pin!(lost.wait());
        let mut extended = std::pin::pin!(extended(guard, self.lease));
        let mut of_fixed = std::pin::pin!(lock_check::of_fixed(client, guard, self.lease));
        let mut of_broken = std::pin::pin!(lock_check::of_broken(client, guard, self.lease));
        let mut look = tokio::time::interval(self.look_every);
        let mut heard = [0; message::BYTES];
        let mut count = 0;
        loop {
            tokio::select! {
                biased;
                read = self.stream.read(&mut heard[count..]) => match read {
                    Ok(0) | Err(_) => return Ok(self.take_over(guard).await),
                    Ok(more) => {
                        count += more;
                        if count == message::BYTES {
                            count = 0;
                            if let Some(outcome) = self.hear(Message::decode(heard)) {
                                return Ok(outcome);
                            }
                        }
                    }
                },
                never = &mut extended, if self.is_fixed && self.not_ended.is_some() && self.loss.is_none() => match never {},
                loss = &mut lost, if self.loss.is_none() => self.lose(loss.unwrap_or(Loss::TimeEnded)),
                loss = &mut of_fixed, if self.is_fixed && self.loss.is_none() => self.lose(loss),
                // Another of several names may be lost at once, and `break --now` may follow.
                loss = &mut of_broken, if self.loss == Some(Loss::Broken) => self.lose(loss),
                number = signals.next() => self.pass_on(number),
                number = jobs.next() => self.job_control(number),
                _ = look.tick() => self.tell_deadline(guard),
            }
        }
    }

    /// After a break, the last deadline sent stays valid; after any other loss, none does.
    fn deadline_or_told(&self, guard: &GroupGuard) -> Moment {
        let told = if self.loss == Some(Loss::Broken) { self.told } else { Moment::default() };
        deadline(guard).unwrap_or(told)
    }

    /// Processes the guardian's messages.
    fn hear(&mut self, message: Option<Message>) -> Option<Outcome> {
        match message {
            Some(Message::Started(pid)) => self.command = Pid::from_raw(pid),
            Some(Message::NotStarted(errno)) => return Some(Outcome::NotStarted(io::Error::from_raw_os_error(errno))),
            Some(Message::Stopped(_)) => self.stop(),
            Some(Message::Ended(ended)) => self.ended = Some(ended),
            Some(Message::NotEnded(pid)) => self.not_ended = Some(pid),
            Some(Message::Gone(forced)) => return Some(self.gone(forced)),
            _ => {}
        }
        None
    }

    fn gone(&self, forced: bool) -> Outcome {
        let why = match (self.loss, forced, self.ended) {
            (None, false, Some(ended)) => return Outcome::Done(ended),
            (Some(Loss::Gone), ..) => Why::Lost,
            (Some(Loss::Broken), ..) => Why::Broken,
            (None, ..) if Some(self.told) == self.end => Why::MaxHold,
            _ => Why::TimeEnded,
        };
        let not_ended = self.not_ended.map(|pid| NotEnded { pid, is_kept: self.loss.is_none() });
        Outcome::CutOff(why, self.ended, not_ended)
    }

    fn stop(&mut self) {
        if !job::stop() {
            self.say(Message::Continue);
        }
    }

    /// Forwards SIGTSTP; this process stops once the command has. SIGCONT continues both.
    fn job_control(&mut self, number: i32) {
        let is_continue = number == Signal::CONT.as_raw();
        self.say(if is_continue { Message::Continue } else { Message::Signal(number) });
    }

    /// If an outer `run` has the terminal, its signals to the group reach the command without forwarding.
    fn pass_on(&mut self, number: i32) {
        let from_terminal = [Signal::INT, Signal::QUIT].iter().any(|signal| signal.as_raw() == number);
        if !(self.is_joined && from_terminal) {
            self.say(Message::Signal(number));
        }
    }

    fn tell_deadline(&mut self, guard: &GroupGuard) {
        self.speak();
        // The guardian does that, unless it is stopped.
        let end = if self.loss == Some(Loss::Broken) { Some(self.told) } else { self.end };
        if end.is_some_and(|end| leasehold_clock::now() >= self.times.kill_at(end)) && !self.has_killed {
            self.kill();
        }
        let Some(deadline) = told(guard, self.end) else { return }; // the lost signal says so
        if !self.unsaid.is_empty() {
            return; // the newest is told when there is room
        }
        if deadline.since(self.told) > DEADLINE_TOLERANCE || self.told.since(deadline) > DEADLINE_TOLERANCE {
            self.told = deadline;
            self.say(Message::Deadline(deadline));
        }
    }

    /// Nothing may run any more; or, after a break by an operator, only until the current deadline.
    fn lose(&mut self, loss: Loss) {
        self.loss = Some(loss);
        let left = self.times.kill_at(self.told).since(leasehold_clock::now());
        if loss != Loss::Broken || left.is_zero() {
            return self.kill();
        }
        let _ = kill_process(Pid::from_child(&self.guardian), Signal::CONT);
        self.say(Message::Broken);
        output::note(&format!(
            "an operator took the lock away: the command was asked to end, and is killed in {}",
            human::span(left)
        ));
    }

    /// The guardian may itself be stopped: it is continued, and this process kills too.
    fn kill(&mut self) {
        self.has_killed = true;
        let guardian = Pid::from_child(&self.guardian);
        let _ = kill_process(guardian, Signal::CONT);
        let group = self.command.filter(|_| !self.is_joined && self.ended.is_none());
        // Not everything below this process: it may have had children before it became a runner.
        Descendants::below(guardian, group).signal(Signal::KILL);
        self.say(if self.loss.is_some() { Message::Lost } else { Message::Kill });
    }

    /// If a message cannot be sent, the guardian is gone, and the end of the connection says so. A stopped guardian is
    /// not waited for: its messages are kept and sent in order.
    fn say(&mut self, message: Message) {
        self.unsaid.extend_from_slice(&message.encode());
        self.speak();
    }

    fn speak(&mut self) {
        while !self.unsaid.is_empty() {
            match self.stream.try_write(&self.unsaid) {
                Ok(count) => drop(self.unsaid.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // It has a hundred unread messages: it is stopped, and must not be.
                    let _ = kill_process(Pid::from_child(&self.guardian), Signal::CONT);
                    return;
                }
                Err(_) => return self.unsaid.clear(),
            }
        }
    }

    /// The guardian was killed. Its descendants now belong to this process; they are ended while the keeper keeps the
    /// lock. Orphans of an earlier child of this process cannot be distinguished, and are ended too.
    async fn take_over(&mut self, guard: &GroupGuard) -> Outcome {
        let group = self.command.filter(|_| !self.is_joined && self.ended.is_none());
        let mut left = Descendants::new(group).without(std::mem::take(&mut self.others));
        left.signal(Signal::TERM);
        left.signal(Signal::CONT);
        let asked = leasehold_clock::now();
        let mut extended = std::pin::pin!(extended(guard, self.lease));
        loop {
            match descendants::reap() {
                Reaped::Child(_, status) if status.stopped() => {}
                Reaped::Child(pid, _) if Some(pid) == self.command => left.forget_group(),
                Reaped::Child(pid, _) => left.forget(pid),
                Reaped::NoChild if descendants::is_deserted(&left) => break,
                Reaped::Nothing if descendants::has_only_others(&left) => break,
                Reaped::Nothing | Reaped::NoChild => {
                    let deadline = self.deadline_or_told(guard);
                    if leasehold_clock::now() >= self.times.kill_after(asked, deadline) {
                        left.signal(Signal::KILL);
                        self.look_beyond_reach(&left, guard);
                    }
                    tokio::select! {
                        never = &mut extended, if self.is_fixed && self.not_ended.is_some() => match never {},
                        () = tokio::time::sleep(KILL_PAUSE) => {}
                    }
                }
            }
        }
        // Even if the start of the command was not reported: its group may have had the terminal, and is gone.
        if let Some(terminal) = own_group().and_then(|home| Terminal::new(&self.input, home, self.command)) {
            terminal.give_back();
        }
        let not_ended = self.not_ended.map(|pid| NotEnded { pid, is_kept: guard.is_valid() });
        Outcome::CutOff(Why::NoGuardian, self.ended, not_ended)
    }

    /// As the guardian would: the lock is kept from the next holder as long as a process runs that cannot be ended.
    fn look_beyond_reach(&mut self, left: &Descendants, guard: &GroupGuard) {
        if self.not_ended.is_some() {
            return;
        }
        let Some((pid, name)) = left.beyond_reach(Moment::NEVER) else { return };
        self.not_ended = Some(pid.as_raw_nonzero().get());
        output::note(&beyond_reach(pid, &name, guard.is_valid()));
    }
}

/// The message about a process that this user may not end.
pub(super) fn beyond_reach(pid: Pid, name: &str, is_kept: bool) -> String {
    let lock = match is_kept {
        true => "the lock is kept until it ends, as long as the store answers",
        false => "the lock cannot be kept, so it may run beside the next holder",
    };
    let pid = pid.as_raw_nonzero();
    format!(
        "this user may not end {name}: {lock}; end it as a user who may ('kill {pid}'), and next time run 'sudo leasehold run' instead \
         of 'leasehold run sudo'"
    )
}

/// Extends a fixed lease while a process that could not be ended may run under it.
async fn extended(guard: &GroupGuard, lease: Duration) -> Infallible {
    loop {
        // If that fails, the lost signal reports it.
        let _ = guard.extend(lease).await;
        tokio::time::sleep(lease / 3).await;
    }
}

/// Until when the command may run.
fn told(guard: &GroupGuard, end: Option<Moment>) -> Option<Moment> {
    deadline(guard).map(|deadline| end.map_or(deadline, |end| deadline.min(end)))
}

/// Until when the holder may act. It counts from before the request, so it is never too late.
fn deadline(guard: &GroupGuard) -> Option<Moment> {
    let now = leasehold_clock::now();
    guard.time_left().map(|left| now + left)
}

/// This program again, in its own process group: signals to the runner's group do not reach it.
fn start_guardian(control: OwnedFd, variables: &[Variable]) -> io::Result<Child> {
    let mut command = Command::new(this_program()?);
    command.arg0("lease-guardian").arg(GUARDIAN).stdin(Stdio::from(control)).process_group(0);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.spawn()
}
