//! Parses a URL into the store's settings.

use std::time::Duration;

use leasehold_core::{Error, PasswordSource};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::error;
use crate::keys::{self, Space};

/// The schemes of this store's URLs: over TCP, and over a Unix socket.
pub const SCHEMES: [&str; 2] = ["redis", "redis+unix"];

/// Default time-out of a call.
const LIMIT: Duration = Duration::from_millis(1_500);
/// Maximum length of a prefix, in bytes.
const PREFIX_MAX: usize = 256;

/// The format of locks, which decides with which libraries they are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Layout {
    /// A hash from owner to count, as Redisson keeps it.
    #[default]
    Redisson,
    /// A string, as `SET name value NX PX lease` makes it: redis-py, redsync, node-redlock and the official recipe.
    Plain,
}

/// The server, and how to use it.
#[derive(Clone)]
pub struct Config {
    pub(crate) info: ConnectionInfo,
    /// Read for every connection if the URL has no password.
    pub(crate) password: Option<PasswordSource>,
    pub(crate) layout: Layout,
    pub(crate) space: Space,
    /// Time-out of a call, and of connecting.
    pub(crate) limit: Duration,
    pub(crate) label: String,
    pub(crate) quarantine: Duration,
    /// Whether this is one server of a quorum.
    pub(crate) is_member: bool,
}

impl Config {
    /// From the scheme, the text between it and `?`, the options after it, and a password source for a URL without one.
    ///
    /// # Errors
    ///
    /// A bad argument: an address or an option that is not valid.
    pub fn new(
        scheme: &str,
        place: &str,
        options: &[(String, String)],
        password: Option<&PasswordSource>,
    ) -> Result<Self, Error> {
        let unix = scheme == SCHEMES[1];
        let (mut layout, mut limit, mut db, mut user) = (Layout::default(), LIMIT, None, None);
        let mut prefix = "";
        for (key, value) in options {
            match key.as_str() {
                "layout" => layout = parse_layout(value)?,
                "prefix" => prefix = checked_prefix(value)?,
                "timeout" => limit = parse_limit(value)?,
                "db" if unix => db = Some(database(value).ok_or_else(|| error::bad_database(value))?),
                "user" if unix => user = Some(value.clone()),
                _ => return Err(error::no_such_option(key)),
            }
        }
        if !unix {
            check_place(place)?;
        }
        let url = format!("{scheme}:{place}");
        let info = url.as_str().into_connection_info().map_err(|cause| error::bad_place(scheme, &cause))?;
        let mut login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        if let Some(db) = db {
            login = login.set_db(db);
        }
        if let Some(user) = user {
            login = login.set_username(user);
        }
        let password = password.filter(|_| login.password().is_none()).cloned();
        // A user without a password logs in too: the library would silently continue as the default user.
        if login.username().is_some() && login.password().is_none() {
            login = login.set_password("");
        }
        let space = Space(prefix.into());
        let label = label(info.addr(), login.db(), layout, &space);
        let info = info.set_redis_settings(login);
        Ok(Self { info, password, layout, space, limit, label, quarantine: Duration::ZERO, is_member: false })
    }

    /// Uses this as one server of a quorum, which does not vote for a quarantine after it may have forgotten grants.
    /// Its label does not name the layout, because a quorum has only one.
    #[must_use]
    pub fn with_quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine = quarantine;
        self.is_member = true;
        self.label = label(self.info.addr(), self.info.redis_settings().db(), Layout::default(), &self.space);
        self
    }

    /// The login, with the current password.
    pub(crate) fn login(&self) -> Result<RedisConnectionInfo, Error> {
        let login = self.info.redis_settings().clone();
        Ok(match &self.password {
            Some(password) => login.set_password(password.read()?),
            None => login,
        })
    }

    /// A display name, without credentials.
    pub fn label(&self) -> &str {
        &self.label
    }
}

/// Locks of another layout or prefix are different locks; only the label tells them apart.
fn label(address: &ConnectionAddr, db: i64, layout: Layout, space: &Space) -> String {
    let mut label = place(address, db);
    let layout = (layout == Layout::Plain).then(|| "layout=plain".to_owned());
    let prefix = (!space.0.is_empty()).then(|| format!("prefix={}", space.0));
    for (option, mark) in layout.into_iter().chain(prefix).zip(['?', '&']) {
        label.push(mark);
        label.push_str(&option);
    }
    label
}

fn place(address: &ConnectionAddr, db: i64) -> String {
    let place = match address {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("redis://[{host}]:{port}"),
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
        _ => "redis".to_owned(),
    };
    if db == 0 { place } else { format!("{place}/{db}") }
}

/// The number of a database, of at most 31 bits.
fn database(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<i32>().ok().filter(|_| digits).map(i64::from)
}

/// Checks for one server, a valid port and a valid database. Errors show no part of the URL: it may be a password.
fn check_place(place: &str) -> Result<(), Error> {
    let Some(rest) = place.strip_prefix("//") else { return Ok(()) };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    if server.contains(',') {
        return Err(error::several_servers());
    }
    // An IPv6 address is in brackets.
    let after_host = server.rsplit_once(']').map_or(server, |(_, after)| after);
    let port = after_host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.is_empty());
    if port.is_some_and(|port| !port.parse().is_ok_and(|port: u16| port > 0)) {
        return Err(error::bad_port());
    }
    if !path.is_empty() && database(path).is_none() {
        return Err(error::no_database());
    }
    Ok(())
}

