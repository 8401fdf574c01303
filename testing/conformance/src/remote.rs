//! Another process, as the test sees it: commanded over a pipe, killed, stopped and continued; it ends with the test.

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::sync::oneshot;

use crate::answer::Answer;
use crate::ask::Ask;
use crate::case::{Checked, Failure};
use crate::child::planted::Planted;
use crate::child::{self, Job};
use crate::world::{World, soon};

type Open = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

/// Another process, with a client of its own.
#[derive(Debug)]
pub struct Remote {
    child: Child,
    orders: Option<ChildStdin>,
    open: Open,
    sent: u64,
    /// Its number in ledgers.
    pub who: u64,
}

impl Remote {
    /// Starts a process.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(world: &World) -> Result<Self, Failure> {
        Self::planted(world, Planted::Nothing)
    }

    /// Starts several.
    ///
    /// # Errors
    ///
    /// When one cannot be started.
    pub fn several<const N: usize>(world: &World) -> Result<[Self; N], Failure> {
        let all: Vec<Self> = (0..N).map(|_| Self::start(world)).collect::<Result<_, _>>()?;
        Ok(all.try_into().expect("as many as were asked for"))
    }

    /// Starts a process with a bug in it, for a test of the checks themselves.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn planted(world: &World, bug: Planted) -> Result<Self, Failure> {
        Self::at(&world.url(), bug)
    }

    /// Starts a process on a store that is no world of a case's.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn at(url: &str, bug: Planted) -> Result<Self, Failure> {
        let who = getrandom::u64()?;
        let mut command = child::command(url, Job::Obey { who, bug })?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let open = Open::default();
        let files = open.clone();
        let remote = Self { child, orders, open, sent: 0, who };
        let answers = answers.ok_or("a process without an output")?;
        std::thread::Builder::new().name("answers".into()).spawn(move || hear(answers, &files))?;
        Ok(remote)
    }

    /// Sends a command without waiting for the answer.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn begin(&mut self, words: &[&str]) -> Result<Pending, Failure> {
        let (sender, receiver) = oneshot::channel();
        self.sent += 1;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(self.sent, sender);
        let orders = self.orders.as_mut().ok_or("the process was ended")?;
        writeln!(orders, "{}\t{}", self.sent, words.join("\t"))?;
        Ok(Pending(receiver))
    }

    /// Sends a command and waits for the answer.
    ///
    /// # Errors
    ///
    /// When it is gone, or does not answer in time.
    pub async fn ask(&mut self, words: &[&str]) -> Result<Answer, Failure> {
        soon(words[0], self.begin(words)?).await?
    }

    /// Has it take a lock, kept under a word, and does not wait.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn begin_take(&mut self, slot: &str, ask: &Ask) -> Result<Pending, Failure> {
        let words: Vec<&str> = ["take", slot].into_iter().chain(ask.words().iter().map(String::as_str)).collect();
        self.begin(&words)
    }

    /// Has it take a lock, kept under a word.
    ///
    /// # Errors
    ///
    /// When it is gone, or does not answer in time.
    pub async fn take(&mut self, slot: &str, ask: &Ask) -> Result<Answer, Failure> {
        soon("take", self.begin_take(slot, ask)?).await?
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it, and waits until it is gone. Answers when that was sent.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn kill(&mut self) -> Result<u64, Failure> {
        let at = leasehold_clock::now().as_nanos();
        self.child.kill()?;
        self.child.wait()?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(at)
    }

    /// Stops it, and waits until it stands still.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn stop(&self) -> Checked {
        kill_process(self.pid(), Signal::STOP)?;
        waitpid(Some(self.pid()), WaitOptions::UNTRACED)?;
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn go_on(&self) -> Checked {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It may be gone already. Those that it forked end when the pipe is closed.
        let _ = self.kill();
    }
}

/// An answer to come.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Answer>);

impl Pending {
    /// Whether there is no answer yet.
    pub fn is_open(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }
}

impl Future for Pending {
    type Output = Result<Answer, Failure>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.0).poll(task));
        Poll::Ready(answer.map_err(|_| "the process ended without an answer".into()))
    }
}

/// Delivers answers to their receivers, until the process ends.
fn hear(answers: ChildStdout, open: &Open) {
    for line in BufReader::new(answers).lines().map_while(Result::ok) {
        let Some((number, answer)) = Answer::read(&line) else { continue };
        let waiting = open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some(waiting) = waiting {
            // The receiver may be gone.
            let _ = waiting.send(answer);
        }
    }
    open.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
