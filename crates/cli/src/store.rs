//! Connects to the store that the settings name, as patiently as the user wants.

use std::fs::Metadata;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Error, Name, Owner};

use crate::exit::{Exit, Failure};
use crate::run::{self, Here, Signals};
use crate::settings::{Password, Settings, StoreSettings};
use crate::wait::{Limit, Waiting};
use crate::{events, human, names, output};

/// How long a silent store is tried if the wait has no limit. The library gives an acquire as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// How long a command waits at its end for calls to the store that are still open.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// After this long, the user is told that it waits.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Connects for a command that does not wait for a lock: a silent store ends it at once.
pub(crate) async fn connect(settings: &Settings) -> Result<Client, Failure> {
    try_connect(settings, builder(settings)).await.map_err(Into::into)
}

/// A store of one process.
const ALONE: &str = "memory:";

/// Whether the store is shared with no other process.
pub(crate) fn is_alone(client: &Client) -> bool {
    client.store_label().starts_with(ALONE)
}

/// A store for commands that take no lock.
pub(crate) enum StoreState {
    Store(Client),
    /// It does not exist yet, so nothing is held there: its label.
    NotCreated(String),
}

/// Connects for a command that takes no lock. A missing store is not created for that: its URL may be mistyped.
pub(crate) async fn look(settings: &Settings) -> Result<StoreState, Failure> {
    let Some(label) = leasehold::not_created(settings.store.url.as_str())? else {
        let client = connect(settings).await?;
        if run::is_nested() {
            warn_of_another_store(settings, &Here::of(&client).await);
        }
        return Ok(StoreState::Store(client));
    };
    warn_of_another_store(settings, &Here::not_created(&label));
    if settings.is_never_created() {
        output::note(&format!("{label} does not exist, so no lock is held there"));
    } else {
        let whose = if settings.verbose > 0 && settings.store.is_default { PER_USER } else { "" };
        output::note(&format!("{label} does not exist yet; the first lock creates it{whose}"));
    }
    Ok(StoreState::NotCreated(label))
}

/// The error of a release or renewal in a store that does not exist.
pub(crate) fn nothing_held(owner: &Owner, names: &[Name], label: &str) -> Failure {
    let (owner, names) = (owner.to_string(), names::quoted(names));
    let what = format!("owner {owner:?} does not hold {names} on {label}: nobody does");
    Failure::new(Exit::NOT_HOLDER, what)
        .with_hint("check that this is the right store; --store URL or LEASEHOLD_STORE names another")
}

/// Connects for a command that waits for a lock: a silent store is tried again as long as that.
pub(crate) async fn connect_patiently(settings: &Settings, waiting: &Waiting) -> Result<Client, Failure> {
    let client = try_for_long(settings, waiting).await?;
    if is_alone(&client) {
        let what = "exists in this process only, so this lock excludes no other process; --store file:PATH does";
        output::note(&format!("{} {what}", client.store_label()));
    } else if run::is_nested() {
        warn_of_another_store(settings, &Here::of(&client).await);
    }
    Ok(client)
}

/// A command inside a `run` does not inherit its `--store`: on another store, its locks do not exclude those of the
/// same script.
fn warn_of_another_store(settings: &Settings, here: &Here) {
    let Some(outer) = run::store_around(here).filter(|_| !settings.store.is_by_flag) else { return };
    output::note(&format!(
        "warning: the surrounding run holds its locks in {outer}; this command uses {}. Pass --store here too, or export \
         LEASEHOLD_STORE",
        here.label()
    ));
}

