//! A private `redis-server`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::clock::Clock;
use super::find;
use super::port::Port;
use super::process::Process;
use super::resp::{Connection, Reply};
use crate::Failure;

/// The program.
const PROGRAM: &str = "redis-server";
/// Another one in its place: the path of a server of another version, or of Valkey.
const OTHER: &str = "LEASEHOLD_REDIS_SERVER";
/// Its output once it answers.
const READY: &str = "Ready to accept connections";
/// Its output if its port is taken.
const TAKEN: &str = "Address already in use";
/// How often another port is tried.
const PORTS: u32 = 5;
/// The name of a test's own connections; and of its user, with that password, where there is a list of users.
pub const TESTER: &str = "leasehold-tester";

/// How a server is to be started. By default it keeps everything in memory alone.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    options: Vec<(String, String)>,
    has_socket: bool,
    password: Option<String>,
    users: Option<String>,
    has_clock: bool,
}

impl Settings {
    /// With an option of its configuration.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes every change to its file before it answers.
    #[must_use]
    pub fn durable(self) -> Self {
        self.option("appendonly", "yes").option("appendfsync", "always")
    }

    /// Listens on a socket of the file system as well: [`Redis::socket`].
    #[must_use]
    pub fn socket(mut self) -> Self {
        self.has_socket = true;
        self
    }

    /// Wants a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Has a clock of its own: [`Redis::set_clock`].
    #[must_use]
    pub fn settable_clock(mut self) -> Self {
        self.has_clock = true;
        self
    }

    /// Has users, as lines of its list of users. One for the tests themselves is added.
    #[must_use]
    pub fn users(mut self, lines: &str) -> Self {
        self.users = Some(lines.to_owned());
        self
    }
}

/// What a server knew at some time.
#[derive(Clone, Debug)]
pub struct Snapshot(Vec<u8>);

/// What a server had in its files at some time.
#[derive(Clone, Debug)]
pub struct Files(Vec<(PathBuf, Vec<u8>)>);

impl Files {
    /// Whether one of them has this text.
    pub fn contain(&self, text: &str) -> bool {
        self.0.iter().any(|(_, bytes)| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

/// A server, which ends with this value or with the process of the test.
#[derive(Debug)]
pub struct Redis {
    settings: Settings,
    folder: TempDir,
    port: Port,
    process: Process,
}

impl Redis {
    /// Whether there is a program to start.
    ///
    /// # Errors
    ///
    /// [`super::Missing`], when there is none.
    pub fn is_there() -> Result<(), Failure> {
        program()?;
        Ok(())
    }

    /// Whether a server's clock can be set.
    ///
    /// # Errors
    ///
    /// [`super::Missing`], when there is no C compiler to make such a clock with, or no Linux.
    pub fn clock_is_settable() -> Result<(), Failure> {
        Ok(Clock::is_there()?)
    }

    /// Sets its clock this many seconds ahead of ours, or behind. The speed of its time does not change.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn set_clock(&self, ahead: i64) -> Result<(), Failure> {
        Clock::of(self.folder.path()).set(ahead)
    }

    /// Starts one that is empty.
    ///
    /// # Errors
    ///
    /// [`super::Missing`] where there is no `redis-server`; what it said, where it did not start.
    pub fn start() -> Result<Self, Failure> {
        Self::with(Settings::default())
    }

    /// Starts one that is empty, in this way.
    ///
    /// # Errors
    ///
    /// As [`Redis::start`].
    pub fn with(settings: Settings) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut tried = 0;
        loop {
            tried += 1;
            let port = Port::reserve()?;
            match run(&settings, folder.path(), &port) {
                // By a program that knows nothing of reserved ports.
                Err(error) if tried < PORTS && error.to_string().contains(TAKEN) => {}
                process => return Ok(Self { process: process?, settings, folder, port }),
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its socket in the file system, where it has one.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it wrote to its log since it was started last.
    pub fn log(&self) -> String {
        self.process.said()
    }

    /// A connection for commands of the test itself.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn connection(&self) -> Result<Connection, Failure> {
        connect(&self.settings, &self.port)
    }

    /// Sends one command.
    ///
    /// # Errors
    ///
    /// When it does not answer, or with an error.
    pub fn command(&self, words: &[&str]) -> Result<Reply, Failure> {
        self.connection()?.command(words)
    }

    /// Makes it forget everything, scripts as well.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn flush(&self) -> Result<(), Failure> {
        let mut connection = self.connection()?;
        connection.command(&["FLUSHALL"])?;
        connection.command(&["SCRIPT", "FLUSH"])?;
        Ok(())
    }

    /// Stops it: it is there, takes connections, and does nothing.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn stop(&self) -> Result<(), Failure> {
        self.process.stop()
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn go_on(&self) -> Result<(), Failure> {
        self.process.go_on()
    }

    /// Kills it. Its port stays reserved.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()
    }

    /// Kills it where it still runs, and starts it again with what it has written to its files.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.kill()?;
        self.process = run(&self.settings, self.folder.path(), &self.port)?;
        Ok(())
    }

