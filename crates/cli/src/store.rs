//! Connecting to the store that the settings name, with the patience that the user has.

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
use crate::waiting::{Limit, Waiting};
use crate::{events, human, names, output};

/// How long a store is tried that does not answer, where there is no limit on waiting. The library gives an acquire as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// How long a command waits at its end for what is still open with the store.
const CLOSING: Duration = Duration::from_secs(5);
/// After this long, people are told that it does.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Connects for a command that does not wait for a lock: a store that does not answer ends it at once.
pub(crate) async fn connect(settings: &Settings) -> Result<Client, Failure> {
    try_connect(settings, builder(settings)).await.map_err(Into::into)
}

/// A store of one process.
const ALONE: &str = "memory:";

/// Whether nothing there is shared with any other process.
pub(crate) fn is_alone(client: &Client) -> bool {
    client.store_label().starts_with(ALONE)
}

/// A store to look at, for commands that take no lock.
pub(crate) enum Seen {
    Store(Client),
    /// Nobody has made it yet, so nothing is held there: its label.
    Unmade(String),
}

/// Connects for a command that takes no lock. A store that is not there is not made for that: its URL may be mistyped.
pub(crate) async fn look(settings: &Settings) -> Result<Seen, Failure> {
    let Some(label) = leasehold::not_created(settings.store.url.as_str())? else {
        let client = connect(settings).await?;
        if run::is_nested() {
            warn_of_another_store(settings, &Here::of(&client).await);
        }
        return Ok(Seen::Store(client));
    };
    warn_of_another_store(settings, &Here::not_created(&label));
    let whose = if settings.verbose > 0 && settings.store.is_default { PER_USER } else { "" };
    output::note(&format!("{label} is not there yet; the first lock makes it{whose}"));
    Ok(Seen::Unmade(label))
}

/// What those are told who would give back or lengthen a lock in a store that is not there.
pub(crate) fn nothing_held(owner: &Owner, names: &[Name], label: &str) -> Failure {
    let (owner, names) = (owner.to_string(), names::quoted(names));
    let what = format!("owner {owner:?} does not hold {names} on {label}: nobody does");
    Failure::new(Exit::NOT_HOLDER, what)
        .with_hint("is it the right store? --store URL or LEASEHOLD_STORE names another")
}

/// Connects for a command that waits for a lock: a store that does not answer is tried again for as long as that.
pub(crate) async fn connect_patiently(settings: &Settings, waiting: &Waiting) -> Result<Client, Failure> {
    let client = try_for_long(settings, waiting).await?;
    if is_alone(&client) {
        let what = "is seen by this process alone, so this lock keeps no other out; --store file:PATH does";
        output::note(&format!("{} {what}", client.store_label()));
    } else if run::is_nested() {
        warn_of_another_store(settings, &Here::of(&client).await);
    }
    Ok(client)
}

/// A command inside a `run` does not inherit its `--store`: on another store, its locks do not exclude those of the same script.
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
                    output::note(&format!("{what}; it is tried for {long}: {error}"));
                }
                let next = Instant::now() + PAUSE;
                tokio::time::sleep_until(last_try.map_or(next, |last| last.min(next)).into()).await;
            }
            done => return done.map_err(Into::into),
        }
    }
}

/// Ends what is open with the store. What has gone wrong by then is said before.
///
/// A store that does not answer is not waited for until all leases are over; after a second people are told, and may end it with a
/// signal. It is brief where a lock was lost, whose time is over by itself, and where the store is known not to answer.
pub(crate) async fn close<T>(client: &Client, signals: &mut Signals, done: &mut Result<T, Failure>, is_brief: bool) {
    if let Err(failure) = done {
        events::flush();
        output::failure(failure);
        failure.is_said = true;
    }
    let patience = if is_brief { TELL_AFTER } else { CLOSING };
    let unwanted = async {
        tokio::time::sleep(TELL_AFTER).await;
        let (label, left) = (client.store_label(), human::span(CLOSING - TELL_AFTER));
        output::note(&format!(
            "waiting for {label}, which has not answered, for at most {left} more; a signal ends that"
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
        output::note(&format!(
            "{label} was not there, and has been made: a program that uses another path is not kept out"
        ));
    }
    if settings.verbose > 0 {
        let whose = if settings.store.is_default { PER_USER } else { "" };
        events::note(&format!("the locks are in {}{whose}", client.store_label()));
    }
    Ok(client)
}

/// Said where nothing else was given.
const PER_USER: &str = ", which is yours alone: other users have their own, unless all give the same --store";

/// Says once that others can read the password, where the store may need it.
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

/// For commands that have settings of their own before they connect.
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