async fn try_for_long(settings: &Settings, waiting: &Waiting) -> Result<Client, Failure> {
    let layered = || builder(settings).layer(waiting.outage.clone()).listener(events::listener(settings.verbose));
    let patience = match (waiting.limit, waiting.patience) {
        (Limit::Once, _) => return try_connect(settings, layered()).await.map_err(Into::into),
        (Limit::Within(limit), patience) => limit.min(patience.unwrap_or(limit)),
        (Limit::Forever, patience) => patience.unwrap_or(PATIENCE),
    };
    let last_try = waiting.began.checked_add(patience);
    let mut is_said = false;
    loop {
        match try_connect(settings, layered()).await {
            // The last try is made when the time is over, not before.
            Err(error) if error.is_retryable() && last_try.is_none_or(|last| Instant::now() < last) => {
                if settings.verbose > 0 {
                    events::note(&format!("trying again: {error}"));
                } else if !is_said && waiting.began.elapsed() >= TELL_AFTER {
                    is_said = true;
                    let long = human::span(patience);
                    let what = match error.retry_after() {
                        Some(_) => "too few servers of the store vote yet",
                        None => "the store does not answer",
                    };
                    output::note(&format!("{what}; trying again for {long}: {error}"));
                }
                let next = Instant::now() + PAUSE;
                tokio::time::sleep_until(last_try.map_or(next, |last| last.min(next)).into()).await;
            }
            done => return done.map_err(Into::into),
        }
    }
}

/// Closes the connection to the store. What has failed by then is reported first.
///
/// It does not wait for a silent store until all leases are over. After a second the user is told, and may end the wait
/// with a signal. It is brief if a lock was lost, whose time ends anyway, or if the store is known to be silent.
pub(crate) async fn close<T>(client: &Client, signals: &mut Signals, done: &mut Result<T, Failure>, is_brief: bool) {
    if let Err(failure) = done {
        events::flush();
        output::failure(failure);
        failure.is_said = true;
    }
    let patience = if is_brief { TELL_AFTER } else { CLOSE_LIMIT };
    let unwanted = async {
        tokio::time::sleep(TELL_AFTER).await;
        let (label, left) = (client.store_label(), human::span(CLOSE_LIMIT - TELL_AFTER));
        output::note(&format!(
            "waiting for {label}, which has not answered, for at most {left} more; a signal ends the wait"
        ));
        signals.next().await
    };
    tokio::select! {
        biased;
        _ = tokio::time::timeout(patience, client.close()) => {}
        _ = unwanted => {}
    }
}

async fn try_connect(settings: &Settings, builder: ClientBuilder) -> Result<Client, Error> {
    let is_told_of = !settings.store.is_default && (settings.verbose > 0 || std::io::stderr().is_terminal());
    let not_created = if is_told_of { leasehold::not_created(settings.store.url.as_str())? } else { None };
    let client = builder.connect().await?;
    if let Some(label) = not_created {
        output::note(&format!("created {label}: only programs that use the same path are kept out"));
    }
    if settings.verbose > 0 {
        let whose = if settings.store.is_default { PER_USER } else { "" };
        events::note(&format!("the locks are in {}{whose}", client.store_label()));
    }
    Ok(client)
}

/// Printed if no store was given.
const PER_USER: &str = ", which is yours alone: other users have their own, unless all give the same --store";

/// Warns once that others can read the password, if the store may need it.
fn warn_of_readers(store: &StoreSettings, path: &Path) {
    static SAID: Once = Once::new();
    let is_local = ["file:", "memory:"].iter().any(|scheme| store.url.as_str().starts_with(scheme));
    let is_readable = |found: Metadata| found.is_file() && found.permissions().mode() & 0o004 != 0;
    if !is_local && std::fs::metadata(path).is_ok_and(is_readable) {
        let path = path.display();
        SAID.call_once(|| {
            output::note(&format!(
                "warning: every user can read the password file {path}; make it yours alone: chmod 600"
            ));
        });
    }
}

/// For commands with settings of their own before they connect.
pub(crate) fn builder(settings: &Settings) -> ClientBuilder {
    let mut builder = Client::builder(settings.store.url.as_str());
    builder = match &settings.store.password {
        None => builder,
        Some(Password::Text(text)) => builder.password(text),
        Some(Password::File(path)) => {
            warn_of_readers(&settings.store, path);
            builder.password_file(path)
        }
    };
    match settings.verbose {
        0 => builder,
        verbose => builder.listener(events::listener(verbose)),
    }
}
