//! A client: one per process and store. It owns the connections, the local table and the keeper.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::{About, BreakOptions, BreakRefusal, Broken};
use leasehold_core::table::{Input, Settings, Table};
use leasehold_core::{Capability, Error, ErrorKind, Identity, Name, Names, Options, PasswordSource, Store, StoreClock};

use crate::event::Listener;
use crate::handle::Handle;
use crate::holder::Status;
use crate::keeper::Keeper;
use crate::layer::Layer;
use crate::lock::Lock;
use crate::random;
use crate::registry::StoreUrl;
use crate::secret;
use crate::shell::{Recipient, Shell};
use crate::stats::Stats;

/// An acquire is not executed by the store later than this after it was sent.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// How long a waiting acquire goes on trying while the store has not answered it once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many locks [`Client::list`] fetches at a time.
const PAGE: usize = 1_000;

/// A connection to a store, and everything that this process holds there. Cheap to clone.
///
/// When the client, its locks and its guards are all dropped, its thread goes on until what was still open with the store has
/// ended, such as a release that was not answered: at the latest when the lease is over. A program that ends before that leaves it
/// to the lease; [`Client::close`] waits.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock("invoices").acquire().await?;
/// println!("mine, with fence {}", guard.fence());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) shell: Handle,
    options: Arc<Options>,
    about: Arc<About>,
}

/// Settings of a client before it connects.
pub struct ClientBuilder {
    source: Source,
    layers: Vec<Box<dyn Layer>>,
    listener: Option<Arc<dyn Listener>>,
    about: About,
    options: Option<Options>,
    password: Option<PasswordSource>,
}

enum Source {
    Url(String),
    Stores { callers: Arc<dyn Store>, keepers: Arc<dyn Store> },
}

impl ClientBuilder {
    fn new(source: Source) -> Self {
        let host = leasehold_clock::host().map(Into::into);
        let about = About { host, pid: Some(std::process::id()), label: None };
        Self { source, layers: Vec::new(), listener: None, about, options: None, password: None }
    }

