//! A client: one per process and store. It owns the connections, the local table and the keeper.

mod builder;
pub mod config;
pub(crate) mod event;
pub(crate) mod examine;
pub(crate) mod layer;
mod password_file;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod url;

use std::fmt;
use std::sync::Arc;

use leasehold_core::port::{About, BreakOptions, BreakRefusal, Broken};
use leasehold_core::table::Input;
use leasehold_core::{Capability, Error, ErrorKind, Identity, Name, Names, Options, Owner, Store};

use crate::group::GroupLock;
use crate::lock::Lock;
use crate::lock::detached::Detached;
use crate::runtime::handle::ShellHandle;
use crate::runtime::shell::Recipient;
pub use builder::ClientBuilder;
use builder::Source;
use config::StoreConfig;
use stats::Stats;
use status::Status;

/// Maximum number of locks that [`Client::list`] fetches with one call.
const PAGE: usize = 1_000;

/// A connection to a store, and everything that this process holds there. Cheap to clone.
///
/// When the client, its locks and its guards are all dropped, its thread goes on until nothing is open with the store, such as a
/// release that was not answered: until the lease is over at the latest. A program that ends before that leaves it to the lease;
/// [`Client::close`] waits.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock("invoices")?.acquire().await?;
/// println!("mine, with fence {}", guard.fence());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) shell: Arc<ShellHandle>,
    pub(crate) options: Arc<Options>,
    pub(crate) about: Arc<About>,
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
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// assert_eq!(client.store_label(), "memory:");
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Settings before connecting: layers, a listener, defaults, a password.
    ///
    /// The store is given by its URL, or by a type of [`config`](crate::config).
    pub fn builder(store: impl Into<StoreConfig>) -> ClientBuilder {
        ClientBuilder::new(Source::Config(store.into()))
    }

    /// Over your own store: one handle for callers and one, over connections of its own, for the keeper.
    pub fn over(callers: Arc<dyn Store>, keepers: Arc<dyn Store>) -> ClientBuilder {
        ClientBuilder::new(Source::Stores { callers, keepers })
    }

    /// A lock by name. Nothing is sent to the store before it is acquired.
    ///
    /// # Errors
    ///
    /// A bad name: see [`Name`](crate::Name).
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock, Error> {
        Lock::new(self, Name::new(name).map(Names::One))
    }

    /// Several locks that are acquired together, all or none, in one step of the store.
    ///
    /// A name that is given twice is acquired once, and the guard has the names in order. While the group waits for one lock it holds
    /// no other, and no place in line for another. An owner that already holds one of them gets an error and does not wait. An
    /// explicit owner that holds *all* of them, in other clients, re-enters all.
    ///
    /// # Errors
    ///
    /// A bad name, or no name at all.
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<GroupLock, Error> {
        let names: Result<Vec<Name>, Error> = names.into_iter().map(Name::new).collect();
        Lock::new(self, names.and_then(Names::new)).map(GroupLock::from)
    }

    /// A lease that an explicit owner has without a guard, for renewing and releasing it: see [`Guard::leave`](crate::Guard::leave).
    /// Nothing is sent to the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`] for a bad name, or an owner that was generated.
    pub fn detached(&self, name: impl AsRef<str>, owner: &Owner) -> Result<Detached, Error> {
        Detached::new(self.shell.clone(), name, owner)
    }

    /// Who holds a lock.
    ///
    /// # Errors
    ///
    /// A bad name. A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let _guard = client.lock("invoices")?.acquire().await?;
    /// for holder in client.inspect("invoices").await?.holders {
    ///     println!("{holder}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        self.shell.check_process("inspect")?;
        let name = self.named(name)?;
        let answered = self.shell.store.inspect(name.clone()).await.map_err(|error| self.labelled(error, &name))?;
        Ok(Status::of(answered.result))
    }

    /// Every lock that is held or in its cooldown, and whose name begins with `prefix`, in order of names.
    ///
    /// # Errors
    ///
    /// A prefix that no name can have. A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let _guard = client.lock("jobs/17")?.acquire().await?;
    /// assert!(client.list("jobs/").await?.iter().any(|lock| lock.is_held()));
    /// # Ok(()) }
    /// ```
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

    /// Takes a lock away from any holder: for operators. Returns who held it.
    ///
    /// [`AtLeaseEnd`](crate::Break::AtLeaseEnd) ends the holder's right: its next renewal reports a loss, and others may acquire the
    /// lock when its lease has run out. [`Now`](crate::Break::Now) deletes the lock at once: two holders may act until the first one
    /// finds out, and fences decide. It finds out with its next renewal, within a third of its lease; with a fixed lease, when it
    /// releases the lock or its time ends. The fence count is kept, unless [`BreakOptions::reset_fence`] says otherwise. With
    /// [`BreakOptions::fence`] it acts only while the lock is held under that fence: a free lock stays as it is, with its fences.
    ///
    /// # Errors
    ///
    /// A bad name. A store that did not answer. `NotHolder` for a lock that is in its cooldown or held under another fence than the
    /// given one. `Unfit` for a value that is not recognisably a lock, unless [`BreakOptions::foreign`] is set.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the lock was broken.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use leasehold::{Break, BreakOptions};
    ///
    /// let guard = client.lock("invoices")?.acquire().await?;
    /// client.break_lock("invoices", BreakOptions::from(Break::Now).fence(guard.fence())).await?;
    /// assert!(guard.release().await.is_err(), "it was lost");
    /// # Ok(()) }
    /// ```
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

    /// What the store can do, and what it promises.
    pub fn capability(&self) -> Capability {
        self.shell.store.capability()
    }

    /// The options of locks that do not say otherwise.
    pub fn defaults(&self) -> &Options {
        &self.options
    }

    /// The display name of the store, without credentials.
    pub fn store_label(&self) -> &str {
        self.shell.store.label()
    }

    /// Which store it is, independent of its URL: two clients with the same known identity share their locks.
    ///
    /// # Errors
    ///
    /// A store that did not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let one = leasehold::Client::connect("memory:jobs").await?;
    /// let two = leasehold::Client::connect("memory:jobs").await?;
    /// assert_eq!(one.identity().await?.is_same(&two.identity().await?), Some(true));
    /// # Ok(()) }
    /// ```
    pub async fn identity(&self) -> Result<Identity, Error> {
        self.shell.store.identity().await.map_err(|error| error.on_store(self.shell.store.label()))
    }

    /// How much this client has in use: names that it holds, waits for or has open with the store, waiting tasks, guards that are
    /// watched or were lost and still live. Zero when everything is released: for metrics, and for finding leaks.
    pub fn in_use(&self) -> usize {
        if self.shell.is_forked() {
            return 0;
        }
        let state = self.shell.state();
        state.table.len() + state.table.remnants() + state.mailboxes.len() + state.lost.len()
    }

    /// What this client has in use, and what it has done since it connected: a snapshot for metrics. It costs a mutex.
    pub fn stats(&self) -> Stats {
        if self.shell.is_forked() {
            return Stats::default();
        }
        let state = self.shell.state();
        Stats { guards: state.table.guards(), waiting: state.mailboxes.len(), names: state.table.len(), ..state.stats }
    }

    /// Releases everything that this client holds, and waits for that. Waiting acquires end with an error; guards that are left are
    /// lost. Every later acquire is refused; [`Client::inspect`], [`Client::list`] and [`Client::break_lock`] still work.
    ///
    /// # Errors
    ///
    /// Only in a forked process. A release that the store does not answer is waited for until its lease is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the closing.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock("invoices")?.acquire().await?;
    /// client.close().await?;
    /// assert!(!guard.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) -> Result<(), Error> {
        self.shell.check_process("close")?;
        let quiet = self.shell.quiet.notified();
        let mut quiet = std::pin::pin!(quiet);
        quiet.as_mut().enable();
        {
            let mut state = self.shell.state();
            state.closed = true;
            self.shell.step_locked(&mut state, Input::Close, Recipient::Nobody).send(&self.shell, state);
        }
        if !self.shell.state().table.is_empty() {
            quiet.await;
        }
        // Leaving the lists of waiters goes on in the background.
        self.shell.tasks.done().await;
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
    let holder = was.holders.first().or(was.cooldown.as_ref());
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
