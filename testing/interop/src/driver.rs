//! A library in a process of its own, commanded as peers/PROTOCOL.md describes.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Failure;
use crate::peer::Peer;

/// How long an answer may take, beyond what its command takes by itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a driver may take to start, beyond that: Java has much to load, and the machine may be busy.
const STARTING: Duration = Duration::from_secs(90);
/// The lease of locks that a library keeps alive by itself.
pub const KEEP: Duration = Duration::from_millis(2_000);

/// A driver that runs; ended when this is dropped.
pub struct Driver {
    /// The library.
    pub peer: Peer,
    /// What the library calls itself, with its version.
    pub title: String,
    process: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    /// Its last command, for people.
    told: String,
}

/// What `lock` came to.
#[derive(Deserialize)]
pub struct Taken {
    /// Whether it was granted.
    pub got: bool,
    /// Before the call.
    pub from_us: u64,
    /// After it.
    pub at_us: u64,
}

/// What `unlock` and `stranger` came to.
#[derive(Deserialize)]
pub struct Released {
    /// None where the library does not say.
    pub released: Option<bool>,
    /// Before the call.
    pub from_us: u64,
}

#[derive(Deserialize)]
struct Ready {
    library: String,
    version: String,
}

impl Driver {
    /// Starts one, and waits until it is connected.
    pub fn start(peer: Peer, servers: &[SocketAddr]) -> Result<Self, Failure> {
        Self::keeping(KEEP, peer, servers)
    }

    /// As `start`, with another lease for locks that are kept alive.
    pub fn keeping(keep: Duration, peer: Peer, servers: &[SocketAddr]) -> Result<Self, Failure> {
        let mut command = peer.command()?;
        let ports: Vec<String> = servers.iter().map(|server| server.port().to_string()).collect();
        command.args([ports.join(","), keep.as_millis().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process =
            command.spawn().map_err(|error| format!("{}: {error}; say testing/interop/run", peer.name))?;
        let (commands, output) = (process.stdin.take().ok_or("no input")?, process.stdout.take().ok_or("no output")?);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // The receiver may be gone.
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mut driver = Self { peer, title: String::new(), process, commands, answers, told: "start".into() };
        let ready: Ready = driver.answer(STARTING)?;
        driver.title = format!("{} {}", ready.library, ready.version);
        Ok(driver)
    }

    /// Takes a lock. A lease of zero is kept alive by the library.
    pub fn lock(&mut self, key: &str, lease: Duration, wait: Duration) -> Result<Taken, Failure> {
        self.begin_lock(key, lease, wait)?;
        self.answer(wait)
    }

    /// As `lock`, without waiting for its answer: [`Self::answer`].
    pub fn begin_lock(&mut self, key: &str, lease: Duration, wait: Duration) -> Result<(), Failure> {
        let name = self.peer.name_of(key)?;
        self.tell(&format!("lock {name} {} {}", lease.as_millis(), wait.as_millis()))
    }

    /// Takes a lock that must be free.
    pub fn must_lock(&mut self, key: &str, lease: Duration) -> Result<Taken, Failure> {
        let taken = self.lock(key, lease, Duration::ZERO)?;
        if taken.got { Ok(taken) } else { Err(format!("{} does not get {key}, which is free", self.peer.name).into()) }
    }

    /// Gives a lock back that it must still hold.
    pub fn must_unlock(&mut self, key: &str) -> Result<Released, Failure> {
        let released = self.unlock(key)?;
        match released.released {
            Some(false) => Err(format!("{} has lost {key}", self.peer.name).into()),
            _ => Ok(released),
        }
    }

    /// Gives a lock back.
    pub fn unlock(&mut self, key: &str) -> Result<Released, Failure> {
        self.ask("unlock", key)
    }

    /// Tries to release what another holds.
    pub fn stranger(&mut self, key: &str) -> Result<Released, Failure> {
        self.ask("stranger", key)
    }

    /// Lengthens a lease by hand.
    pub fn renew(&mut self, key: &str, lease: Duration) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Renewed {
            renewed: bool,
        }
        self.tell(&format!("renew {} {}", self.peer.name_of(key)?, lease.as_millis()))?;
        let answer: Renewed = self.answer(Duration::ZERO)?;
        if answer.renewed { Ok(()) } else { Err(format!("{} cannot lengthen {key}", self.peer.name).into()) }
    }

    fn ask<T: DeserializeOwned>(&mut self, verb: &str, key: &str) -> Result<T, Failure> {
        self.tell(&format!("{verb} {}", self.peer.name_of(key)?))?;
        self.answer(Duration::ZERO)
    }

    /// Sends a command.
    pub fn tell(&mut self, command: &str) -> Result<(), Failure> {
        self.told = command.to_owned();
        writeln!(self.commands, "{command}").map_err(|error| format!("{} is gone: {error}", self.peer.name).into())
    }

    /// The answer to the oldest command without one, which takes at most this by itself.
    pub fn answer<T: DeserializeOwned>(&mut self, takes: Duration) -> Result<T, Failure> {
        let line = self.answers.recv_timeout(takes + PATIENCE);
        let line = line.map_err(|error| format!("{} does not answer {:?}: {error}", self.peer.name, self.told))?;
        serde_json::from_str(&line)
            .map_err(|_| format!("{} answers {:?} with {line}", self.peer.name, self.told).into())
    }

    /// Kills it, as a machine that loses power would.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