fn parse_layout(value: &str) -> Result<Layout, Error> {
    match value {
        "redisson" => Ok(Layout::Redisson),
        "plain" => Ok(Layout::Plain),
        _ => Err(error::no_such_layout(value)),
    }
}

fn checked_prefix(prefix: &str) -> Result<&str, Error> {
    let odd = |c: char| c.is_control() || c == '%';
    if prefix.len() > PREFIX_MAX || prefix.contains(odd) || keys::is_reserved_prefix(prefix) {
        return Err(error::bad_prefix(prefix));
    }
    Ok(prefix)
}

fn parse_limit(value: &str) -> Result<Duration, Error> {
    let limit = humantime::parse_duration(value).map_err(|_| error::bad_limit(value))?;
    let sensible = Duration::from_millis(10)..=Duration::from_secs(60);
    if sensible.contains(&limit) { Ok(limit) } else { Err(error::bad_limit(value)) }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("label", &self.label).field("layout", &self.layout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn parsed(scheme: &str, place: &str, options: &[(&str, &str)]) -> Result<Config, Error> {
        let options: Vec<_> = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::new(scheme, place, &options, Some(&PasswordSource::fixed("from outside")))
    }

    #[test]
    fn a_label_names_the_place_and_no_password() {
        let config = parsed("redis", "//me:secret@host:7000/3", &[("layout", "plain")]).unwrap();
        assert_eq!(config.label(), "redis://host:7000/3?layout=plain");
        assert_eq!(config.layout, Layout::Plain);
        assert_eq!(config.login().unwrap().password(), Some("secret"));
        assert!(!format!("{config:?}").contains("secret"));
        assert_eq!(parsed("redis", "//[::1]", &[]).unwrap().label(), "redis://[::1]:6379");
        let socket = parsed("redis+unix", "///run/redis.sock", &[("db", "2")]).unwrap();
        assert_eq!(socket.label(), "redis+unix:///run/redis.sock/2");
        assert_eq!(socket.login().unwrap().password(), Some("from outside"));
        let behind = parsed("redis", "//host/3", &[("prefix", "app1:")]).unwrap();
        assert_eq!((behind.label(), &*behind.space.0), ("redis://host:6379/3?prefix=app1:", "app1:"));
        for default in [("prefix", ""), ("layout", "redisson"), ("timeout", "1s")] {
            assert_eq!(parsed("redis", "//host", &[default]).unwrap().label(), "redis://host:6379");
        }
        let both = parsed("redis", "//host", &[("prefix", "app1:"), ("layout", "plain")]).unwrap();
        assert_eq!(both.label(), "redis://host:6379?layout=plain&prefix=app1:");
        assert_eq!(both.with_quarantine(Duration::ZERO).label(), "redis://host:6379?prefix=app1:");
        let named = Config::new("redis", "//me@host", &[], None).unwrap();
        assert_eq!(named.login().unwrap().password(), Some(""), "it would be the default user");
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_sent() {
        let wrong = [
            parsed("redis", "//host", &[("layout", "mine")]),
            parsed("redis", "//host", &[("colour", "red")]),
            parsed("redis", "//host", &[("prefix", "leasehold_fence:")]),
            parsed("redis", "//host", &[("prefix", "redisson_lock_token:")]),
            parsed("redis", "//host", &[("prefix", "a%3A")]),
            parsed("redis", "//host", &[("prefix", "a\n")]),
            parsed("redis", "//host", &[("prefix", &"x".repeat(257))]),
            parsed("redis", "//host", &[("db", "1")]),
            parsed("redis", "//host", &[("timeout", "1ms")]),
            parsed("redis", "//host/nine", &[]),
            parsed("redis", "//host/-1", &[]),
            parsed("redis", "//host/2147483648", &[]),
            parsed("redis+unix", "///run/redis.sock", &[("db", "2147483648")]),
            parsed("redis", "//host:65536", &[]),
            parsed("redis", "//host:0", &[]),
            parsed("redis", "//[::1]:65536", &[]),
            parsed("redis", "//one:1,two:2", &[]),
            parsed("redis", "host", &[]),
            parsed("redis+unix", "//", &[("db", "x")]),
        ];
        for config in wrong {
            let error = config.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            assert!(!error.to_string().contains("outside"), "{error}");
        }
    }

    /// Each in words of ours, and without what may be a password.
    #[test]
    fn a_wrong_server_port_or_database_is_told_apart() {
        for (place, why, hint) in [
            ("//u:SECRET@one:1,two:2/3", "names one server", "redlock://"),
            ("//u:SECRET", "not a port, from 1 to 65535", "redis://host:6379"),
            ("//u:SECRET@host:65536", "not a port, from 1 to 65535", "[::1]"),
            ("//host/99999999999", "from 0 to 2147483647", "databases"),
            ("//host/SECRET", "not the number of a database", "databases"),
        ] {
            let error = parsed("redis", place, &[]).unwrap_err();
            assert!(error.message().contains(why), "{place}: {error}");
            assert!(error.hint().is_some_and(|said| said.contains(hint)), "{place}: {error}");
            assert!(!error.to_string().contains("SECRET"), "{error}");
        }
        for place in
            ["//host", "//host:1", "//host:65535/0", "//host/", "//host:/2147483647", "//[::1]", "//u:a,b@[::1]:7"]
        {
            assert!(parsed("redis", place, &[]).is_ok(), "{place}");
        }
    }
}
