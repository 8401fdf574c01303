//! Parses the part of a URL after `redlock:` into settings.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;

use crate::error;

/// The scheme of this store's URLs.
pub const SCHEME: &str = "redlock";
/// Default time for which a server that may have forgotten does not vote.
pub const QUARANTINE: Duration = Duration::from_secs(60);

/// Options of a quorum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long a server that may have forgotten does not vote. All clients of these servers use the same value, and no
    /// lease is longer. Zero turns it off. Default: 60 s.
    pub quarantine: Duration,
    /// How long a server is waited for. Default: 50 ms or a tenth of the lease, whichever is smaller.
    pub limit: Option<Duration>,
    /// Allows an even number of servers, which tolerates no more failures than one server less. Default: no.
    pub even: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { quarantine: QUARANTINE, limit: None, even: false }
    }
}

impl Settings {
    /// Checks that these servers can form a quorum.
    pub(crate) fn check(&self, labels: &[Arc<str>]) -> Result<(), Error> {
        let servers = labels.len();
        if servers < 3 {
            return Err(error::too_few_servers(servers));
        }
        if servers.is_multiple_of(2) && !self.even {
            return Err(error::even_servers(servers));
        }
        match labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
            Some((_, twice)) => Err(error::named_twice(twice)),
            None => Ok(()),
        }
    }
}

#[cfg(feature = "redis")]
pub use servers::Config;

/// A quorum of Redis servers.
#[cfg(feature = "redis")]
mod servers {
    use std::ops::RangeInclusive;

    use leasehold_core::PasswordSource;
    use leasehold_redis as redis;

    use super::{Duration, Error, Settings, error};

    const QUARANTINE_MIN: Duration = Duration::from_millis(200);
    const LIMITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

    /// Servers and options of a quorum.
    #[derive(Clone, Debug)]
    pub struct Config {
        servers: Vec<redis::Config>,
        settings: Settings,
    }

    impl Config {
        /// Parses the part between `redlock:` and `?`, and the options after it. `passwords` is used if the URL has no
        /// password.
        ///
        /// # Errors
        ///
        /// A bad argument if a server or an option is invalid.
        pub fn new(
            place: &str,
            options: &[(String, String)],
            password: Option<&PasswordSource>,
        ) -> Result<Self, Error> {
            let (settings, options) = parse(options)?;
            let place = place.strip_prefix("//").unwrap_or(place);
            let (login, rest) = place.rsplit_once('@').unwrap_or(("", place));
            if login.contains(',') {
                return Err(error::login_with_comma());
            }
            let (servers, database) = rest.split_once('/').unwrap_or((rest, ""));
            let at = if login.is_empty() { String::new() } else { format!("{login}@") };
            let slash = if database.is_empty() { String::new() } else { format!("/{database}") };
            let config = |server: &str| {
                if server.is_empty() {
                    return Err(error::missing_server());
                }
                let config = redis::Config::new("redis", &format!("//{at}{server}{slash}"), &options, password)?;
                Ok(config.with_quarantine(settings.quarantine))
            };
            let servers = servers.split(',').map(config).collect::<Result<Vec<_>, Error>>()?;
            Ok(Self { servers, settings })
        }

        /// Configuration of each server.
        pub fn servers(&self) -> &[redis::Config] {
            &self.servers
        }

        /// Options of the quorum.
        pub fn settings(&self) -> &Settings {
            &self.settings
        }
    }

    /// Splits the options into those of the quorum and those that go to every server.
    fn parse(options: &[(String, String)]) -> Result<(Settings, Vec<(String, String)>), Error> {
        let mut settings = Settings::default();
        let mut servers = vec![("layout".to_owned(), "plain".to_owned())];
        for (key, value) in options {
            match key.as_str() {
                "quarantine" => settings.quarantine = duration(key, value)?,
                "limit" => settings.limit = Some(duration(key, value)?),
                "even" if value == "yes" => settings.even = true,
                "even" => return Err(error::bad_even(value)),
                "layout" if value == "plain" => {}
                "layout" => return Err(error::bad_layout(value)),
                "prefix" | "timeout" => servers.push((key.clone(), value.clone())),
                _ => return Err(error::no_such_option(key)),
            }
        }
        if !settings.quarantine.is_zero() && settings.quarantine < QUARANTINE_MIN {
            return Err(error::short_quarantine());
        }
        if settings.limit.is_some_and(|limit| !LIMITS.contains(&limit)) {
            return Err(error::bad_limit());
        }
        Ok((settings, servers))
    }

    fn duration(key: &str, value: &str) -> Result<Duration, Error> {
        humantime::parse_duration(value).map_err(|cause| error::bad_duration(key, value, &cause))
    }
}
