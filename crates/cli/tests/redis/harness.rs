//! A server, and the command run on it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Stdio};

use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::Reply;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program;
pub(crate) use crate::program::Ran;

/// What a case comes to. Most say by a panic that something is wrong.
pub(crate) type Checked = Result<(), Failure>;
/// A case with its name.
pub(crate) type Case = (&'static str, fn() -> Checked);

/// The URL of a server.
pub(crate) fn url(server: &Redis) -> String {
    at(server.address())
}

pub(crate) fn at(address: SocketAddr) -> String {
    format!("redis://{address}")
}

/// The URL of a server for one of its users.
pub(crate) fn url_of(server: &Redis, user: &str, rest: &str) -> String {
    format!("redis://{user}@{}{rest}", server.address())
}

/// Runs it to its end.
pub(crate) fn run(url: &str, args: &[&str]) -> Ran {
    run_with(url, None, args)
}

/// The same, with a password by the environment.
pub(crate) fn run_with(url: &str, password: Option<&str>, args: &[&str]) -> Ran {
    let mut command = program::command();
    command.env_clear().env("LEASEHOLD_STORE", url).args(args).stdin(Stdio::null());
    if let Some(password) = password {
        command.env("LEASEHOLD_PASSWORD", password);
    }
    command.output().expect("the command").into()
}

/// A command that runs under a lock until it is told to end.
pub(crate) struct Held {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Held {
    /// Starts it, and waits until it has the lock.
    pub(crate) fn start(url: &str, args: &[&str]) -> Self {
        let mut command = program::command();
        command.env_clear().env("LEASEHOLD_STORE", url).args(args).args(["-c", "echo ready; read -r _"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, errors }
    }

    /// Lets the command end.
    pub(crate) fn let_go(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("somebody reads");
    }

    /// The next line that it says on standard error.
    pub(crate) fn error_line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("a line");
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Lets it end, and it ends like this; what it says on standard error.
    pub(crate) fn ends(mut self, code: i32) -> String {
        self.let_go();
        self.ended(code)
    }

    /// It ends like this, without being let go; what else it says on standard error.
    pub(crate) fn ended(mut self, code: i32) -> String {
        let mut err = String::new();
        self.errors.read_to_string(&mut err).expect("UTF-8");
        assert_eq!(self.child.wait().expect("an end").code(), Some(code), "{err}");
        err
    }
}

impl Ran {
    /// It failed like this, said why, and said what to try.
    pub(crate) fn fails(&self, code: i32, why: &str, hint: &str) -> &Self {
        self.is(code);
        assert!(self.err.contains(why), "{why:?} is missing: {self:?}");
        let hints = self.err.lines().find_map(|line| line.split_once("hint: "));
        assert!(hints.is_some_and(|(_, said)| said.contains(hint)), "the hint {hint:?} is missing: {self:?}");
        self
    }

    /// What `doctor --json` found.
    pub(crate) fn checks(&self) -> Checks {
        Checks(self.json_lines())
    }
}

/// Lines of `doctor`.
#[derive(Debug)]
pub(crate) struct Checks(Vec<Value>);

impl Checks {
    /// This check ended like this, found these words, and says what to do about it, where something is to be done.
    pub(crate) fn has(&self, check: &str, status: &str, words: &str) -> &Value {
        let mut lines = self.0.iter().filter(|line| line["check"] == check);
        let line = lines.next().unwrap_or_else(|| panic!("{check:?} is missing: {self:?}"));
        assert!(lines.next().is_none(), "{check:?} is there twice: {self:?}");
        assert_eq!(line["status"], status, "{line}");
        assert!(line["found"].as_str().is_some_and(|found| found.contains(words)), "{words:?} is missing: {line}");
        assert!(status == "ok" || line["advice"].is_string(), "{line}");
        line
    }

    /// Those of one server among several.
    pub(crate) fn at(&self, label: &str) -> Self {
        let label = format!("{label}: ");
        let of = |line: &&Value| line["found"].as_str().is_some_and(|found| found.starts_with(&label));
        Self(self.0.iter().filter(of).cloned().collect())
    }

    /// No other checks failed than these.
    pub(crate) fn only_fail(&self, checks: &[&str]) {
        let failed = self.0.iter().filter(|line| line["status"] == "fail");
        let failed: Vec<&str> = failed.filter_map(|line| line["check"].as_str()).collect();
        assert_eq!(failed, checks, "{self:?}");
    }
}

/// Every key, for comparing before and after.
pub(crate) fn keys(server: &Redis) -> Result<Vec<String>, Failure> {
    let Reply::List(keys) = server.command(&["KEYS", "*"])? else { return Err("no list".into()) };
    let mut keys: Vec<String> = keys.iter().filter_map(|key| key.text().ok().map(str::to_owned)).collect();
    keys.sort_unstable();
    Ok(keys)
}

/// Waits until INFO has this line. No event shows it.
pub(crate) fn until_info(server: &Redis, section: &str, line: &str) -> Checked {
    let began = std::time::Instant::now();
    let mut connection = server.connection()?;
    loop {
        let info = connection.command(&["INFO", section])?;
        if info.text()?.lines().any(|found| found == line) {
            return Ok(());
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "INFO never has {line:?}: {info:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A server that cannot save what it knows, and so refuses to write.
pub(crate) fn unable_to_save() -> Result<Redis, Failure> {
    use leasehold_faults::servers::redis::Settings;
    let server = Redis::with(Settings::default().socket())?;
    server.command(&["CONFIG", "SET", "save", "3600 1000000"])?;
    let folder = server.socket().parent().ok_or("no folder")?.to_owned();
    std::fs::create_dir(folder.join("dump.rdb"))?;
    server.command(&["BGSAVE"])?;
    until_info(&server, "persistence", "rdb_last_bgsave_status:err")?;
    Ok(server)
}

/// A server, and a replica that has all it has.
pub(crate) fn with_replica() -> Result<(Redis, Redis), Failure> {
    let (master, replica) = (Redis::start()?, Redis::start()?);
    let port = master.address().port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port])?;
    until_info(&replica, "replication", "master_link_status:up")?;
    Ok((master, replica))
}