    /// Kills it where it still runs, and starts it again with nothing.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    pub fn restart_empty(&mut self) -> Result<(), Failure> {
        self.forget()?;
        self.restart()
    }

    /// What it knows now.
    ///
    /// # Errors
    ///
    /// When it cannot write it.
    pub fn snapshot(&self) -> Result<Snapshot, Failure> {
        self.command(&["SAVE"])?;
        Ok(Snapshot(fs::read(self.folder.path().join("dump.rdb"))?))
    }

    /// Kills it where it still runs, and starts it again with what it knew then. Not for one that writes every change to a file.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    pub fn restart_from(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.forget()?;
        fs::write(self.folder.path().join("dump.rdb"), &snapshot.0)?;
        self.restart()
    }

    /// What is in its files now: of one that writes every change, all that it would come back with.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn files(&self) -> Result<Files, Failure> {
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.folder.path().join(&folder))? {
                let entry = entry?;
                let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    files.push((path, fs::read(entry.path())?));
                }
            }
        }
        Ok(Files(files))
    }

    /// Kills it where it still runs, and starts it again with the files that it had then.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    pub fn restart_with(&mut self, files: &Files) -> Result<(), Failure> {
        self.forget()?;
        for (path, bytes) in &files.0 {
            let path = self.folder.path().join(path);
            path.parent().map(fs::create_dir_all).transpose()?;
            fs::write(path, bytes)?;
        }
        self.restart()
    }

    fn forget(&mut self) -> Result<(), Failure> {
        self.kill()?;
        for entry in fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        Ok(())
    }
}

fn program() -> Result<PathBuf, Failure> {
    match std::env::var_os(OTHER) {
        Some(other) if Path::new(&other).is_file() => Ok(other.into()),
        Some(other) => Err(format!("{OTHER} is {other:?}, and no file is there").into()),
        None => Ok(find(PROGRAM)?),
    }
}

fn run(settings: &Settings, folder: &Path, port: &Port) -> Result<Process, Failure> {
    let mut arguments: Vec<String> = Vec::new();
    let mut option = |name: &str, value: &str| arguments.extend([format!("--{name}"), value.to_owned()]);
    option("port", &port.number().to_string());
    option("bind", "127.0.0.1");
    option("dir", &folder.display().to_string());
    option("daemonize", "no");
    option("save", "");
    if settings.has_socket {
        option("unixsocket", &folder.join("socket").display().to_string());
    }
    if let Some(password) = &settings.password {
        option("requirepass", password);
    }
    if let Some(lines) = &settings.users {
        let file = folder.join("users.acl");
        fs::write(&file, format!("{lines}\nuser {TESTER} on >{TESTER} ~* &* +@all\n"))?;
        option("aclfile", &file.display().to_string());
    }
    for (name, value) in &settings.options {
        option(name, value);
    }
    let variables = if settings.has_clock { Clock::of(folder).make()? } else { Vec::new() };
    let process = Process::start(&program()?, &arguments, &variables, READY)?;
    let info = connect(settings, port)?.command(&["INFO", "server"])?;
    if info.text()?.lines().any(|line| line == format!("process_id:{}", process.id())) {
        Ok(process)
    } else {
        Err("another server answers on this port".into())
    }
}

fn connect(settings: &Settings, port: &Port) -> Result<Connection, Failure> {
    let mut connection = Connection::open(port.address())?;
    if settings.users.is_some() {
        connection.command(&["AUTH", TESTER, TESTER])?;
    } else if let Some(password) = &settings.password {
        connection.command(&["AUTH", password])?;
    }
    connection.command(&["CLIENT", "SETNAME", TESTER])?;
    Ok(connection)
}
