//! Settings of a client, and how it connects.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::About;
use leasehold_core::table::{Settings, Table};
use leasehold_core::{Error, Options, PasswordSource, Store, StoreClock};

use super::config::StoreConfig;
use super::event::Listener;
use super::layer::Layer;
use super::url::StoreUrl;
use super::{Client, password_file};
use crate::runtime::handle::ShellHandle;
use crate::runtime::keeper::Keeper;
use crate::runtime::random;
use crate::runtime::shell::Shell;

/// The store executes an acquire at most this long after it was sent.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// How long a waiting acquire goes on trying while the store has not answered it once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of a client before it connects.
pub struct ClientBuilder {
    source: Source,
    layers: Vec<Box<dyn Layer>>,
    listener: Option<Arc<dyn Listener>>,
    about: About,
    options: Option<Options>,
    password: Option<PasswordSource>,
}

pub(super) enum Source {
    Config(StoreConfig),
    Stores { callers: Arc<dyn Store>, keepers: Arc<dyn Store> },
}

impl ClientBuilder {
    pub(super) fn new(source: Source) -> Self {
        let host = leasehold_clock::host().map(Into::into);
        let about = About { host, pid: Some(std::process::id()), label: None };
        Self { source, layers: Vec::new(), listener: None, about, options: None, password: None }
    }

    /// Puts your own layer around the store. Later layers are further out.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer + 'static) -> Self {
        self.layers.push(Box::new(layer));
        self
    }

    /// Receives every event.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// The name of this machine, as holders of locks are shown to people. Default: its own host name.
    #[must_use]
    pub fn host(mut self, host: impl AsRef<str>) -> Self {
        self.about.host = Some(host.as_ref().into());
        self
    }

    /// The options of locks that do not say otherwise. They replace the URL's own `keep` and `budget`.
    #[must_use]
    pub fn defaults(mut self, options: Options) -> Self {
        self.options = Some(options);
        self
    }

    /// The password for a store that logs in, if its URL has none. Other stores ignore it.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(PasswordSource::fixed(password));
        self
    }

    /// The same from a file, which is read again for every connection: a new password needs no restart. The end of its last line
    /// is not part of it. A pipe is read once.
    #[must_use]
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password = Some(password_file::source(path.into()));
        self
    }

    /// The same from anywhere: `source` is called for every connection, on a thread of the store's.
    #[must_use]
    pub fn password_source(mut self, source: impl Fn() -> Result<String, Error> + Send + Sync + 'static) -> Self {
        self.password = Some(PasswordSource::new(source));
        self
    }

    /// The URL, if there is one, with the password that goes with it.
    pub(crate) fn url(&self) -> Result<Option<StoreUrl>, Error> {
        match &self.source {
            Source::Stores { .. } => Ok(None),
            Source::Config(config) => Ok(Some(config.0.clone()?.with_password(self.password.clone()))),
        }
    }

    /// Connects, and learns the store's clock.
    ///
    /// # Errors
    ///
    /// A bad URL or option. A store that cannot be reached or is unfit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, Event};
    ///
    /// let client = Client::builder("memory:")
    ///     .listener(|event: &Event<'_>| println!("{}", event.kind()))
    ///     .connect()
    ///     .await?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    pub async fn connect(self) -> Result<Client, Error> {
        let keeper = Keeper::spawn()?;
        let unlayered =
            self.layers.iter().all(|layer| layer.hands_hints_on()) && matches!(self.source, Source::Config(_));
        let (callers, keepers, options) = match self.source {
            Source::Stores { callers, keepers } => (callers, keepers, Options::default()),
            Source::Config(config) => {
                let url = config.0?.with_password(self.password);
                let (callers, keepers) = url.connect().await?;
                let defaults = url.defaults_for(&callers.capability());
                (callers, keepers, defaults)
            }
        };
        let options = self.options.unwrap_or(options);
        let wrap = |store| self.layers.iter().fold(store, |store, layer| layer.layer(store));
        let (callers, keepers) = (wrap(callers), wrap(keepers));
        let labelled = |error: Error| error.during("connect").on_store(callers.label());
        options.check(&callers.capability()).map_err(labelled)?;
        let sent = leasehold_clock::now();
        let answered = callers.clock().await.map_err(|error| error.on_store(callers.label()))?;
        let client = random::client_id()?;
        let table = Table::new(Settings {
            client,
            hints: callers.capability().hints,
            unlayered,
            call_limit: CALL_LIMIT,
            patience: PATIENCE,
            clock: StoreClock::new(sent, leasehold_clock::now(), answered.at),
            seed: leasehold_clock::seed()?,
        });
        let (handle, waker) = (keeper.handle.clone(), keeper.waker.clone());
        let shell = Arc::new(Shell::new(client, callers, keepers, handle, self.listener, waker, table));
        shell.store.watch_held(client, shell.hint_sink());
        keeper.keep(shell.clone());
        Ok(Client { shell: ShellHandle::new(shell), options: Arc::new(options), about: Arc::new(self.about) })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}
