//! The process of a server: started, awaited until it is ready, killed, stopped and continued.

use std::io::{self, BufRead, BufReader, PipeReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::find;
use crate::Failure;

/// A server that is not ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A server's process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Process {
    /// Starts a program, and waits until its output contains these words.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        variables: &[(&str, String)],
        ready: &'static str,
    ) -> Result<Self, Failure> {
        let mut command = ending_with_this_process(program);
        let (output, input) = io::pipe()?;
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input);
        let process = Self { child: spawn(command)?, said: Arc::default() };
        let (tell, told) = channel();
        let said = process.said.clone();
        std::thread::Builder::new().name("server".into()).spawn(move || listen(output, ready, &said, tell))?;
        match told.recv_timeout(READY_WITHIN) {
            Ok(()) => Ok(process),
            Err(RecvTimeoutError::Disconnected) => Err(format!("the server ended: {}", process.said()).into()),
            Err(RecvTimeoutError::Timeout) => Err(format!("the server is not ready: {}", process.said()).into()),
        }
    }

    /// What it wrote to its output so far.
    pub(super) fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it, also where it is stopped, and waits until it is gone.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it, and waits until it stands still.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        kill_process(self.pid(), Signal::STOP)?;
        waitpid(Some(self.pid()), WaitOptions::UNTRACED)?;
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.kill();
    }
}

/// Listens until the server ends, so that it is never held up by what it writes.
fn listen(output: PipeReader, ready: &str, said: &Mutex<String>, tell: Sender<()>) {
    let mut tell = Some(tell);
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let is_ready = line.contains(ready);
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_str(&line);
        said.push('\n');
        drop(said);
        if is_ready && let Some(tell) = tell.take() {
            // The waiter may have given up.
            let _ = tell.send(());
        }
    }
}

/// Has the operating system kill the program when the thread that started it ends. Where there is no `setpriv` for that, it ends
/// with its value alone.
fn ending_with_this_process(program: &Path) -> Command {
    match find("setpriv") {
        Ok(setpriv) if cfg!(target_os = "linux") => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        _ => Command::new(program),
    }
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a program from a thread that lives as long as this process: a test's own thread may end before its server.
fn spawn(command: Command) -> Result<Child, Failure> {
    static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, ordered) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in ordered {
                let child = command.spawn();
                // With it goes our end of the pipe that the child writes to.
                drop(command);
                // The caller waits for it.
                let _ = answer.send(child);
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = channel();
    STARTER.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer))?;
    Ok(answered.recv()??)
}
