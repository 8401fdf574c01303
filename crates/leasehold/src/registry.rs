//! From a URL to a store: the schemes that are built in, and the options that every store has.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Options, Store, Term};

use crate::secret::Secret;

/// Every scheme there is, with the feature that brings it.
const SCHEMES: &[(&str, &str)] = &[("file", "file"), ("memory", "memory"), ("redis", "redis"), ("redis+unix", "redis")];

/// Whose connections they are. Only stores with a thread of their own for each tell them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Callers,
    Keepers,
}

/// A store's URL, taken apart.
#[derive(Debug)]
pub(crate) struct StoreUrl {
    scheme: String,
    path: String,
    /// Options that are not for the client.
    options: Vec<(String, String)>,
    /// For a store that logs in, where the URL itself has no password.
    password: Option<Secret>,
    /// What locks have where nothing else is said.
    pub(crate) defaults: Options,
}

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(bad(format!("{:?} is not a store URL: it has no scheme; {}", redacted(url), known())));
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parsed = Self {
            scheme: scheme.to_ascii_lowercase(),
            path: path.to_owned(),
            options: Vec::new(),
            password: None,
            defaults: Options::default(),
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            parsed.option(key, value)?;
        }
        Ok(parsed)
    }

    /// Logs in with this, where the URL itself has no password.
    pub(crate) fn with_password(mut self, password: Option<Secret>) -> Self {
        self.password = password;
        self
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), Error> {
        match key {
            "keep" => self.defaults.term = Term::Kept(duration(key, value)?),
            "budget" => self.defaults.budget = duration(key, value)?,
            _ => self.options.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// Connects to the store: once for callers, once for the keeper.
    #[expect(clippy::unused_async, reason = "stores with a network to cross connect here")]
    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "no store here tells them apart"))]
    pub(crate) async fn connect(&self, whose: Whose) -> Result<Arc<dyn Store>, Error> {
        match self.scheme.as_str() {
            #[cfg(feature = "file")]
            leasehold_file::SCHEME => {
                let config = leasehold_file::Config::new(&self.path, &self.options)?;
                Ok(leasehold_file::File::connect(&config)?)
            }
            #[cfg(feature = "memory")]
            leasehold_memory::SCHEME => {
                let config = leasehold_memory::Config::new(&self.path, &self.options)?;
                Ok(leasehold_memory::Memory::shared(&config))
            }
            #[cfg(feature = "redis")]
            scheme if leasehold_redis::SCHEMES.contains(&scheme) => {
                let config = self.redis(scheme)?;
                Ok(Arc::new(match whose {
                    Whose::Callers => leasehold_redis::Redis::new(&config)?,
                    Whose::Keepers => leasehold_redis::Redis::for_keeper(&config)?,
                }))
            }
            scheme => Err(unknown(scheme)),
        }
    }

    /// The label of a store that the first to connect would make.
    pub(crate) fn unmade(&self) -> Result<Option<String>, Error> {
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
        let password = self.password.as_ref().map(|password| password.0.as_str());
        leasehold_redis::Config::new(scheme, &self.path, &self.options, password)
    }

    /// What this kind of store says of itself, before a client connects.
    #[allow(clippy::unused_async, reason = "stores with a network to cross are asked here")]
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
            scheme => Err(unknown(scheme)),
        }
    }
}

fn duration(key: &str, value: &str) -> Result<Duration, Error> {
    humantime::parse_duration(value)
        .map_err(|error| bad(format!("{key}={value} is not a duration ({error}); write it like 250ms, 10s or 5m")))
}

fn unknown(scheme: &str) -> Error {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, feature)) => bad(format!("the store {scheme}: is not built in; switch the feature {feature:?} on")),
        None => bad(format!("there is no store {scheme:?}; {}", known())),
    }
}

fn known() -> String {
    let schemes: Vec<String> = SCHEMES.iter().map(|(scheme, _)| format!("{scheme}:")).collect();
    format!("known are {}", schemes.join(", "))
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

/// A wrong URL is shown without what may be a password.
fn redacted(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let error = StoreUrl::parse("secret@host").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        assert!(StoreUrl::parse("memory:?keep=soon").unwrap_err().to_string().contains("250ms"));
    }
}
