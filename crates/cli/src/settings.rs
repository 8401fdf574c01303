//! Turns arguments and environment into checked settings. Nothing here calls a store.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Client, Owner};

use crate::args::CommonArgs;
use crate::exit::{Exit, Failure};

/// The shortest lease on the command line, for any store.
const LEASE_MIN: Duration = Duration::from_millis(200);
/// The longest lease.
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Default of `acquire` and `renew`, and of kept leases.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The default lease: what every store supports, and no longer than this store allows.
pub(crate) fn lease_default(client: &Client) -> Duration {
    LEASE_DEFAULT.min(client.capability().lease_max)
}

/// Settings of every command.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: StoreSettings,
    /// 0: what must be printed; 1: notes; 2: every step.
    pub(crate) verbose: u8,
}

/// Where the locks are.
#[derive(Debug)]
pub(crate) struct StoreSettings {
    pub(crate) url: Place,
    /// No store was given: it is the file in the user's own state folder.
    pub(crate) is_default: bool,
    /// It was given with `--store`, not by a variable.
    pub(crate) is_by_flag: bool,
    /// For a URL without a password.
    pub(crate) password: Option<Password>,
}

/// A store's URL, which may contain a password: never printed.
pub(crate) struct Place(String);

/// A password, or the file that contains it: never printed.
#[derive(Clone)]
pub(crate) enum Password {
    Text(String),
    File(PathBuf),
}

/// The variables that settings come from.
#[derive(Default)]
pub(crate) struct Environment {
    /// May contain a password, and may be empty.
    pub(crate) store: Option<OsString>,
    pub(crate) home: Option<OsString>,
    pub(crate) state_home: Option<OsString>,
    pub(crate) password: Option<OsString>,
    pub(crate) password_file: Option<OsString>,
}

/// The store, without `--store`.
pub(crate) const STORE: &str = "LEASEHOLD_STORE";
/// The password, if neither the store's URL nor a file has it.
pub(crate) const PASSWORD: &str = "LEASEHOLD_PASSWORD";
/// The password file, without `--password-file`.
pub(crate) const PASSWORD_FILE: &str = "LEASEHOLD_PASSWORD_FILE";

impl Environment {
    /// Those of this process. An empty variable counts as unset, except for the store.
    pub(crate) fn of_process() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            store: std::env::var_os(STORE),
            home: var("HOME"),
            state_home: var("XDG_STATE_HOME"),
            password: var(PASSWORD),
            password_file: var(PASSWORD_FILE),
        }
    }
}

impl Settings {
    /// Finds the store.
    pub(crate) fn new(common: &CommonArgs, environment: &Environment) -> Result<Self, Failure> {
        let given = given_store(common, environment)?;
        let is_default = given.is_none();
        let url = given.map_or_else(|| default_store(environment), Ok)?;
        let url = Place(if common.no_create { without_creation(url) } else { url });
        let password = given_password(common, environment)?;
        Ok(Self {
            store: StoreSettings { url, is_default, is_by_flag: common.store.is_some(), password },
            verbose: common.verbose,
        })
    }
}

impl Settings {
    /// Whether no command creates the store's file.
    pub(crate) fn is_never_created(&self) -> bool {
        let options = self.store.url.as_str().split_once('?').map(|(_, options)| options);
        options.is_some_and(|options| options.split('&').any(|option| option == "create=no"))
    }
}

impl Place {
    /// The URL as it was given: for connecting, not for printing.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place(…)")
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// A file has precedence over the text, which every process of this user can read.
fn given_password(common: &CommonArgs, environment: &Environment) -> Result<Option<Password>, Failure> {
    let file = common.password_file.clone().or_else(|| environment.password_file.as_ref().map(PathBuf::from));
    if let Some(file) = file {
        return Ok(Some(Password::File(file)));
    }
    let text = environment.password.clone().map(OsString::into_string).transpose();
    text.map(|text| text.map(Password::Text)).map_err(|_| {
        Failure::usage(format!("{PASSWORD} is not valid UTF-8"))
            .with_hint("set it to the password as UTF-8 text, or give --password-file FILE")
    })
}

/// The store that was given, by flag or by variable. An empty one is refused: most often a variable was not set where
/// one was meant, and the default store, which belongs to the user alone, would exclude no one.
fn given_store(common: &CommonArgs, environment: &Environment) -> Result<Option<String>, Failure> {
    let (from, otherwise, given) = match (&common.store, &environment.store) {
        (Some(url), _) => ("--store", "leave it out", Some(url.as_str())),
        (None, Some(url)) => (STORE, "unset it", url.to_str()),
        (None, None) => return Ok(None),
    };
    match given {
        Some("") => Err(Failure::usage(format!("{from} is empty: it names no store"))
            .with_hint(format!("give a URL, or {otherwise} for the file in your own state folder"))),
        Some(url) => Ok(Some(url.to_owned())),
        None => Err(Failure::usage(format!("{from} is not UTF-8")).with_hint("give a URL, such as file:/path")),
    }
}

/// The same store, not created if it is missing. Only a file can be created.
fn without_creation(url: String) -> String {
    match url.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
            let mark = if rest.contains('?') { '&' } else { '?' };
            format!("{url}{mark}create=no")
        }
        _ => url,
    }
}

