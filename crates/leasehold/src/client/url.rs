//! From a URL to a store: the schemes that are built in, and the options that every store has.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Capability, Check, Error, ErrorKind, Options, PasswordSource, Store, Term};

/// Every scheme there is, with the feature that brings it.
const SCHEMES: &[(&str, &str)] =
    &[("file", "file"), ("memory", "memory"), ("redis", "redis"), ("redis+unix", "redis"), ("redlock", "redis")];

/// A store's URL, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct StoreUrl {
    scheme: String,
    path: String,
    /// Options that are not for the client.
    options: Vec<(String, String)>,
    /// Used for a store that logs in, if the URL itself has no password.
    password: Option<PasswordSource>,
    /// The options of locks that do not say otherwise.
    defaults: Options,
    /// The URL says how long the lease of kept locks is.
    says_keep: bool,
}

impl StoreUrl {
    /// Of parts that need no parsing.
    pub(crate) fn of(scheme: &str, path: String, options: Vec<(String, String)>) -> Self {
        Self {
            scheme: scheme.to_owned(),
            path,
            options,
            password: None,
            defaults: Options::default(),
            says_keep: false,
        }
    }

    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            let what = format!("{} is not a store URL: it has no scheme; {}", without_secrets(url), known());
            return Err(bad(what).with_hint(FORMS));
        };
        check_login(scheme, rest)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parsed = Self::of(&scheme.to_ascii_lowercase(), path.to_owned(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            parsed.option(key, value)?;
        }
        Ok(parsed)
    }

    /// Logs in with this if the URL itself has no password.
    pub(crate) fn with_password(mut self, password: Option<PasswordSource>) -> Self {
        self.password = password;
        self
    }

    /// The options of locks that do not say otherwise, within what the store can do.
    pub(crate) fn defaults_for(&self, capability: &Capability) -> Options {
        let mut defaults = self.defaults.clone();
        if let (Term::Kept(lease), false) = (defaults.term, self.says_keep) {
            defaults.term = Term::Kept(lease.min(capability.lease_max));
        }
        defaults
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), Error> {
        match key {
            "keep" => {
                self.defaults.term = Term::Kept(duration(key, value)?);
                self.says_keep = true;
            }
            "budget" => self.defaults.budget = duration(key, value)?,
            _ => self.options.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// Connects to the store twice: for callers, and over connections of its own for the keeper.
    #[expect(clippy::unused_async, reason = "stores behind a network connect here")]
    pub(crate) async fn connect(&self) -> Result<(Arc<dyn Store>, Arc<dyn Store>), Error> {
        match self.scheme.as_str() {
            #[cfg(feature = "file")]
            leasehold_file::SCHEME => {
                let config = leasehold_file::Config::new(&self.path, &self.options)?;
                Ok((leasehold_file::connect(&config)?, leasehold_file::connect(&config)?))
            }
            #[cfg(feature = "memory")]
            leasehold_memory::SCHEME => {
                let config = leasehold_memory::Config::new(&self.path, &self.options)?;
                Ok((leasehold_memory::Memory::shared(&config), leasehold_memory::Memory::shared(&config)))
            }
            #[cfg(feature = "redis")]
            scheme if leasehold_redis::SCHEMES.contains(&scheme) => {
                let config = self.redis(scheme)?;
                let keepers = leasehold_redis::Redis::for_keeper(&config)?;
                Ok((Arc::new(leasehold_redis::Redis::new(&config)?), Arc::new(keepers)))
            }
            #[cfg(feature = "redis")]
            leasehold_quorum::SCHEME => {
                let (callers, keepers) = leasehold_quorum::connect(&self.redlock()?)?;
                Ok((Arc::new(callers), Arc::new(keepers)))
            }
            scheme => Err(unknown(scheme)),
        }
    }

    /// The label of a store that does not exist yet, and that the first connection would create.
    pub(crate) fn not_created(&self) -> Result<Option<String>, Error> {
        match self.scheme.as_str() {
            #[cfg(feature = "file")]
            leasehold_file::SCHEME => {
                let config = leasehold_file::Config::new(&self.path, &self.options)?;
                Ok(config.is_unmade().then(|| config.resolved().label()))
            }
            _ => Ok(None),
        }
    }

    #[cfg(feature = "redis")]
    fn redis(&self, scheme: &str) -> Result<leasehold_redis::Config, Error> {
        leasehold_redis::Config::new(scheme, &self.path, &self.options, self.password.as_ref())
    }

    #[cfg(feature = "redis")]
    fn redlock(&self) -> Result<leasehold_quorum::Config, Error> {
        leasehold_quorum::Config::new(&self.path, &self.options, self.password.as_ref())
    }

    /// What this kind of store reports of itself, before a client connects.
    #[allow(clippy::unused_async, reason = "stores behind a network are asked here")]
    pub(crate) async fn examine(&self) -> Result<Vec<Check>, Error> {
        match self.scheme.as_str() {
            #[cfg(feature = "file")]
            leasehold_file::SCHEME => {
                let config = leasehold_file::Config::new(&self.path, &self.options)?;
                Ok(leasehold_file::examine(&config))
            }
            #[cfg(feature = "memory")]
            leasehold_memory::SCHEME => Ok(leasehold_memory::examine()),
            #[cfg(feature = "redis")]
            scheme if leasehold_redis::SCHEMES.contains(&scheme) => {
                leasehold_redis::examine(&self.redis(scheme)?).await
            }
            #[cfg(feature = "redis")]
            leasehold_quorum::SCHEME => leasehold_quorum::examine(&self.redlock()?).await,
            scheme => Err(unknown(scheme)),
        }
    }
}

fn duration(key: &str, value: &str) -> Result<Duration, Error> {
    humantime::parse_duration(value).map_err(|error| {
        bad(format!("{key}={value} is not a duration ({error})")).with_hint("write it like 250ms, 10s or 5m")
    })
}

fn unknown(scheme: &str) -> Error {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, feature)) => bad(format!("the store {scheme}: is not built in; switch the feature {feature:?} on")),
        None if scheme.starts_with("rediss") => bad(format!("{scheme}: TLS is not supported yet"))
            .with_hint("use redis:// inside a trusted network, or through a TLS tunnel such as stunnel"),
        None => bad(format!("there is no store {scheme:?}; {}", known())).with_hint(FORMS),
    }
}

