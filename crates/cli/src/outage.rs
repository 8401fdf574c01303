//! Notices when a store stops answering those who wait for a lock, and when it answers again; says each once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::port::{
    Acquire, Acquired, BreakOptions, Broken, Call, ClientId, HintSink, Inspected, Release, Released, Renew, Renewed,
    Reply,
};
use leasehold::{Capability, Error, ErrorKind, Identity, Layer, Name, Store};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::{human, output};

/// A store that answers again sooner is not worth a word.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Whether a store answers those who wait for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Outage(Arc<State>);

#[derive(Debug)]
struct State {
    /// None while it answers.
    away: watch::Sender<Option<Away>>,
    /// People know that it is away.
    is_told: AtomicBool,
}

#[derive(Clone, Debug)]
struct Away {
    since: Instant,
    /// What it said last.
    error: Error,
}

impl Outage {
    /// As far as is known, it answers.
    pub(crate) fn new() -> Self {
        Self(Arc::new(State { away: watch::Sender::new(None), is_told: AtomicBool::new(false) }))
    }

    /// Whether it does not answer now.
    pub(crate) fn is_away(&self) -> bool {
        self.0.away.borrow().is_some()
    }

    /// What it said to a call that began then.
    fn answered<T>(&self, reply: &Reply<T>, began: Instant) {
        let away = match reply {
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum) => Some(error.clone()),
            _ => None,
        };
        self.0.away.send_if_modified(|before| match (before.as_mut(), away) {
            (None, None) => false,
            (Some(_), None) => before.take().is_some(),
            (None, Some(error)) => {
                *before = Some(Away { since: began, error });
                true
            }
            (Some(before), Some(error)) => {
                before.error = error;
                false
            }
        });
    }

    /// Tells people of outages with `say`, until one is longer than `patience`: then it is why to give up. The wait ends by itself at `end`.
    pub(crate) async fn watch(
        &self,
        store: &str,
        patience: Option<Duration>,
        end: Option<Instant>,
        say: impl Fn(&str),
    ) -> Failure {
        let mut changes = self.0.away.subscribe();
        loop {
            let away = changes.borrow_and_update().clone();
            let Some(Away { since, error }) = away else {
                self.is_back(store, &say);
                // Its sender is part of this.
                let _ = changes.changed().await;
                continue;
            };
            let is_told = self.0.is_told.load(Ordering::Relaxed);
            let tell = async {
                match is_told {
                    true => std::future::pending().await,
                    false => tokio::time::sleep_until((since + TELL_AFTER).into()).await,
                }
            };
            let give_up = async {
                match patience {
                    None => std::future::pending().await,
                    Some(patience) => tokio::time::sleep_until((since + patience).into()).await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = give_up => {
                    let long = human::span(since.elapsed());
                    let error = Failure::from(error);
                    let what = format!("gave up waiting: {store} has not answered for {long}: {}", error.message);
                    return Failure { hint: error.hint, ..Failure::new(Exit::UNREACHABLE, what) };
                }
                () = tell => {
                    self.0.is_told.store(true, Ordering::Relaxed);
                    let long = human::span(since.elapsed());
                    let then = match (patience, end) {
                        (Some(patience), end) if end.is_none_or(|end| since + patience < end) => {
                            format!("the wait ends when it has not for {}", human::span(patience))
                        }
                        (_, Some(end)) => {
                            let left = end.saturating_duration_since(Instant::now());
                            format!("the wait ends in {} at the latest", human::span(left))
                        }
                        _ => "the wait goes on until it does".to_owned(),
                    };
                    say(&format!("{store} has not answered for {long}; {then}: {}", error.message()));
                }
            }
        }
    }

    /// Says that it answers again, where people know that it did not.
    pub(crate) fn is_back(&self, store: &str, say: &impl Fn(&str)) {
        if self.0.away.borrow().is_none() && self.0.is_told.swap(false, Ordering::Relaxed) {
            say(&format!("{store} answers again"));
        }
    }

    /// The same, for a wait that is over.
    pub(crate) fn is_over(&self, store: &str) {
        self.is_back(store, &output::note);
    }
}

impl Layer for Outage {
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Watched { inner, outage: self.clone() })
    }

    fn hands_hints_on(&self) -> bool {
        true
    }
}

struct Watched {
    inner: Arc<dyn Store>,
    outage: Outage,
}

impl Store for Watched {
    fn label(&self) -> &Arc<str> {
        self.inner.label()
    }

    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    fn identity(&self) -> Call<Result<Identity, Error>> {
        self.inner.identity()
    }

    fn clock(&self) -> Call<Reply<()>> {
        self.inner.clock()
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        let (call, outage) = (self.inner.acquire(request), self.outage.clone());
        Call::pending(async move {
            let began = Instant::now();
            let reply = call.await;
            outage.answered(&reply, began);
            reply
        })
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        self.inner.renew(leases)
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.inner.release(request)
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        self.inner.watch(client, name, sink)
    }

    fn watch_held(&self, client: ClientId, sink: HintSink) {
        self.inner.watch_held(client, sink);
    }

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        self.inner.unwatch(client, name)
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        self.inner.inspect(name)
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        self.inner.list(prefix, after, limit)
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        self.inner.break_lock(name, options)
    }

    fn close(&self, client: ClientId) -> Call<()> {
        self.inner.close(client)
    }
}
