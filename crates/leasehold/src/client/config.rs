//! Typed settings of a store, for programs that would otherwise put a URL together.
//!
//! Each type says the same as the URL of its store, and is given to [`Client::builder`](crate::Client::builder). A password is given
//! to the builder: [`ClientBuilder::password`](crate::ClientBuilder::password).
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::Client::builder(leasehold::config::Memory::named("jobs")).connect().await?;
//! assert_eq!(client.store_label(), "memory:jobs");
//! # Ok(()) }
//! ```

use std::fmt;
#[cfg(any(feature = "file", feature = "redis"))]
use std::path::{Path, PathBuf};
#[cfg(feature = "redis")]
use std::time::Duration;

use leasehold_core::Error;
#[cfg(any(feature = "file", feature = "redis"))]
use leasehold_core::ErrorKind;
#[cfg(feature = "redis")]
use leasehold_quorum as quorum;
#[cfg(feature = "redis")]
use leasehold_redis as redis;
#[cfg(feature = "redis")]
pub use leasehold_redis::Layout;

use super::url::StoreUrl;

/// Which store, and how to use it: made from a URL, or from a type of this module. A mistake in it is reported when the client
/// connects.
#[derive(Clone)]
pub struct StoreConfig(pub(crate) Result<StoreUrl, Error>);

impl fmt::Debug for StoreConfig {
    /// Without the URL, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig").finish_non_exhaustive()
    }
}

impl From<&str> for StoreConfig {
    fn from(url: &str) -> Self {
        Self(StoreUrl::parse(url))
    }
}

impl From<&String> for StoreConfig {
    fn from(url: &String) -> Self {
        url.as_str().into()
    }
}

impl From<String> for StoreConfig {
    fn from(url: String) -> Self {
        url.as_str().into()
    }
}

/// A store in this process: `memory:`.
#[cfg(feature = "memory")]
#[derive(Clone, Debug, Default)]
pub struct Memory {
    name: String,
}

#[cfg(feature = "memory")]
impl Memory {
    /// The unnamed store of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// One of several stores of this process.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

#[cfg(feature = "memory")]
impl From<Memory> for StoreConfig {
    fn from(memory: Memory) -> Self {
        Self(Ok(StoreUrl::of(leasehold_memory::SCHEME, memory.name, Vec::new())))
    }
}

/// A file on this machine: `file:PATH`.
#[cfg(feature = "file")]
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    liveness: bool,
    create: bool,
}

#[cfg(feature = "file")]
impl File {
    /// The file at this path. It is created if it does not exist.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), liveness: true, create: true }
    }

    /// Whether the death of a process ends its kept locks at once, instead of when their leases run out. Default: yes.
    #[must_use]
    pub fn liveness(self, liveness: bool) -> Self {
        Self { liveness, ..self }
    }

    /// Whether the file is created if it does not exist. Default: yes.
    #[must_use]
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }
}

#[cfg(feature = "file")]
impl From<File> for StoreConfig {
    fn from(file: File) -> Self {
        let Some(path) = file.path.to_str() else {
            return Self(Err(bad("the path of the file is not valid UTF-8")));
        };
        // A path of two slashes would be taken for a host.
        let path = if path.starts_with("//") { format!("/{}", path.trim_start_matches('/')) } else { path.to_owned() };
        let liveness = if file.liveness { "on" } else { "off" };
        let create = if file.create { "yes" } else { "no" };
        let options = vec![option("liveness", liveness), option("create", create)];
        Self(Ok(StoreUrl::of(leasehold_file::SCHEME, path, options)))
    }
}

/// Redis or Valkey: one server (`redis://host`, `redis+unix:///path`), or a majority of several (`redlock://one,two,three`).
#[cfg(feature = "redis")]
#[derive(Clone, Debug)]
pub struct Redis {
    servers: Servers,
    user: Option<String>,
    database: u32,
    layout: Option<Layout>,
    prefix: Option<String>,
    timeout: Option<Duration>,
}

#[cfg(feature = "redis")]
#[derive(Clone, Debug)]
enum Servers {
    Tcp(String, u16),
    Unix(PathBuf),
    Redlock(Vec<(String, u16)>, quorum::Settings),
}

