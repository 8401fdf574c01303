//! A Redis server of our own: on a free port of this machine, without a trace on disk, gone with whoever started it.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Failure;

/// Between finding a free port and using it another may take it.
const TRIES: u32 = 5;

/// Runs as long as this lives.
pub(crate) struct Server {
    process: Child,
    /// Open, so that it can go on writing to its log.
    _log: Lines<BufReader<ChildStdout>>,
    pub(crate) port: u16,
}

impl Server {
    /// Starts one, and waits until it takes connections.
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match Self::on(free_port()?)? {
                Ok(server) => return Ok(server),
                Err(log) => last = log,
            }
        }
        Err(format!("redis-server does not start: {last}").into())
    }

    /// With its log, where it did not start.
    fn on(port: u16) -> Result<Result<Self, String>, Failure> {
        // Killed by the kernel, too, should this process be killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1", "--port"]).arg(port.to_string());
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]).stdout(Stdio::piped());
        let mut process =
            command.spawn().map_err(|error| format!("setpriv, which starts redis-server, does not run: {error}"))?;
        let output = process.stdout.take().ok_or("no log")?;
        let (mut log, mut said) = (BufReader::new(output).lines(), String::new());
        while let Some(line) = log.next().transpose()? {
            if line.contains("Ready to accept connections") {
                return Ok(Ok(Self { process, _log: log, port }));
            }
            said.push_str(&line);
            said.push('\n');
        }
        process.wait()?;
        Ok(Err(said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
