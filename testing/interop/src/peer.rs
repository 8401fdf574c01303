//! Who takes part: each library, how its driver is started, and what has to be known of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Failure;

/// Set by testing/interop/run: where the drivers were built.
const BUILT: &str = "LEASEHOLD_INTEROP";

/// A lock library.
#[derive(Clone, Copy)]
pub struct Peer {
    /// The library's name, with its major version where there are two.
    pub name: &'static str,
    /// What has to be installed for it, by the word that `LEASEHOLD_REQUIRE` has for it.
    pub needs: Tool,
    /// What the library writes before a name to make the key.
    pub prefix: &'static str,
    /// What is at the key.
    pub layout: &'static str,
    /// Whether it keeps a lock alive by itself.
    pub watchdog: bool,
    /// How it learns that a lock became free.
    pub waits: Waits,
    /// How many servers it is meant to have.
    pub servers: usize,
    /// Planted: what it writes behind every name, so that nobody shares its locks.
    pub behind: &'static str,
    /// Makes its driver's command of where the drivers were built and of the layout.
    pub command: fn(&Path, &str) -> Command,
}

/// How a library learns that a lock became free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It subscribes to a channel, and asks once more before it sleeps.
    Subscribed,
    /// It asks again, after pauses of at most this.
    Asking(Duration),
    /// It sleeps until somebody writes into a list, or until its own time is up.
    Signalled,
}

/// A toolchain.
#[derive(Clone, Copy)]
pub struct Tool {
    /// The word that `LEASEHOLD_REQUIRE` has for it.
    pub word: &'static str,
    programs: &'static [&'static str],
}

const OURSELVES: Tool = Tool { word: "redis", programs: &["redis-server"] };
const JAVA: Tool = Tool { word: "java", programs: &["java", "javac", "mvn"] };
const PYTHON: Tool = Tool { word: "python", programs: &["python3"] };
const GO: Tool = Tool { word: "go", programs: &["go"] };
const NODE: Tool = Tool { word: "node", programs: &["node", "npm"] };

/// The longest pause of leasehold where nobody tells of a release.
const SPINNING: Duration = Duration::from_millis(400);

/// Every library but ours.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "redisson-4",
        needs: JAVA,
        prefix: "",
        layout: "redisson",
        watchdog: true,
        behind: "",
        servers: 1,
        waits: Waits::Subscribed,
        command: |built, _| java(&built.join("redisson-4")),
    },
    Peer {
        name: "redisson-3",
        needs: JAVA,
        prefix: "",
        layout: "redisson",
        watchdog: true,
        behind: "",
        servers: 1,
        waits: Waits::Subscribed,
        command: |built, _| java(&built.join("redisson-3")),
    },
    Peer {
        name: "redis-py",
        needs: PYTHON,
        prefix: "",
        layout: "plain",
        watchdog: false,
        behind: "",
        servers: 1,
        waits: Waits::Asking(Duration::from_millis(100)),
        command: |built, _| python(built, "redis_py.py"),
    },
    Peer {
        name: "python-redis-lock",
        needs: PYTHON,
        prefix: "lock:",
        layout: "plain",
        watchdog: true,
        behind: "",
        servers: 1,
        waits: Waits::Signalled,
        command: |built, _| python(built, "python_redis_lock.py"),
    },
    Peer {
        name: "pottery",
        needs: PYTHON,
        prefix: "redlock:",
        layout: "plain",
        watchdog: false,
        behind: "",
        servers: 1,
        waits: Waits::Asking(Duration::from_millis(200)),
        command: |built, _| python(built, "pottery_redlock.py"),
    },
    Peer {
        name: "redsync",
        needs: GO,
        prefix: "",
        layout: "plain",
        watchdog: false,
        behind: "",
        servers: 1,
        waits: Waits::Asking(Duration::from_millis(250)),
        command: |built, _| Command::new(built.join("redsync/redsync")),
    },
    Peer {
        name: "node-redlock",
        needs: NODE,
        prefix: "",
        layout: "plain",
        watchdog: true,
        behind: "",
        servers: 1,
        waits: Waits::Asking(Duration::from_millis(300)),
        command: |built, _| node(built, "redlock.mjs"),
    },
    Peer {
        name: "redis-semaphore",
        needs: NODE,
        prefix: "mutex:",
        layout: "plain",
        watchdog: true,
        behind: "",
        servers: 1,
        waits: Waits::Asking(Duration::from_millis(10)),
        command: |built, _| node(built, "redis-semaphore.mjs"),
    },
    Peer {
        name: "redsync-three",
        needs: GO,
        prefix: "",
        layout: "plain",
        watchdog: false,
        behind: "",
        servers: 3,
        waits: Waits::Asking(Duration::from_millis(250)),
        command: |built, _| Command::new(built.join("redsync/redsync")),
    },
    Peer {
        name: "node-redlock-three",
        needs: NODE,
        prefix: "",
        layout: "plain",
        watchdog: true,
        behind: "",
        servers: 3,
        waits: Waits::Asking(Duration::from_millis(300)),
        command: |built, _| node(built, "redlock.mjs"),
    },
];

impl Peer {
    /// leasehold itself, as the other one needs it: this very program, told to be a driver.
    pub fn leasehold(other: &Self) -> Self {
        let (layout, servers) = (other.layout, other.servers);
        let command = |_: &Path, layout: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap_or_default());
            command.args(["drive", layout]);
            command
        };
        // Those who use the plain layout tell nobody of a release.
        let waits = if layout == "plain" { Waits::Asking(SPINNING) } else { Waits::Subscribed };
        Self {
            name: "leasehold",
            needs: OURSELVES,
            prefix: "",
            layout,
            watchdog: true,
            waits,
            servers,
            behind: "",
            command,
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        PEERS.iter().find(|peer| peer.name == name).copied()
    }

    /// Redisson, compiled as far as Java can.
    pub fn measured_redisson() -> Option<Self> {
        let command = |built: &Path, _: &str| with_redisson(Command::new("java"), &built.join("redisson-4"));
        Self::named("redisson-4").map(|redisson| Self { command, ..redisson })
    }

    /// Its driver, not yet started.
    pub fn command(&self) -> Result<Command, Failure> {
        let built = std::env::var_os(BUILT).map(PathBuf::from).unwrap_or_default();
        let built = built.canonicalize().map_err(|_| "the drivers are not built; say testing/interop/run")?;
        Ok((self.command)(&built, self.layout))
    }

    /// By which name the library calls that key.
    pub fn name_of(&self, key: &str) -> Result<String, Failure> {
        let name = key.strip_prefix(self.prefix).ok_or_else(|| format!("{} cannot have the key {key}", self.name))?;
        Ok(format!("{name}{}", self.behind))
    }
}

impl Tool {
    /// The first of its programs that is not on the path.
    pub fn missing(&self) -> Option<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = |program: &&&str| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        self.programs.iter().find(there).copied()
    }
}

fn java(folder: &Path) -> Command {
    let mut command = Command::new("java");
    // Starts in half the time; for measuring, see `measured`.
    command.arg("-XX:TieredStopAtLevel=1");
    with_redisson(command, folder)
}

fn with_redisson(mut command: Command, folder: &Path) -> Command {
    command.args(["-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]);
    command.arg(format!("{0}:{0}/lib/*", folder.display())).arg("Driver");
    command
}

fn python(built: &Path, program: &str) -> Command {
    let mut command = Command::new(built.join("python/venv/bin/python"));
    command.arg(built.join("python").join(program));
    command
}

fn node(built: &Path, program: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(built.join("node").join(program));
    command
}