/// The file in the user's state folder. A relative `XDG_STATE_HOME` is ignored, as its specification says.
fn default_store(environment: &Environment) -> Result<String, Failure> {
    let state = environment.state_home.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
    let in_home = || environment.home.as_ref().map(|home| PathBuf::from(home).join(STATE_IN_HOME));
    let Some(state) = state.filter(|_| !cfg!(target_os = "macos")).or_else(in_home) else {
        let what = "no store was given, and HOME is not set, so there is no state folder for the default one";
        return Err(Failure::usage(what).with_hint("set HOME, or give --store file:/path/to/locks.db"));
    };
    match state.join("leasehold/locks.db").into_os_string().into_string() {
        Ok(path) => Ok(format!("file:{path}")),
        Err(_) => Err(Failure::usage("the path of your state folder is not UTF-8").with_hint("give --store URL")),
    }
}

const STATE_IN_HOME: &str = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/state" };

/// Checks a lease that was given by `flag`.
pub(crate) fn lease(flag: &'static str, given: Duration) -> Result<Duration, Failure> {
    within(flag, given, LEASE_MIN..=LEASE_MAX).map(|()| given)
}

/// An owner that the user named.
pub(crate) fn explicit(id: &str) -> Result<Owner, Failure> {
    Ok(Owner::explicit(id)?)
}

/// The given owner, or a fresh one that can be given later.
pub(crate) fn owner(given: Option<&str>) -> Result<Owner, Failure> {
    match given {
        Some(id) => explicit(id),
        None => explicit(&fresh()?),
    }
}

/// The owner of a `run`: the given one, or a fresh one that [`is_of_run`] recognises.
pub(crate) fn owner_of_run(given: Option<&str>) -> Result<Owner, Failure> {
    match given {
        Some(id) => explicit(id),
        None => explicit(&format!("{RUN}{}", fresh()?)),
    }
}

/// Prefix of the fresh owner of a `run`, whose process keeps the lock while its command runs.
const RUN: &str = "run-";

/// Whether a `run` generated this owner.
pub(crate) fn is_of_run(owner: &str) -> bool {
    owner.strip_prefix(RUN).is_some_and(is_of_acquire)
}

/// Whether an `acquire` without `--owner` generated this owner.
pub(crate) fn is_of_acquire(owner: &str) -> bool {
    owner.len() == 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn fresh() -> Result<String, Failure> {
    Ok(Owner::generated([random()?, random()?]).to_string())
}

fn random() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| Failure::new(Exit::BUG, format!("cannot generate random numbers: {error}")))
}

/// Checks the maximum time that a lock is held.
pub(crate) fn max_hold(given: Duration) -> Result<(), Failure> {
    within("--max-hold", given, LEASE_MIN..=leasehold_core::options::HOLD_MAX)
}

/// Checks the minimum time that others are kept out. A fixed lease is taken for that long from its start, so it is
/// limited like any lease.
pub(crate) fn at_least(given: Duration, is_fixed: bool) -> Result<(), Failure> {
    within("--at-least", given, Duration::ZERO..=if is_fixed { LEASE_MAX } else { leasehold_core::options::HOLD_MAX })
}

