//! A lock: a name with options. Cheap to make and to clone; nothing is sent to the store before it is acquired.

pub(crate) mod detached;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::About;
use leasehold_core::table::{AcquireRequest, Grant, Input};
use leasehold_core::{Error, ErrorKind, Moment, Names, Options, Owner, Term, WaitMode};
use tracing::Instrument;

use crate::client::Client;
use crate::client::event::Event;
use crate::client::status::Holder;
use crate::guard::Guard;
use crate::runtime::acquire_call::{AcquireCall, waited};
use crate::runtime::handle::ShellHandle;
use crate::runtime::random;

/// Maximum time to wait.
const WAIT_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The result of an attempt: that a lock is busy is not an error.
#[derive(Debug)]
#[must_use = "a guard that is not kept is released at once"]
pub enum Attempt<G = Guard> {
    /// The lock is acquired.
    Granted(G),
    /// Another holds it.
    Busy(Holder),
}

impl<G> Attempt<G> {
    /// The guard, if the lock is acquired.
    pub fn granted(self) -> Option<G> {
        match self {
            Self::Granted(guard) => Some(guard),
            Self::Busy(_) => None,
        }
    }

    /// The same result with another guard.
    pub(crate) fn map<H>(self, change: impl FnOnce(G) -> H) -> Attempt<H> {
        match self {
            Self::Granted(guard) => Attempt::Granted(change(guard)),
            Self::Busy(holder) => Attempt::Busy(holder),
        }
    }

    /// Whether another holds it.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

/// A lock by name, with options.
///
/// Made by [`Client::lock`](crate::Client::lock). A bad option is reported by the first acquire, before anything is
/// sent.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock("reports")?.keep(Duration::from_secs(10)).label("nightly").acquire().await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    pub(crate) shell: Arc<ShellHandle>,
    /// One, except for a part of a group.
    pub(crate) names: Names,
    pub(crate) owner: Option<Owner>,
    pub(crate) options: Arc<Options>,
    pub(crate) about: Arc<About>,
    bad_option: Option<Error>,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Ask once, and do not wait until it is free.
    pub(crate) once: bool,
    /// The answer is wanted by then.
    pub(crate) limit: Option<Moment>,
}

impl Patience {
    pub(crate) const ONCE: Self = Self { once: true, limit: None };
    pub(crate) const FOREVER: Self = Self { once: false, limit: None };

    /// Waits for so long from now.
    pub(crate) fn within(span: Duration) -> Result<Self, Error> {
        if span > WAIT_MAX {
            let error = Error::new(ErrorKind::BadArgument, "acquire", "a wait of more than a year");
            return Err(error.with_hint("leave the limit out to wait for ever"));
        }
        Ok(Self { once: false, limit: Some(leasehold_clock::now() + span) })
    }
}

impl Lock {
    pub(crate) fn new(client: &Client, names: Result<Names, Error>) -> Result<Self, Error> {
        let names = names.map_err(|error| error.during("lock").on_store(client.shell.store.label()))?;
        let Client { shell, options, about } = client.clone();
        Ok(Self { shell, names, owner: None, options, about, bad_option: None })
    }

    /// Keeps the lock: its lease of this length is renewed for as long as the guard lives. This is the default, with 30 s.
    ///
    /// From 200 ms (`memory:` 10 ms) to 24 h. A shorter lease frees the lock of a dead holder sooner, and costs more renewals.
    pub fn keep(self, lease: Duration) -> Self {
        self.with(|options| options.term = Term::Kept(lease))
    }