/// Hint for a URL whose scheme was not recognised.
const FORMS: &str = "write it like file:/path/to/locks.db, redis://host:6379 or redlock://one:6379,two:6379,three:6379";

fn known() -> String {
    let schemes: Vec<String> = SCHEMES.iter().map(|(scheme, _)| format!("{scheme}:")).collect();
    format!("known are {}", schemes.join(", "))
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

/// Shows a bad URL, unless something in it may be a password.
fn without_secrets(url: &str) -> String {
    if url.contains([':', '@']) { "this".to_owned() } else { format!("{url:?}") }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Whether URLs of this scheme name a server, and may have a login.
fn has_login(scheme: &str) -> bool {
    !["file", "memory"].iter().any(|local| scheme.eq_ignore_ascii_case(local))
}

/// The part of a URL that names servers, and what comes after it.
fn authority(rest: &str) -> (&str, &str) {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// Refuses a URL whose password may have ended too soon: the rest of it would be taken for a server, a database or an option, and
/// be connected to or shown. An `@` may stand in a prefix.
fn check_login(scheme: &str, rest: &str) -> Result<(), Error> {
    let (servers, after) = authority(rest);
    // The path of a socket may have any of these.
    let is_socket = scheme.to_ascii_lowercase().ends_with("+unix") && servers.is_empty() && after.starts_with('/');
    if !has_login(scheme) || is_socket {
        return Ok(());
    }
    let (path, query) = after.split_once('?').unwrap_or((after, ""));
    let is_odd = |option: &str| option.contains('@') && !option.starts_with("prefix=");
    // Two logins are another mistake, with an error of its own.
    let is_login_odd = |login: &str| login.contains('@') && !login.contains(',');
    if path.contains(['@', '#'])
        || query.split('&').any(is_odd)
        || servers.rsplit_once('@').is_some_and(|(login, _)| is_login_odd(login))
    {
        let what = "the store's URL is ambiguous, and is neither used nor shown: it has a '/', '?', '#' or '@' that may belong to its password";
        let hint = "in a user name or password write '/' as %2F, '?' as %3F, '#' as %23, '@' as %40 and '%' as %25; or leave the \
                    password out of the URL, and give it separately";
        return Err(bad(what.into()).with_hint(hint));
    }
    Ok(())
}

/// Removes the password from a URL, and keeps the user name: for programs that are started from this one.
///
/// # Errors
///
/// A URL without a scheme, or an ambiguous one.
pub fn without_password(url: &str) -> Result<String, Error> {
    StoreUrl::parse(url)?;
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| has_login(scheme)) else {
        return Ok(url.to_owned());
    };
    let (servers, after) = authority(rest);
    let Some((login, servers)) = servers.rsplit_once('@') else { return Ok(url.to_owned()) };
    let user = login.split(':').next().filter(|user| !user.is_empty());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    Ok(format!("{scheme}://{user}{servers}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(feature = "memory", feature = "file", feature = "redis"))]
    impl StoreUrl {
        /// The label of the store that the URL leads to.
        pub(crate) fn label(&self) -> Result<String, Error> {
            Ok(match self.scheme.as_str() {
                leasehold_memory::SCHEME => leasehold_memory::Config::new(&self.path, &self.options)?.label(),
                leasehold_file::SCHEME => leasehold_file::Config::new(&self.path, &self.options)?.label(),
                leasehold_quorum::SCHEME => {
                    let config = self.redlock()?;
                    config.servers().iter().map(|server| server.label()).collect::<Vec<_>>().join(",")
                }
                scheme => self.redis(scheme)?.label().to_owned(),
            })
        }
    }

    #[test]
    fn options_for_every_store_are_taken_out() {
        let url = StoreUrl::parse("memory:jobs?keep=10s&budget=0ms&x=1").unwrap();
        assert_eq!((url.scheme.as_str(), url.path.as_str()), ("memory", "jobs"));
        assert_eq!(url.defaults.term, Term::Kept(Duration::from_secs(10)));
        assert_eq!(url.defaults.budget, Duration::ZERO);
        assert_eq!(url.options, [("x".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn wrong_urls_say_what_is_known_and_hide_passwords() {
        let error = StoreUrl::parse("user:secret@host").and_then(|url| Err::<(), _>(unknown(&url.scheme)));
        assert!(error.unwrap_err().to_string().contains("memory:"));
        for url in ["secret@host", "user@se@cret", "se?cret@host:6379", ":secret", "redis//u:secret"] {
            let error = StoreUrl::parse(url).unwrap_err().to_string();
            assert!(!error.contains("cret") && error.contains("no scheme"), "{error}");
        }
        assert!(StoreUrl::parse("locks.db").unwrap_err().to_string().contains("locks.db"));
        assert!(StoreUrl::parse("memory:?keep=soon").unwrap_err().to_string().contains("250ms"));
    }

    #[test]
    fn a_password_that_may_have_ended_too_soon_is_refused_and_not_shown() {
        for scheme in ["redis://", "REDIS://", "redis:", "redlock://", "postgres://"] {
            for login in [
                "u:12?cret",
                "u:12#cret",
                "u:12/cret",
                ":?cret",
                "u:a@cret",
                "?cret",
                "u:12?keep=cret",
                "/?cret",
                "/cret",
            ] {
                let error = StoreUrl::parse(&format!("{scheme}{login}@host:6379/0?timeout=1s")).unwrap_err();
                assert!(error.to_string().contains("ambiguous") && !error.to_string().contains("cret"), "{error}");
                assert_eq!(error.kind(), ErrorKind::BadArgument);
            }
        }
        for url in [
            "redis://u:p%40@host/0?prefix=a@b:",
            "redis+unix:///run/a@b.sock",
            "file:/home/a@b/c#d/locks.db",
            "redlock://u:p@a,b,c/2",
        ] {
            assert!(StoreUrl::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_command_is_told_the_store_without_its_password() {
        for (url, told) in [
            ("redis://u:p%40@host/0?prefix=a@b:", "redis://u@host/0?prefix=a@b:"),
            ("redis://:p@host", "redis://host"),
            ("redis://host:6379", "redis://host:6379"),
            ("redlock://u:p@a,b,c/2?even=yes", "redlock://u@a,b,c/2?even=yes"),
            ("file:/home/a:b@c/locks.db", "file:/home/a:b@c/locks.db"),
            ("redis+unix:///run/a@b.sock?user=u", "redis+unix:///run/a@b.sock?user=u"),
        ] {
            assert_eq!(without_password(url).unwrap(), told);
        }
        assert!(without_password("redis://u:?p@host").is_err());
    }

    /// Whatever is given for a URL is taken apart or refused, and a password is not shown.
    #[cfg(all(feature = "file", feature = "redis"))]
    #[test]
    fn fuzzed_urls() {
        const PASSWORD: &str = "sEcReT";
        const WORDS: &[&str] = &["@", "//", "?", "&", "=", "#", "%2C", "%00", "://", ",", "sEcReT@", "redis:", "[::1]"];
        let parts = |url: &StoreUrl| -> Result<(), Error> {
            url.not_created()?;
            match url.scheme.as_str() {
                leasehold_quorum::SCHEME => url.redlock().map(|_| ()),
                scheme if leasehold_redis::SCHEMES.contains(&scheme) => url.redis(scheme).map(|_| ()),
                scheme => Err(unknown(scheme)),
            }
        };
        leasehold_fuzz::Target::new("urls", 20_000).words(WORDS).run(|input| {
            let text = String::from_utf8_lossy(input);
            let Err(error) = StoreUrl::parse(&text).and_then(|url| parts(&url)) else { return };
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            let Some((before, after)) = text.split_once(PASSWORD) else { return };
            // A socket has no login in its URL.
            let has_login = ["redis://", "redlock://"].iter().any(|scheme| before.starts_with(scheme));
            let is_login = has_login && !before.contains('@');
            if is_login && after.contains('@') && !after.contains(PASSWORD) {
                assert!(!format!("{error} {error:?}").contains(PASSWORD), "{text}: {error:?}");
            }
        });
    }
}