#[cfg(feature = "redis")]
impl Redis {
    /// A server at a host name or address.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::on(Servers::Tcp(host.into(), port))
    }

    /// A server at a Unix socket.
    pub fn unix(socket: impl AsRef<Path>) -> Self {
        Self::on(Servers::Unix(socket.as_ref().to_owned()))
    }

    /// A majority of independent servers, each a host name or address with its port.
    pub fn redlock<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>, settings: quorum::Settings) -> Self {
        let servers = servers.into_iter().map(|(host, port)| (host.into(), port)).collect();
        Self::on(Servers::Redlock(servers, settings))
    }

    fn on(servers: Servers) -> Self {
        Self { servers, user: None, database: 0, layout: None, prefix: None, timeout: None }
    }

    /// The user to log in as. Default: the server's default user.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// The number of the database. Default: 0.
    #[must_use]
    pub fn database(self, number: u32) -> Self {
        Self { database: number, ..self }
    }

    /// The format of locks, which decides with which other libraries they are shared. Default: Redisson's for one server; for a
    /// majority there is only the plain one.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout: Some(layout), ..self }
    }

    /// A prefix of every key. Default: none.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: Some(prefix.into()), ..self }
    }

    /// The time-out of connecting, and of a call to one server. Default: 1.5 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    fn into_url(self) -> Result<StoreUrl, Error> {
        let layout = self.layout.map(|layout| match layout {
            Layout::Redisson => option("layout", "redisson"),
            Layout::Plain => option("layout", "plain"),
        });
        let prefix = self.prefix.map(|prefix| option("prefix", prefix));
        let timeout = self.timeout.map(|timeout| option("timeout", duration(timeout)));
        let mut options: Vec<_> = [layout, prefix, timeout].into_iter().flatten().collect();
        let login = self.user.as_ref().map(|user| format!("{}@", encoded(user, ""))).unwrap_or_default();
        let [tcp, unix] = redis::SCHEMES;
        match self.servers {
            Servers::Tcp(host, port) => {
                Ok(StoreUrl::of(tcp, format!("//{login}{}/{}", address(&host, port)?, self.database), options))
            }
            Servers::Unix(socket) => {
                options.push(option("db", self.database.to_string()));
                options.extend(self.user.map(|user| option("user", user)));
                let socket = socket.to_str().ok_or_else(|| bad("the path of the socket is not valid UTF-8"))?;
                Ok(StoreUrl::of(unix, format!("//{}", encoded(socket, "/")), options))
            }
            Servers::Redlock(servers, settings) => {
                options.push(option("quarantine", duration(settings.quarantine)));
                options.extend(settings.limit.map(|limit| option("limit", duration(limit))));
                options.extend(settings.even.then(|| option("even", "yes")));
                let servers = servers.iter().map(|(host, port)| address(host, *port)).collect::<Result<Vec<_>, _>>()?;
                let place = format!("//{login}{}/{}", servers.join(","), self.database);
                Ok(StoreUrl::of(quorum::SCHEME, place, options))
            }
        }
    }
}

#[cfg(feature = "redis")]
impl From<Redis> for StoreConfig {
    fn from(redis: Redis) -> Self {
        Self(redis.into_url())
    }
}

/// A host and a port as they stand in a URL.
#[cfg(feature = "redis")]
fn address(host: &str, port: u16) -> Result<String, Error> {
    if host.contains('@') {
        // Not shown: what is before it may be a password.
        let what = "the host has an '@' in it, and is neither used nor shown";
        return Err(bad(what).with_hint("give the user and the password separately"));
    }
    if host.is_empty() || host.contains(|mark: char| "/,?#[]%".contains(mark) || mark.is_whitespace()) {
        return Err(bad(format!("{host:?} is not a host name or address")));
    }
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(any(feature = "file", feature = "redis"))]
fn option(key: &str, value: impl Into<String>) -> (String, String) {
    (key.to_owned(), value.into())
}

#[cfg(feature = "redis")]
fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Percent-encodes what has a meaning in a URL.
#[cfg(feature = "redis")]
fn encoded(text: &str, allowed: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || allowed.as_bytes().contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(any(feature = "file", feature = "redis"))]
fn bad(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what.into())
}

#[cfg(all(test, feature = "memory", feature = "file", feature = "redis"))]
mod tests {
    use super::*;

    fn label(config: impl Into<StoreConfig>) -> String {
        config.into().0.and_then(|url| url.label()).expect("good settings")
    }

    #[test]
    fn typed_settings_say_the_same_as_a_url() {
        let seconds = Duration::from_secs;
        assert_eq!(label(Memory::new()), label("memory:"));
        assert_eq!(label(Memory::named("jobs")), label("memory:jobs"));
        assert_eq!(label(File::new("/run/a?b#c/locks.db").liveness(false)), "file:/run/a?b#c/locks.db");
        assert_eq!(label(File::new("//run//locks.db")), label("file:/run/locks.db"));
        let redis = Redis::tcp("db1", 6380).user("a@b:c").database(2).layout(Layout::Plain).prefix("x:");
        assert_eq!(label(redis.timeout(seconds(2))), label("redis://db1:6380/2?layout=plain&prefix=x:"));
        assert_eq!(label(Redis::tcp("::1", 6379)), label("redis://[::1]:6379"));
        assert_eq!(label(Redis::unix("/run/a b@c/redis.sock")), label("redis+unix:///run/a b@c/redis.sock"));
        let mut settings = quorum::Settings::default();
        (settings.quarantine, settings.even) = (seconds(10), true);
        let servers = [("a", 6379), ("b", 6379), ("c", 6379), ("d", 6380)];
        assert_eq!(label(Redis::redlock(servers, settings)), label("redlock://a,b,c,d:6380?even=yes"));
    }

    #[test]
    fn a_host_is_no_place_for_a_login_or_an_option() {
        for host in ["", "u:p@host", "host/1", "host?layout=plain", "a,b", "[::1]", "a b"] {
            let error = StoreConfig::from(Redis::tcp(host, 6379)).0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{host}");
        }
        let error = StoreConfig::from(Redis::tcp("u:secret@host", 6379)).0.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}