    /// Acquires the lock for this long, and never renews it.
    ///
    /// From 200 ms (`memory:` 10 ms) to 24 h.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|options| options.term = Term::Fixed(lease))
    }

    /// A kept lock is lost after this long, so that a stuck holder does not keep it for ever. Default: no limit.
    ///
    /// The guard's lost signal says so. Others get the lock when it is released, or when the rest of its lease has run out.
    pub fn max_hold(self, limit: Duration) -> Self {
        self.with(|options| options.max_hold = Some(limit))
    }

    /// Keeps others out for at least this long from the grant, also when it is released sooner. Default: zero.
    pub fn at_least(self, span: Duration) -> Self {
        self.with(|options| options.at_least = span)
    }

    /// How to wait: notified (default) or spinning.
    pub fn wait_mode(self, mode: WaitMode) -> Self {
        self.with(|options| options.wait_mode = mode)
    }

    /// For how long this lock may be handed from task to task in memory before other processes get their turn.
    ///
    /// Up to 10 s; zero turns it off. Default: 50 ms.
    pub fn budget(self, budget: Duration) -> Self {
        self.with(|options| options.budget = budget)
    }

    /// Human-readable label, shown by `inspect` and `list`: up to 256 bytes.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        let label: Arc<str> = label.as_ref().into();
        self.about = Arc::new(About { label: Some(label.clone()), ..(*self.about).clone() });
        self.with(|options| options.label = Some(label))
    }

    /// Acquires the lock for this owner, which re-enters a lock that it already holds.
    ///
    /// An explicit owner may be the same in several processes, if the store counts its holds. A generated one, taken from
    /// [`Guard::owner`], re-enters in this client only.
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self.bad_option = self.options.check(&self.shell.store.capability()).err();
        self
    }

    /// Acquires the lock, and waits for it if it is busy.
    ///
    /// # Guarantees
    ///
    /// Until the guard is released or lost, no other owner has a valid guard for this name anywhere. Its fence is larger than the
    /// fence of every earlier grant of the name; a re-entry has the fence of the grant that it re-enters.
    ///
    /// # Errors
    ///
    /// A bad option, before anything is sent. A store that is unfit, or that cannot be reached for 10 s before it has
    /// answered once; later outages are waited out. A closed client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the place in line, and nothing else: a lock that turns out to be granted is released.
    ///
    /// # Panics
    ///
    /// If a [`Layer`](crate::Layer) panics during a call: the panic goes on to the caller, and a lock that is granted all the same is
    /// released.
    ///
    /// # Fairness
    ///
    /// Tasks of one client are served in the order in which they came. Between clients, one that had its turn lets others go first
    /// if the store knows that they wait.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock("invoices")?.acquire().await?;
    /// println!("fence {}", guard.fence());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.attempt(Patience::FOREVER, one_guard).await?.granted().ok_or_else(refused)
    }

    /// Tries once, and does not wait.
    ///
    /// # Guarantees
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]. An unreachable store is an error at once, with its outcome: *unknown* means that the lock may be granted
    /// for a moment, and is then released in the background.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Fairness
    ///
    /// It does not wait for its turn: it may get a lock that others wait for.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// match client.lock("invoices")?.try_acquire().await? {
    ///     leasehold::Attempt::Granted(guard) => println!("fence {}", guard.fence()),
    ///     leasehold::Attempt::Busy(holder) => println!("{holder}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Attempt, Error> {
        self.attempt(Patience::ONCE, one_guard).await
    }

    /// Acquires the lock, and waits for it at most this long.
    ///
    /// # Guarantees
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]. If the store did not answer by the end of the wait, its last error.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Fairness
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let attempt = client.lock("invoices")?.acquire_within(Duration::from_secs(2)).await?;
    /// assert!(!attempt.is_busy());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Attempt, Error> {
        self.attempt(Patience::within(limit)?, one_guard).await
    }

    /// Acquires the lock, runs some work under it, and releases it.
    ///
    /// The work is dropped when the lock is lost. Its result is returned; a release that the store did not answer is not an error,
    /// because it is retried in the background.
    ///
    /// # Guarantees
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::acquire`], before the work, and those of the work. [`ErrorKind::Lost`] if the lock was lost before the work
    /// was done, also when that is noticed only at the release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work, and releases the lock in the background.
    ///
    /// # Fairness
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let fence = client.lock("reports")?.run(async |guard| Ok::<_, leasehold::Error>(guard.fence())).await?;
    /// println!("done under fence {fence}");
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E: From<Error>>(&self, work: impl AsyncFnOnce(&Guard) -> Result<T, E>) -> Result<T, E> {
        let guard = self.acquire().await?;
        let done = guard.protect(work(&guard)).await;
        let released = guard.release().await;
        let done = done??;
        only_if_held(released)?;
        Ok(done)
    }

    /// Takes the lock for its owner, or for one of this acquire's own. `hold` makes the guard of what is granted.
    pub(crate) async fn attempt<G>(&self, patience: Patience, hold: Hold<G>) -> Result<Attempt<G>, Error> {
        self.check("acquire")?;
        let shell = &self.shell;
        let owner = match &self.owner {
            Some(owner) => owner.clone(),
            None => random::owner()?,
        };
        let span = tracing::debug_span!("acquire", lock = %self.names.first(), store = %shell.store.label());
        async {
            // A free lock is taken without waiting: a loop of acquires must let other tasks run now and then.
            tokio::task::coop::consume_budget().await;
            let began = shell.has_listener().then(leasehold_clock::now);
            let request = AcquireRequest {
                names: self.names.clone(),
                owner: owner.clone(),
                options: self.options.clone(),
                about: self.about.clone(),
                once: patience.once,
                until: patience.limit,
            };
            let call = AcquireCall::new(shell, &self.names, began, |id| Input::Acquire(id, request));
            match call.run(patience.limit).await {
                Ok(Attempt::Granted(grants)) => {
                    // The guard first: from here on, whatever happens, the lock is given back.
                    let guard = hold(shell, &self.names, owner, &grants);
                    for (grant, name) in grants.iter().zip(self.names.as_slice()) {
                        shell.emit(|| Event::Granted {
                            name,
                            hold: grant.hold.number(),
                            fence: grant.fence,
                            how: grant.how,
                            waited: waited(began),
                        });
                    }
                    Ok(Attempt::Granted(guard))
                }
                Ok(Attempt::Busy(holder)) => {
                    shell.emit(|| Event::Busy { name: &holder.name, waited: waited(began), holder: &holder });
                    Ok(Attempt::Busy(holder))
                }
                Err(error) => {
                    shell.emit(|| Event::Failed { name: self.names.first(), waited: waited(began), error: &error });
                    Err(error)
                }
            }
        }
        .instrument(span)
        .await
    }

    pub(crate) fn check(&self, operation: &'static str) -> Result<(), Error> {
        let shell = &self.shell;
        shell.check_process(operation)?;
        if let Some(fault) = &self.bad_option {
            return Err(fault.clone().during(operation).on_store(shell.store.label()).on_lock(self.names.first()));
        }
        if matches!(self.names, Names::Many(_)) && !shell.store.capability().several_names {
            let what = "this store cannot take several names in one step";
            return Err(Error::new(ErrorKind::Unfit, operation, what).on_store(shell.store.label()));
        }
        Ok(())
    }
}

/// Makes the guard of grants, which are in the order of the names.
pub(crate) type Hold<G> = fn(&Arc<ShellHandle>, &Names, Owner, &[Grant]) -> G;

fn one_guard(shell: &Arc<ShellHandle>, names: &Names, owner: Owner, grants: &[Grant]) -> Guard {
    Guard::new(shell.clone(), names.first().clone(), owner, &grants[0])
}

pub(crate) fn refused() -> Error {
    Error::new(ErrorKind::Internal, "acquire", "refused without a limit on waiting")
}

/// Finished work was done under the lock unless its release says otherwise. An unanswered release goes on in the background.
pub(crate) fn only_if_held(released: Result<(), Error>) -> Result<(), Error> {
    let is_lost = |error: &Error| error.kind() == ErrorKind::Lost;
    match released {
        Err(error) if is_lost(&error) || error.failures().iter().any(is_lost) => Err(error),
        _ => Ok(()),
    }
}