    /// Puts a layer of your own around the store. Later layers stand further out.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer + 'static) -> Self {
        self.layers.push(Box::new(layer));
        self
    }

    /// Hears every event.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// The name of this machine, for people who look who holds a lock. Default: the name it gives itself.
    #[must_use]
    pub fn host(mut self, host: impl AsRef<str>) -> Self {
        self.about.host = Some(host.as_ref().into());
        self
    }

    /// What locks have where they say nothing else; takes the place of the URL's own `keep` and `budget`.
    #[must_use]
    pub fn defaults(mut self, options: Options) -> Self {
        self.options = Some(options);
        self
    }

    /// The password for a store that logs in, where the URL has none; others take no notice of it.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(PasswordSource::fixed(password));
        self
    }

    /// The same, in a file that is read again with every connection: a new password needs no restart. The end of its last line is no
    /// part of it. A pipe is read once.
    #[must_use]
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password = Some(secret::file(path.into()));
        self
    }

    /// The same, from wherever you keep it: `source` is asked with every connection, on a thread of the store's.
    #[must_use]
    pub fn password_source(mut self, source: impl Fn() -> Result<String, Error> + Send + Sync + 'static) -> Self {
        self.password = Some(PasswordSource::new(source));
        self
    }

    /// The URL, where there is one, with the password that goes with it.
    pub(crate) fn url(&self) -> Result<Option<StoreUrl>, Error> {
        match &self.source {
            Source::Stores { .. } => Ok(None),
            Source::Url(url) => Ok(Some(StoreUrl::parse(url)?.with_password(self.password.clone()))),
        }
    }

    /// Connects, and learns the store's clock.
    ///
    /// # Errors
    ///
    /// A wrong URL or option; a store that cannot be reached or is unfit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<Client, Error> {
        let keeper = Keeper::spawn()?;
        let unlayered = self.layers.iter().all(|layer| layer.hands_hints_on()) && matches!(self.source, Source::Url(_));
        let (callers, keepers, options) = match self.source {
            Source::Stores { callers, keepers } => (callers, keepers, Options::default()),
            Source::Url(url) => {
                let url = StoreUrl::parse(&url)?.with_password(self.password);
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
            planted: Default::default(),
        });
        let (handle, waker) = (keeper.handle.clone(), keeper.waker.clone());
        let shell = Arc::new(Shell::new(client, callers, keepers, handle, self.listener, waker, table));
        shell.store.watch_held(client, shell.hint_sink());
        keeper.keep(shell.clone());
        Ok(Client { shell: Handle::new(shell), options: Arc::new(options), about: Arc::new(self.about) })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the store of a URL. `memory:` is this process; other schemes come with their features.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Settings before connecting: layers, a listener.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(Source::Url(url.to_owned()))
    }

    /// Over a store of your own, with one handle for callers and one, over connections of its own, for the keeper.
    pub fn over(callers: Arc<dyn Store>, keepers: Arc<dyn Store>) -> ClientBuilder {
        ClientBuilder::new(Source::Stores { callers, keepers })
    }

    /// A lock by name. Nothing is asked of the store before it is acquired.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.lock_of(Name::new(name).map(Names::One))
    }

    /// Several locks that are taken together, all or none, in one step of the store.
    ///
    /// Names given twice are taken once, and the guard has them in order of names. While it waits for one of them it holds no other, and no place in line for another. An owner that already holds one of them
    /// gets an error and does not wait. An explicit owner that holds *all* of them, in other clients, re-enters all.
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Lock {
        let names: Result<Vec<Name>, Error> = names.into_iter().map(Name::new).collect();
        self.lock_of(names.and_then(Names::new))
    }

    fn lock_of(&self, names: Result<Names, Error>) -> Lock {
        Lock::new(self.shell.clone(), names, self.options.clone(), self.about.clone())
    }

    /// Who holds a lock.
    ///
    /// # Errors
    ///
    /// A bad name; a store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// It only looks.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        self.shell.check_process("inspect")?;
        let name = self.named(name)?;
        let answered = self.shell.store.inspect(name.clone()).await.map_err(|error| self.labelled(error, &name))?;
        Ok(Status::of(answered.result))
    }

    /// Every lock that is held, or lingers, and whose name begins with `prefix`, in order of names.
    ///
    /// # Errors
    ///
    /// A prefix that no name can have; a store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// It only looks.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Status>, Error> {
        self.shell.check_process("list")?;
        if !prefix.is_empty() {
            self.named(prefix).map_err(|error| error.during("list"))?;
        }
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = self.shell.store.list(prefix.to_owned(), after.take(), PAGE).await;
            let page = page.map_err(|error| error.on_store(self.shell.store.label()))?.result;
            let full = page.len() == PAGE;
            after = page.last().map(|last| last.name.clone());
            all.extend(page.into_iter().map(Status::of));
            if !full {
                return Ok(all);
            }
        }
    }

    /// Takes a lock away from its holder, whoever that is: for operators. Answers who it was.
    ///
    /// [`AtLeaseEnd`](crate::Break::AtLeaseEnd) ends the holder's right: its next renewal answers *lost*, and others may come when its lease has run out.
    /// [`Now`](crate::Break::Now) deletes it at once; two may act until the holder finds out, and fences decide. It finds out with its next
    /// renewal, within a third of its lease; a fixed lease is not renewed, and finds out when it is released or its time ends. The
    /// fence count is untouched, unless [`BreakOptions::reset_fence`] says otherwise. With [`BreakOptions::fence`] it acts only
    /// while the lock is held under that fence: a lock that is free stays as it is, its fences too.
    ///
    /// # Errors
    ///
    /// A bad name; a store that did not answer; a lock that lingers or is held under another fence than the one given (`NotHolder`); a value that is not recognisably a
    /// lock (`Unfit`), unless [`BreakOptions::foreign`] is set.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether it was broken.
    pub async fn break_lock(&self, name: impl AsRef<str>, options: impl Into<BreakOptions>) -> Result<Status, Error> {
        self.shell.check_process("break")?;
        let (name, options) = (self.named(name)?, options.into());
        let answered = self.shell.store.break_lock(name.clone(), options).await;
        let Broken { was, refused } = answered.map_err(|error| self.labelled(error, &name))?.result;
        let was = Status::of(was);
        match refused {
            None => Ok(was),
            Some(refusal) => Err(self.labelled(not_broken(&was, options, refusal), &name)),
        }
    }

    /// What the store can do and promise.
    pub fn capability(&self) -> Capability {
        self.shell.store.capability()
    }

    /// What locks have where they say nothing else.
    pub fn defaults(&self) -> &Options {
        &self.options
    }

    /// The store's name for people, without credentials.
    pub fn store_label(&self) -> &str {
        self.shell.store.label()
    }

    /// Which store it is, whatever its URL: two clients with the same known identity share their locks.
    ///
    /// # Errors
    ///
    /// As for any call to the store.
    pub async fn identity(&self) -> Result<Identity, Error> {
        self.shell.store.identity().await.map_err(|error| error.on_store(self.shell.store.label()))
    }

    /// How much this client has in use: names that it holds, wants or has open with the store, tasks that wait, guards that are
    /// watched or were lost and still live. Zero when all is given back: for metrics, and for finding leaks.
    pub fn in_use(&self) -> usize {
        if self.shell.is_forked() {
            return 0;
        }
        let state = self.shell.state();
        state.table.len() + state.table.remnants() + state.mailboxes.len() + state.lost.len()
    }

    /// What this client has in use, and what it has done since it connected: a snapshot, for metrics. Reading it costs as much as
    /// taking a mutex.
    pub fn stats(&self) -> Stats {
        if self.shell.is_forked() {
            return Stats::default();
        }
        let state = self.shell.state();
        Stats { guards: state.table.guards(), waiting: state.mailboxes.len(), names: state.table.len(), ..state.stats }
    }

    /// Gives back everything that this client holds, and waits for it. Waiting acquires end with an error; guards that are left are
    /// lost. Every later acquire is refused; looking ([`Client::inspect`], [`Client::list`]) and breaking still work.
    ///
    /// # Errors
    ///
    /// None but a forked process: what cannot be given back because the store does not answer is waited for until its lease is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<(), Error> {
        self.shell.check_process("close")?;
        let quiet = self.shell.quiet.notified();
        let mut quiet = std::pin::pin!(quiet);
        quiet.as_mut().enable();
        {
            let mut state = self.shell.state();
            state.closed = true;
            self.shell.step_locked(&mut state, Input::Close, Recipient::Nothing).send(&self.shell, state);
        }
        if !self.shell.state().table.is_empty() {
            quiet.await;
        }
        // Lists of waiters are left in the background.
        self.shell.errands.done().await;
        self.shell.store.close(self.shell.client).await;
        Ok(())
    }

    fn named(&self, name: impl AsRef<str>) -> Result<Name, Error> {
        Name::new(name).map_err(|error| error.during("look-up").on_store(self.shell.store.label()))
    }

    fn labelled(&self, error: Error, name: &Name) -> Error {
        error.on_store(self.shell.store.label()).on_lock(name)
    }
}

fn not_broken(was: &Status, options: BreakOptions, refusal: BreakRefusal) -> Error {
    let holder = was.holders.first().or(was.lingers.as_ref());
    let holder = holder.map_or_else(|| "nobody".to_owned(), ToString::to_string);
    match (refusal, options.fence) {
        (BreakRefusal::Foreign, _) => {
            let what =
                format!("the value at this name is not a lock that leasehold knows, and was left alone: {holder}");
            Error::new(ErrorKind::Unfit, "break", what)
        }
        (_, Some(fence)) => {
            let what = format!("the lock is not held under fence {fence} any more, and was left alone: {holder}");
            Error::new(ErrorKind::NotHolder, "break", what)
        }
        (_, None) => Error::new(ErrorKind::NotHolder, "break", format!("the lock was left alone: {holder}")),
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", self.shell.store.label()).finish_non_exhaustive()
    }
}