fn within(flag: &str, given: Duration, bounds: RangeInclusive<Duration>) -> Result<(), Failure> {
    if bounds.contains(&given) {
        return Ok(());
    }
    let [given, max] = [given, *bounds.end()].map(leasehold_core::options::spoken);
    let min = humantime::format_duration(*bounds.start());
    Err(Failure::usage(format!("{flag}: {given} is out of bounds; it must be from {min} to {max}"))
        .with_hint(format!("write it like '{flag} 30s'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(given: Option<&str>, home: Option<&str>, state_home: Option<&str>) -> Result<String, Failure> {
        let common = CommonArgs { store: given.map(Into::into), ..CommonArgs::default() };
        let environment = Environment {
            home: home.map(Into::into),
            state_home: state_home.map(Into::into),
            ..Environment::default()
        };
        Settings::new(&common, &environment).map(|settings| settings.store.url.0)
    }

    #[test]
    fn the_store_is_what_was_given_else_the_state_folder() {
        assert_eq!(store(Some("memory:"), None, None).unwrap(), "memory:");
        if cfg!(target_os = "linux") {
            assert_eq!(store(None, Some("/h"), Some("/s")).unwrap(), "file:/s/leasehold/locks.db");
            assert_eq!(store(None, Some("/h"), Some("relative")).unwrap(), "file:/h/.local/state/leasehold/locks.db");
        }
    }

    #[test]
    fn the_flag_goes_before_the_variable_and_neither_may_be_empty() {
        let store = |flag: Option<&str>, variable: Option<&str>| {
            let common = CommonArgs { store: flag.map(Into::into), ..CommonArgs::default() };
            given_store(&common, &Environment { store: variable.map(Into::into), ..Environment::default() })
        };
        assert_eq!(store(Some("memory:"), Some("")).unwrap().as_deref(), Some("memory:"));
        assert_eq!(store(None, Some("memory:")).unwrap().as_deref(), Some("memory:"));
        assert_eq!(store(None, None).unwrap(), None);
        assert!(store(Some(""), Some("memory:")).unwrap_err().message.contains("--store"));
        assert!(store(None, Some("")).unwrap_err().message.contains(STORE));
    }

    #[test]
    fn a_file_is_not_made_where_that_is_said() {
        for (url, told) in [
            ("file:a", "file:a?create=no"),
            ("FILE:a?keep=3s", "FILE:a?keep=3s&create=no"),
            ("redis://host", "redis://host"),
            ("memory:", "memory:"),
        ] {
            let common = CommonArgs { store: Some(url.into()), no_create: true, ..CommonArgs::default() };
            assert_eq!(Settings::new(&common, &Environment::default()).unwrap().store.url.0, told);
        }
    }

    #[test]
    fn without_a_home_there_is_no_default() {
        let failure = store(None, None, None).unwrap_err();
        assert_eq!(failure.exit, Exit::USAGE);
        assert!(failure.message.contains("HOME"), "{failure}");
    }

    #[test]
    fn leases_have_bounds() {
        assert!(lease("--lease", Duration::from_millis(200)).is_ok());
        for bad in [Duration::from_millis(1), Duration::from_secs(2 * 86_400)] {
            let failure = lease("--lease", bad).unwrap_err();
            assert!(failure.message.contains("200ms to 24h"), "{failure}");
        }
    }

    #[test]
    fn the_password_is_that_of_the_file_else_of_the_variable() {
        use std::os::unix::ffi::OsStringExt;
        let password = |flag: Option<&str>, file: Option<&str>, text: &[u8]| {
            let common = CommonArgs { password_file: flag.map(Into::into), ..CommonArgs::default() };
            let password = (!text.is_empty()).then(|| OsString::from_vec(text.to_vec()));
            let environment = Environment { password, password_file: file.map(Into::into), ..Environment::default() };
            given_password(&common, &environment)
        };
        let is_file =
            |given: Option<Password>, path: &str| matches!(given, Some(Password::File(file)) if file == *path);
        assert!(is_file(password(Some("/a"), Some("/b"), b"text").unwrap(), "/a"));
        assert!(is_file(password(None, Some("/b"), b"text\xff").unwrap(), "/b"));
        assert!(matches!(password(None, None, b"text").unwrap(), Some(Password::Text(text)) if text == "text"));
        assert!(password(None, None, b"").unwrap().is_none());
        let failure = password(None, None, b"text\xff").unwrap_err();
        assert!(failure.exit == Exit::USAGE && failure.message.contains("not valid UTF-8"), "{failure}");
        assert!(!failure.message.contains("text"), "{failure}");
    }

    #[test]
    fn the_fresh_owner_of_a_run_is_recognised() {
        assert!(is_of_run(&owner_of_run(None).unwrap().to_string()));
        for other in
            [owner(None).unwrap().to_string(), "run-me".into(), "run-".into(), format!("run-{}", "g".repeat(32))]
        {
            assert!(!is_of_run(&other), "{other}");
        }
        assert_eq!(owner_of_run(Some("me")).unwrap().to_string(), "me");
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?} {:?}", Place("redis://u:secret@h".into()), Password::Text("secret".into()));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
